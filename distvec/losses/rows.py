"""Rows in the memory of one process, the two passes over them that every loss makes, and standard
deviations of their features, as MLlib has them: sums come first, which partitions can add up; then
sums of squares of what is left of the means, so that nothing cancels.

The pairs of rows of a group of which one has the higher label.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from distvec.losses.matrix_products import (
    ColumnOrderCopy,
    choose_order,
    dense_pays,
    dense_times,
    dense_transposed_times,
    rows_of,
    transposed_by_rows,
)

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

PAIRS_AT_ONCE = 1 << 14
"""So many pairs go through a function of pairs, or those of one row: temporaries stay in cache."""


class PairBlock(NamedTuple):
    """Some pairs: all of ``higher``, row by row, with a range of rows each. Places are those of
    rows in the order of the groups' labels."""

    higher: slice
    """Which of the rows that are the higher one of some pair."""
    counts: Places
    """How many pairs each of these has."""
    starts: Places
    """Where the pairs of each begin."""
    lower: Places
    """The lower row of each pair."""


class Pairs(NamedTuple):
    """All pairs of a number of rows: groups lie together, in each the highest label comes first."""

    order: Places
    """The row at each place."""
    higher: Places
    """Places of the rows that are the higher one of some pair."""
    firsts: Places
    """For each of these, where the lower ones begin; they go to the end of the group."""
    counts: Places
    """For each of these, how many lower ones there are."""
    roots: Floats | None
    """The square root of each weight, in this order; None: all 1."""
    weight: float
    """The sum over pairs of the products of these roots."""

    def blocks(self) -> Iterator[PairBlock]:
        """All pairs, some at a time."""
        ends = np.cumsum(self.counts)
        start = done = 0
        while start < ends.size:
            enough = int(np.searchsorted(ends, done + PAIRS_AT_ONCE, side="right"))
            part = slice(start, max(start + 1, enough))
            counts = self.counts[part]
            starts = ends[part] - counts - done
            lower = np.repeat(self.firsts[part] - starts, counts)
            lower += np.arange(lower.size)
            yield PairBlock(part, counts, starts, lower)
            start, done = part.stop, int(ends[part.stop - 1])

    def differences(self, numbers: Floats, block: PairBlock) -> Floats:
        """Of each pair, that of the higher row minus that of the lower."""
        return np.repeat(numbers[self.higher[block.higher]], block.counts) - numbers[block.lower]

    def weights(self, block: PairBlock) -> Floats | None:
        """Of each pair; None: all 1."""
        if self.roots is None:
            return None
        roots = np.repeat(self.roots[self.higher[block.higher]], block.counts)
        roots *= self.roots[block.lower]
        return roots

    def add(self, numbers: Floats, block: PairBlock, sums: Floats) -> None:
        """Add a number of each pair to the higher row in ``sums``, and take it from the lower."""
        sums[self.higher[block.higher]] += np.add.reduceat(numbers, block.starts)
        low = int(block.lower.min())
        taken = np.bincount(block.lower - low, numbers)
        sums[low : low + taken.size] -= taken


def pairs_of(labels: Floats, groups: npt.NDArray[np.int64], weights: Floats | None) -> Pairs:
    """All pairs; sorts. ValueError unless the rows of each group lie together."""
    begins = np.flatnonzero(np.diff(groups, prepend=groups[:1] - 1))
    if np.unique(groups[begins]).size < begins.size:
        raise ValueError("the rows of a group must lie together; sort them by the group")
    sizes = np.diff(begins, append=labels.size)
    number = np.repeat(np.arange(begins.size), sizes)
    order = np.lexsort((-labels, number))
    sorted_labels, ends = labels[order], np.repeat(begins + sizes, sizes)
    new = np.ones(labels.size, bool)
    new[1:] = (np.diff(number) != 0) | (np.diff(sorted_labels) != 0.0)
    starts = np.append(np.flatnonzero(new), labels.size)
    firsts = np.repeat(starts[1:], np.diff(starts))
    higher = np.flatnonzero(firsts < ends)
    counts = (ends - firsts)[higher]
    found = Pairs(order, higher, firsts[higher], counts, None, float(counts.sum()))
    if weights is None:
        return found
    found = found._replace(roots=np.sqrt(weights[order]))
    weight = math.fsum(
        0.0 if some is None else some.sum() for some in map(found.weights, found.blocks())
    )
    return found._replace(weight=weight)


Ints: TypeAlias = npt.NDArray[np.int64]
Matrix: TypeAlias = "sp.csr_array | npt.NDArray[Any]"

BLOCK_ROWS = 8192
"""So many rows at a time go through a function of rows: its temporaries stay in the cache."""


@dataclass(frozen=True)
class Rows:
    """Hold rows of features, with labels and optional columns of one number for each row.

    Parameters
    ----------
    matrix : SciPy CSR array or array, (rows, columns)
        The features, float64 or float32. Dense ones are C-contiguous.
    labels : array of float64, (rows,)
        The labels.
    weights : array of float64, (rows,), optional
        The row weights. By default all are 1.
    offsets : array of float64, (rows,), optional
        Numbers that are added to the margins.
    groups : array of int64, (rows,), optional
        The group of each row, for rankings. Rows of a group lie together.
    events : array of float64, (rows,), optional
        For survival times: 1 if the event was observed, 0 if the row was censored.
    by_columns : ColumnOrderCopy, optional
        A second copy of the matrix, made by ``for_many_products``.
    layout : str, default ""
        The order in which products take the elements, and the reason. Empty if it was not chosen.

    Notes
    -----
    ``Objective`` converts lists, other dtypes and other orders of rows. The methods of losses
    expect the types above.

    Examples
    --------
    >>> from distvec.losses import Rows
    >>> rows = Rows(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([1.0, 0.0]))
    >>> len(rows), rows.columns, rows.margins(np.array([1.0, 10.0]), intercept=False)
    (2, 2, array([21., 10.]))
    """

    matrix: Matrix
    labels: Floats
    weights: Floats | None = None
    offsets: Floats | None = None
    groups: Ints | None = None
    events: Floats | None = None
    by_columns: ColumnOrderCopy | None = None  # ignored if it is a copy of another matrix
    layout: str = ""

    def __len__(self) -> int:
        return self.labels.size

    def __getitem__(self, part: slice) -> Rows:
        """Contiguous rows, over the same columns; nothing is copied but CSR's ``indptr``."""
        return self._with(_rows_of(self.matrix, part), part)

    def take(self, places: Ints) -> Rows:
        """Return a copy of the rows at some places.

        Parameters
        ----------
        places : array of int64
            The numbers of the rows, in the order of the result.

        Returns
        -------
        Rows
            The copy.
        """
        return self._with(self.matrix[places], places)

    def _with(self, matrix: Matrix, part: slice | Ints) -> Rows:
        return replace(
            self,
            matrix=matrix,
            labels=self.labels[part],
            weights=None if self.weights is None else self.weights[part],
            offsets=None if self.offsets is None else self.offsets[part],
            groups=None if self.groups is None else self.groups[part],
            events=None if self.events is None else self.events[part],
            by_columns=None,
            layout="",
        )

    @property
    def columns(self) -> int:
        """Number of columns of the matrix."""
        return int(self.matrix.shape[1])

    @cached_property
    def with_ones(self) -> Matrix:
        """The matrix with a column of ones behind the others. A copy, which is kept."""
        ones = np.ones((len(self), 1), self.matrix.dtype)
        if isinstance(self.matrix, np.ndarray):
            return np.hstack([self.matrix, ones])
        return sp.csr_array(sp.hstack([self.matrix, sp.csr_array(ones)]))

    @cached_property
    def pairs(self) -> Pairs:
        """Those of the rows of a group that have different labels; kept. ValueError."""
        if self.groups is None:
            raise ValueError("rows are compared within groups; give Rows(X, y, groups=...)")
        return pairs_of(self.labels, self.groups, self.weights)

    def spread(self, places: Ints, columns: int) -> Rows:
        """The same sparse rows among so many columns: column ``k`` becomes ``places[k]``, sorted.

        Only the numbers of columns are copied. Products have the same bits.
        """
        old: Any = self.matrix
        numbers = places.astype(old.indices.dtype)
        arrays = (old.data, numbers[old.indices], old.indptr)
        matrix = sp.csr_array(arrays, shape=(len(self), columns), copy=False)
        copy = self._elements()
        if copy is not None:
            copy = replace(copy, matrix=matrix, columns=numbers[copy.columns])
        return replace(self, matrix=matrix, by_columns=copy)

    def for_many_products(self) -> Rows:
        """Add a copy of the matrix by columns, if products are faster with it.

        Returns
        -------
        Rows
            These rows, with ``by_columns`` and ``layout``.

        Notes
        -----
        Both orders are timed, for some tenths of a second at most. Results are bitwise
        identical. The copy takes 16 bytes for each element, 12 in float32.
        """
        if isinstance(self.matrix, np.ndarray):
            return replace(self, layout="dense rows")
        copy, reason = choose_order(self.matrix)
        return replace(self, by_columns=copy, layout=reason)

    @property
    def weight_sum(self) -> float:
        """Sum of the row weights; the number of rows if there are no weights."""
        return float(len(self) if self.weights is None else self.weights.sum())

    def margins(self, coefficients: npt.NDArray[Any], *, intercept: bool) -> Floats:
        """Return ``X w``, plus the intercept and the offsets.

        Parameters
        ----------
        coefficients : array, (columns [+ 1],) or (columns [+ 1], k)
            The coefficients. With an intercept, the last row is the intercept.
        intercept : bool
            Whether there is an intercept.

        Returns
        -------
        array of float64, (rows,) or (rows, k)
            The margins. Products are computed in the dtype of the matrix.
        """
        local = coefficients.astype(self.matrix.dtype, copy=False)
        found = self._times(local[:-1] if intercept else local)
        margins = np.asarray(found, dtype=np.float64)
        if intercept:
            margins += local[-1]
        if self.offsets is not None:
            margins += self.offsets if margins.ndim == 1 else self.offsets[:, None]
        return margins

    def gradient(self, slopes: Floats, *, intercept: bool) -> npt.NDArray[Any]:
        """Return ``X^T s``, followed by the sum of ``s`` if there is an intercept.

        Parameters
        ----------
        slopes : array of float64, (rows,) or (rows, k)
            The derivatives of a loss by the margins.
        intercept : bool
            Whether there is an intercept.

        Returns
        -------
        array, (columns [+ 1],) or (columns [+ 1], k)
            The gradient by the coefficients, in the dtype of the matrix.
        """
        dtype = self.matrix.dtype
        features = self._transposed_times(slopes.astype(dtype, copy=False))
        if not intercept:
            return features
        gradient = np.empty((self.columns + 1, *slopes.shape[1:]), dtype)
        gradient[:-1], gradient[-1] = features, slopes.sum(axis=0)
        return gradient

    def _times(self, vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """``X v`` of one or more vectors."""
        if (elements := self._elements()) is not None:
            return elements.times(vectors)
        if dense_pays(self.matrix, vectors):
            return dense_times(self.matrix, vectors)
        return np.asarray(self.matrix @ vectors)

    def _transposed_times(self, vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """``X^T v``."""
        if (elements := self._elements()) is not None:
            return elements.transposed_times(vectors)
        if dense_pays(self.matrix, vectors):
            return dense_transposed_times(self.matrix, vectors)
        if isinstance(self.matrix, np.ndarray):
            return np.asarray(self.matrix.T @ vectors)
        return transposed_by_rows(self.matrix, vectors)

    def _elements(self) -> ColumnOrderCopy | None:
        found = self.by_columns
        return found if found and found.matrix is self.matrix else None


def blocks(count: int) -> Iterator[slice]:
    """``range(count)`` in slices of ``BLOCK_ROWS``."""
    for start in range(0, count, BLOCK_ROWS):
        yield slice(start, min(start + BLOCK_ROWS, count))


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A view that cannot be written to."""
    view = array[:]
    view.flags.writeable = False
    return view


def _rows_of(matrix: Matrix, part: slice) -> Matrix:
    return matrix[part] if isinstance(matrix, np.ndarray) else rows_of(matrix, part)


_ROWS = 4096
"""So many dense rows at a time: what is made of them stays small."""

_ROUNDING = 1e-6
"""Where so little of the squares is left without the mean's own error, the rest is rounding: of a
column that is the same in all rows, about the number of rows times 1e-16 is."""


def standard_deviations(rows: Rows) -> Floats:
    """Of each column, ``(columns,)``, over rows that are all there are. Two passes."""
    weights = _weights(rows)
    total = float(weights.sum())
    means = column_sums(rows) / total
    squares = float(weights @ weights)
    found: Floats = feature_stddev(*column_squares(rows, means), total, squares)
    return found


def column_sums(rows: Rows) -> Floats:
    """``sum c x``, ``(columns,)``."""
    return np.asarray(rows.matrix.T @ _weights(rows), np.float64)


def column_squares(rows: Rows, means: Floats) -> tuple[Floats, Floats]:
    """``sum c (x - mean)`` and ``sum c (x - mean)^2``, ``(columns,)`` each."""
    weights = _weights(rows)
    if isinstance(rows.matrix, np.ndarray):
        first, second = np.zeros(rows.columns), np.zeros(rows.columns)
        for start in range(0, len(rows), _ROWS):
            part = slice(start, start + _ROWS)
            far = rows.matrix[part] - means
            first += weights[part] @ far
            second += weights[part] @ np.square(far, out=far)
        return first, second
    matrix, columns = rows.matrix, rows.columns
    each = np.repeat(weights, np.diff(matrix.indptr))
    far = matrix.data - means[matrix.indices]
    zeros = weights.sum() - np.bincount(matrix.indices, each, columns)
    zeros[np.bincount(matrix.indices, minlength=columns) == len(rows)] = 0.0  # not of rounding
    each *= far
    first = np.bincount(matrix.indices, each, columns) - zeros * means
    each *= far
    return first, np.bincount(matrix.indices, each, columns) + zeros * np.square(means)


def feature_stddev(first: Any, second: Any, weights: float, squares: float) -> Any:
    """``sum c (x - mean)^2 / (sum c - sum c^2 / sum c)``, rooted, of the sums over all rows;
    ``squares`` are those of the weights.

    With weights of 1 that is the unbiased variance. 0 for a column that is the same in all rows,
    and where there is one row only. Arrays of any library that NumPy's functions take.
    """
    freedom = weights - squares / weights
    spread = second - np.square(first) / weights  # the mean was rounded
    if freedom <= 0.0:
        return 0.0 * spread
    return np.where(spread > _ROUNDING * second, np.sqrt(np.abs(spread / freedom)), 0.0)


def _weights(rows: Rows) -> Floats:
    return np.ones(len(rows)) if rows.weights is None else rows.weights
