"""Steps of algorithms on graphs: each vertex combines the values of its neighbours.

A row of a matrix is a vertex; the columns of its entries are its neighbours, their values the
weights of the edges. A row is combined in the order of its columns, so its bits depend on that row
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from distvec.losses.compiled import njit
from distvec.losses.loss import Arrays, Parameter, StatefulLoss, Sums, TaskArrays
from distvec.losses.rows import Floats, Ints, Rows

Values = npt.NDArray[Any]

SUM, LEAST, NEAREST, MODE, H_INDEX = "sum", "least", "nearest", "mode", "h-index"
"""Combinations: ``sum w x``, ``min x``, ``min (w + x)``, the most frequent ``x``, and the largest
``h`` so that ``h`` of the ``x`` are ``h`` or more."""


class Edges(NamedTuple):
    """Entries of rows: those of a row lie together, ascending by their columns."""

    rows: Ints
    """The vertices that have entries, ascending."""
    starts: Ints
    """Where the entries of each begin, and where those of the last one end."""
    columns: Ints
    weights: Floats


def sort_edges(rows: Ints, columns: Ints, weights: Floats) -> Edges:
    """Sort edges by rows and columns. Of equal ones the one with the least weight is kept."""
    order = np.lexsort((weights, columns, rows))
    rows, columns, weights = rows[order], columns[order], weights[order]
    is_new = np.ones(rows.size, bool)
    is_new[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
    rows, columns, weights = rows[is_new], columns[is_new], weights[is_new]
    distinct, starts = np.unique(rows, return_index=True)
    return Edges(distinct, np.append(starts, rows.size), columns, weights)


def combine(kind: str, matrix: sp.csr_array, values: Values) -> Values:
    """Combine for each row the ``values`` of its columns. Each row has an entry."""
    return _COMBINATIONS[kind](matrix, values)


def _least(matrix: sp.csr_array, values: Values) -> Values:
    return np.asarray(np.minimum.reduceat(values[matrix.indices], matrix.indptr[:-1]))


def _nearest(matrix: sp.csr_array, values: Values) -> Values:
    return np.asarray(np.minimum.reduceat(matrix.data + values[matrix.indices], matrix.indptr[:-1]))


def _mode(matrix: sp.csr_array, values: Values) -> Values:
    """The smallest of several that are equally frequent."""
    ordered, rows = _sorted_by_row(matrix, values)
    is_new = np.ones(ordered.size, bool)
    is_new[1:] = (ordered[1:] != ordered[:-1]) | (rows[1:] != rows[:-1])
    begins = np.flatnonzero(is_new)
    counts, of = np.diff(begins, append=ordered.size), rows[begins]
    firsts = np.searchsorted(of, np.arange(matrix.shape[0]))
    most = np.flatnonzero(counts == np.maximum.reduceat(counts, firsts)[of])
    _, first = np.unique(of[most], return_index=True)
    return np.asarray(ordered[begins[most[first]]])


def _h_index(matrix: sp.csr_array, values: Values) -> Values:
    """See Lü, Zhou, Zhang, Stanley: The H-index of a network node, 2016."""
    ordered, rows = _sorted_by_row(matrix, values)
    left = matrix.indptr[1:][rows] - np.arange(ordered.size)  # this value and the larger ones
    return np.asarray(np.add.reduceat(ordered >= left, matrix.indptr[:-1], dtype=np.int64))


def _sorted_by_row(matrix: sp.csr_array, values: Values) -> tuple[Values, Ints]:
    """The values of the entries, integers of 0 and more, ascending in each row; and the rows."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    size = int(values.max()) + 1
    keys = rows * size + values[matrix.indices]
    keys.sort()
    return keys - rows * size, rows


_COMBINATIONS: Mapping[str, Callable[[sp.csr_array, Values], Values]] = MappingProxyType(
    {
        SUM: lambda matrix, values: np.asarray(matrix @ values),
        LEAST: _least,
        NEAREST: _nearest,
        MODE: _mode,
        H_INDEX: _h_index,
    }
)


@dataclass(frozen=True)
class NeighbourStep(StatefulLoss):
    """One step for the vertices of a partition, whose labels are their numbers."""

    kind: str

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("values", takes_intercept=False),)

    def begin(self, rows: Rows, array: TaskArrays) -> Rows:
        return rows

    def advance(self, state: Rows, array: TaskArrays) -> tuple[Ints, Values]:
        matrix = cast(sp.csr_array, state.matrix)
        return vertices_of(state), combine(self.kind, matrix, array(0))

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        raise NotImplementedError("graphs have no loss; call the methods of a Graph")


def vertices_of(rows: Rows) -> Ints:
    """The numbers of the vertices that rows are for."""
    return rows.labels.astype(np.int64)


# --- triangles ------------------------------------------------------------------------------------


def orient(edges: Edges, degrees: Ints, own_degrees: Ints) -> Edges:
    """Keep of each edge the direction to the vertex of the higher degree, or number among equals.

    ``degrees`` are those of the columns of all entries. Rows may have no entries left: then no
    vertex keeps more than the square root of twice the number of edges.
    """
    lengths = np.diff(edges.starts)
    rows, own = np.repeat(edges.rows, lengths), np.repeat(own_degrees, lengths)
    goes_up = (degrees > own) | ((degrees == own) & (edges.columns > rows))
    starts = np.concatenate([[0], np.cumsum(goes_up)])[edges.starts]
    return Edges(edges.rows, starts, edges.columns[goes_up], edges.weights[goes_up])


@njit(cache=True, nogil=True)
def add_triangles(
    rows: Any, starts: Any, columns: Any, places: Any, other_starts: Any, others: Any, counts: Any
) -> None:
    """Add the triangles of rows of oriented edges to the counts of their three corners.

    Entry ``k`` leads to a vertex that has the columns ``others[other_starts[p]:other_starts[p +
    1]]`` with ``p = places[k]``. Columns ascend.
    """
    for row in range(len(rows)):
        for k in range(starts[row], starts[row + 1]):
            i, end = starts[row], starts[row + 1]
            j, other_end = other_starts[places[k]], other_starts[places[k] + 1]
            while i < end and j < other_end:
                if columns[i] < others[j]:
                    i += 1
                elif columns[i] > others[j]:
                    j += 1
                else:
                    counts[rows[row]] += 1
                    counts[columns[k]] += 1
                    counts[columns[i]] += 1
                    i += 1
                    j += 1
