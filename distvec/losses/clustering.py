"""The loss of k-means: the distance of each row to the nearest of some centers.

A row ``x`` is nearest to the center with the largest margin ``x c - |c|^2 / 2``. So the parameter
is a table of centers, one per column, with ``-|c|^2 / 2`` as the intercept of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from distvec.losses.loss import Arrays, Loss, Parameter, Sums
from distvec.losses.rows import Floats, Ints, Rows

EUCLIDEAN, COSINE = "euclidean", "cosine"
"""Measures of distance. Under the second one, rows and centers count by their directions."""

_ROWS = 2048
"""So many rows at a time: they and their margins stay in cache."""

_ROUNDING = 1e-13
"""Relative; so much of a sum of squares is rounding."""


class Nearest(NamedTuple):
    """The nearest center of each of some rows."""

    places: Ints
    costs: Floats
    """The squared distance, or one minus the cosine."""


@dataclass(frozen=True)
class Quantization(Loss):
    """The cost ``sum c min_j d(x, c_j)`` of k-means.

    ``sums`` has no gradient but what a step of Lloyd's algorithm needs: for each center the sum
    of its rows, and below it the sum of their weights.
    """

    clusters: int
    measure: str = EUCLIDEAN
    _needs_labels: ClassVar[bool] = False

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter(row=(self.clusters,)),)

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        return sums_of(rows, arrays[0], self.measure)

    def scores(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Floats:
        """The margins, the largest for the nearest center."""
        return rows.margins(arrays[0], intercept=intercept)

    def predictions(self, scores: Floats) -> Floats:
        found: Floats = scores.argmax(axis=1).astype(np.float64)
        return found


def table_of(centers: npt.NDArray[Any], measure: str) -> Floats:
    """Centers, one per row, as the parameter of ``Quantization``."""
    squares = np.square(centers).sum(axis=1)
    if measure == COSINE:
        squares = np.zeros_like(squares)
    return np.vstack([centers.T, -0.5 * squares])


def norms(rows: Rows) -> Floats:
    """The Euclidean norm of each row."""
    if isinstance(rows.matrix, np.ndarray):
        squares = np.einsum("ij,ij->i", rows.matrix, rows.matrix)
    else:
        squares = np.asarray(rows.matrix.multiply(rows.matrix).sum(axis=1)).ravel()
    found: Floats = np.sqrt(squares)
    return found


def nearest(rows: Rows, table: npt.NDArray[Any], measure: str) -> Nearest:
    """The nearest center of each row; the first one of several.

    ``ValueError`` for a row of zeros and cosines. The rows of ``table`` are for the columns of
    ``rows``; features that they lack are zero in all rows.
    """
    places, costs = np.empty(len(rows), np.int64), np.empty(len(rows))
    for part, margins, squares in _margins(rows, table, measure):
        each = margins.argmax(axis=1)
        best = margins[np.arange(each.size), each]
        places[part] = each
        costs[part] = np.maximum(squares - (best if measure == COSINE else 2.0 * best), 0.0)
    return Nearest(places, costs)


def sums_of(rows: Rows, table: npt.NDArray[Any], measure: str) -> Sums:
    """The cost; and for each center the sum of its rows, and below it that of their weights."""
    found, count = nearest(rows, table, measure), table.shape[1]
    weights = np.ones(len(rows)) if rows.weights is None else rows.weights
    sums = np.empty((rows.columns + 1, count))
    sums[-1] = np.bincount(found.places, weights, count)
    value = float(weights @ found.costs)
    if measure == COSINE:
        weights = weights / norms(rows)
    sums[:-1] = _sums_by_center(rows, found.places, weights, count)
    return Sums(value, rows.weight_sum, (sums,))


def _margins(
    rows: Rows, table: npt.NDArray[Any], measure: str
) -> Iterator[tuple[slice, Floats, Any]]:
    """Of blocks of rows the margins, and the number that costs are measured from."""
    is_dense = isinstance(rows.matrix, np.ndarray)
    shifted, shift = _shifted(table) if is_dense and measure == EUCLIDEAN else (table, None)
    for start in range(0, len(rows), _ROWS):
        part = slice(start, min(start + _ROWS, len(rows)))
        piece = rows[part]
        if measure == COSINE:
            lengths = norms(piece)
            if not lengths.all():
                raise ValueError("Cosine distance is not defined for zero-length vectors.")
            yield part, piece.margins(shifted, intercept=True) / lengths[:, None], 1.0
        elif shift is not None:
            far = piece.matrix - shift
            margins = far @ shifted[:-1]
            margins += shifted[-1]
            yield part, margins, np.einsum("ij,ij->i", far, far)
        else:
            yield part, piece.margins(shifted, intercept=True), np.square(norms(piece))


def _shifted(table: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """The table relative to the mean of its centers, and that mean.

    Margins of rows minus the mean are small, and so are their rounding errors. ``rest`` is the part
    of the squares that belongs to features that these rows lack.
    """
    centers, squares = table[:-1], -2.0 * table[-1]
    shift: Floats = centers.mean(axis=1)
    rest = squares - np.square(centers).sum(axis=0)
    rest[np.abs(rest) <= _ROUNDING * squares] = 0.0
    near = centers - shift[:, None]
    return np.vstack([near, -0.5 * (np.square(near).sum(axis=0) + rest)]), shift


def _sums_by_center(rows: Rows, places: Ints, weights: Floats, count: int) -> Floats:
    """``(columns, count)``: the weighted sum of the rows of each center."""
    matrix = rows.matrix
    if isinstance(matrix, np.ndarray):
        starts = np.arange(places.size + 1)
        chosen = sp.csc_array((weights, places, starts), shape=(count, places.size))
        return np.asarray(chosen @ matrix).T
    lengths = np.diff(matrix.indptr)
    cells = matrix.indices.astype(np.int64) * count + np.repeat(places, lengths)
    values = matrix.data * np.repeat(weights, lengths)
    sums = np.bincount(cells, values, rows.columns * count)
    return sums.astype(np.float64, copy=False).reshape(rows.columns, count)
