"""Products of rows with vectors, in the quicker of several ways: wide sparse matrices also in the
order of their columns, by a copy; dense rows of a middling length block by block, faster than BLAS.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ps_backend.machine import usable_cores, usable_memory

Block: TypeAlias = "tuple[slice, sp.coo_array]"

BLOCK_ROWS = 1 << 17
"""So many numbers of a vector, 1 MiB, stay in the cache."""

_FEW = 1 << 18
_NARROW = 1 << 15
"""Products of fewer elements take less than a millisecond, and a vector of so many columns stays in
the cache: rows are fast enough."""

_SAMPLE = 1 << 23
"""Elements that are timed, at most: some tenths of a second."""
_ROUNDS = 3
_WORTH = 0.9
"""A copy has to save a tenth of the time."""


@dataclass(frozen=True)
class ColumnOrderCopy:
    """The elements, block of rows after block; what they are and where in the block."""

    matrix: sp.csr_array
    """What they are of."""
    values: npt.NDArray[Any]
    rows: npt.NDArray[Any]
    columns: npt.NDArray[Any]
    starts: npt.NDArray[np.int64]
    """``(blocks + 1,)``: where those of a block begin."""

    def times(self, vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """``X v`` of one or more vectors, in the dtype of ``X``."""
        tail = vectors.shape[1:]
        product = np.empty((self.matrix.shape[0], *tail), self.values.dtype)
        for part, block in self._blocks:
            product[part] = block @ vectors
        return product

    def transposed_times(self, vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """``X^T v`` of one or more vectors, in the dtype of ``X``."""
        (part, first), *others = self._transposed
        product = np.asarray(first @ vectors[part])
        for part, block in others:
            product += block @ vectors[part]
        return product.reshape(-1, *vectors.shape[1:])  # of one column it is a number

    @cached_property
    def _blocks(self) -> list[Block]:
        return list(self._cut())

    @cached_property
    def _transposed(self) -> list[Block]:
        return [(part, block.T) for part, block in self._blocks]  # SciPy looks at each place again

    def _cut(self) -> Iterator[Block]:
        """The rows of each block, and its elements; nothing is copied."""
        count, width = self.matrix.shape
        for number, (low, high) in enumerate(pairwise(self.starts.tolist())):
            part = slice(number * BLOCK_ROWS, min((number + 1) * BLOCK_ROWS, count))
            places = (self.rows[low:high], self.columns[low:high])
            shape = (part.stop - part.start, width)
            yield part, sp.coo_array((self.values[low:high], places), shape=shape, copy=False)


class Choice(NamedTuple):
    """Which order products take."""

    copy: ColumnOrderCopy | None
    """None: that of the rows."""
    reason: str
    """In a sentence, with what was measured."""


class Seconds(NamedTuple):
    """Of both products, in either order."""

    rows: float
    columns: float


def column_order_copy(matrix: sp.csr_array) -> ColumnOrderCopy:
    """A copy of a matrix, in that order."""
    count, columns = matrix.shape
    blocks = max(1, -(-count // BLOCK_ROWS))
    parts = [
        matrix[low : low + BLOCK_ROWS].tocsc() for low in range(0, blocks * BLOCK_ROWS, BLOCK_ROWS)
    ]
    numbers = np.arange(columns, dtype=matrix.indices.dtype)
    return ColumnOrderCopy(
        matrix,
        np.concatenate([part.data for part in parts]),
        np.concatenate([part.indices for part in parts]),
        np.concatenate([np.repeat(numbers, np.diff(part.indptr)) for part in parts]),
        np.cumsum([0, *(part.nnz for part in parts)]),
    )


def timed(copy: ColumnOrderCopy) -> Seconds:
    """The least of some rounds, with ones."""
    matrix = copy.matrix
    columns, rows = (np.ones(length, matrix.dtype) for length in reversed(matrix.shape))

    def over_rows() -> None:
        _ = matrix @ columns
        transposed_by_rows(matrix, rows)

    def over_columns() -> None:
        copy.times(columns)
        copy.transposed_times(rows)

    rounds = [(_seconds(over_rows), _seconds(over_columns)) for _ in range(1 + _ROUNDS)]
    return Seconds(*map(min, zip(*rounds[1:], strict=True)))  # the first warms up


def _seconds(run: Callable[[], None]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def choose_order(
    matrix: sp.csr_array,
    *,
    measure: Callable[[ColumnOrderCopy], Seconds] = timed,
    memory: int | None = None,
) -> Choice:
    """The faster order, as timed on the first rows: up to 2**23 elements and one block.

    ``memory``: bytes that a copy may take; None: a core's share of a quarter of the machine's.
    """
    count, columns = matrix.shape
    if matrix.nnz < _FEW or columns < _NARROW:
        return Choice(None, "by rows: a small matrix")
    if not matrix.has_sorted_indices:
        return Choice(None, "by rows: their indices are not sorted")
    needed = matrix.nnz * (matrix.dtype.itemsize + 2 * matrix.indices.itemsize)
    if needed > (memory := _share_of_memory() if memory is None else memory):
        needs = f"{needed / 2**20:,.0f} MiB by columns too, of {memory / 2**20:,.0f}"
        return Choice(None, f"by rows: it would take {needs}")
    first = int(np.searchsorted(matrix.indptr, _SAMPLE, side="right")) - 1
    first = min(max(first, 1), count, BLOCK_ROWS)
    copy = column_order_copy(matrix if first == count else matrix[:first])
    rows, cols = measure(copy)
    said = f"{1e3 * rows:.1f} ms by rows, {1e3 * cols:.1f} by columns, for {first:,} rows"
    if cols > _WORTH * rows:
        return Choice(None, f"by rows: {said}")
    return Choice(copy if first == count else column_order_copy(matrix), f"by columns: {said}")


def transposed_by_rows(matrix: sp.csr_array, vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``X^T v`` over rows, with the bits of ``ColumnOrderCopy``."""
    product = np.asarray(rows_of(matrix, slice(0, BLOCK_ROWS)).T @ vectors[:BLOCK_ROWS])
    for low in range(BLOCK_ROWS, matrix.shape[0], BLOCK_ROWS):
        part = slice(low, low + BLOCK_ROWS)
        product += rows_of(matrix, part).T @ vectors[part]
    return product


def rows_of(matrix: sp.csr_array, part: slice) -> sp.csr_array:
    """Contiguous rows; nothing is copied but ``indptr``."""
    start, stop, _ = part.indices(matrix.shape[0])
    if (start, stop) == (0, matrix.shape[0]):
        return matrix
    ends = matrix.indptr[start : stop + 1]
    low, high = ends[0], ends[-1]
    arrays = (matrix.data[low:high], matrix.indices[low:high], ends - low)
    return sp.csr_array(arrays, shape=(stop - start, matrix.shape[1]), copy=False)


def _share_of_memory() -> int:
    return usable_memory() // (4 * usable_cores())


_Values: TypeAlias = npt.NDArray[Any]

_MIDDLING = range(16, 2049)
_FEW_VECTORS = 4
_BLOCK_ROWS = 8192


def dense_pays(matrix: object, vectors: _Values) -> TypeGuard[_Values]:
    """Whether these functions are faster than ``@``."""
    if not isinstance(matrix, np.ndarray) or matrix.shape[1] not in _MIDDLING:
        return False
    return vectors.ndim == 1 or vectors.shape[1] <= _FEW_VECTORS


def dense_times(matrix: _Values, vectors: _Values) -> _Values:
    """``X v``; ``v`` is ``(columns,)`` or ``(columns, k)``."""
    columns = _columns(vectors)
    product = np.empty((len(columns), len(matrix)), matrix.dtype)
    for part in _blocks(len(matrix)):
        for column, line in zip(columns, product, strict=True):
            np.einsum("ij,j->i", matrix[part], column, out=line[part])
    return product.T.reshape(-1, *vectors.shape[1:])


def dense_transposed_times(matrix: _Values, vectors: _Values) -> _Values:
    """``X^T v``; sums over many rows are sums of those of blocks, which loses fewer digits."""
    totals = np.zeros((math.prod(vectors.shape[1:]), matrix.shape[1]))
    for part in _blocks(len(matrix)):
        for column, total in zip(_columns(vectors[part]), totals, strict=True):
            total += np.einsum("ij,i->j", matrix[part], column)
    product = totals.T.reshape(-1, *vectors.shape[1:])
    return np.ascontiguousarray(product, matrix.dtype)


def _columns(vectors: _Values) -> _Values:
    """``(k, n)``, each contiguous; of one vector k is 1."""
    return np.atleast_2d(np.ascontiguousarray(vectors.T))


def _blocks(count: int) -> Iterator[slice]:
    for start in range(0, count, _BLOCK_ROWS):
        yield slice(start, start + _BLOCK_ROWS)
