"""The elements of a wide sparse matrix in the order of its columns, and which order products take.

Over rows, a product reads or writes the vector of columns here and there; where that is larger than
the cache, the processor waits. Over columns it does so with the vector of rows, which is cut to the
cache's size. Which is faster depends on the rows and on the machine, so both are timed on the rows
themselves. That changes no bit: a margin is added up in the order of the columns, an element of a
gradient in that of the rows of a block, and blocks are added in their order, either way.

Measured by two processes at once, each with 50,000 rows x 50 non-zeros over 918,000 columns, both
products: 12.2 ms over rows, 9.0 ms over columns; in machine code of our own over rows 17.7 ms, with
the columns cut into strips of 2**16 15.8 ms, over columns with rows of two bytes 8.1 ms. With 76
non-zeros as in texts, over 131,000 columns: 9.6 ms over rows, 11.2 ms over columns, 11.9 ms in
strips.

A CSR matrix takes 12 bytes an element (8 in float32; indices are int32 unless there are 2**31
elements), the copy 16 (12) more. It is made only where it takes no more than a core's share of a
quarter of the machine's memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

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
class ByColumns:
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

    copy: ByColumns | None
    """None: that of the rows."""
    reason: str
    """In a sentence, with what was measured."""


class Seconds(NamedTuple):
    """Of both products, in either order."""

    rows: float
    columns: float


def by_columns(matrix: sp.csr_array) -> ByColumns:
    """A copy of a matrix, in that order."""
    count, columns = matrix.shape
    blocks = max(1, -(-count // BLOCK_ROWS))
    parts = [
        matrix[low : low + BLOCK_ROWS].tocsc() for low in range(0, blocks * BLOCK_ROWS, BLOCK_ROWS)
    ]
    numbers = np.arange(columns, dtype=matrix.indices.dtype)
    return ByColumns(
        matrix,
        np.concatenate([part.data for part in parts]),
        np.concatenate([part.indices for part in parts]),
        np.concatenate([np.repeat(numbers, np.diff(part.indptr)) for part in parts]),
        np.cumsum([0, *(part.nnz for part in parts)]),
    )


def timed(copy: ByColumns) -> Seconds:
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


def chosen(
    matrix: sp.csr_array,
    *,
    measure: Callable[[ByColumns], Seconds] = timed,
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
    copy = by_columns(matrix if first == count else matrix[:first])
    rows, cols = measure(copy)
    said = f"{1e3 * rows:.1f} ms by rows, {1e3 * cols:.1f} by columns, for {first:,} rows"
    if cols > _WORTH * rows:
        return Choice(None, f"by rows: {said}")
    return Choice(copy if first == count else by_columns(matrix), f"by columns: {said}")


def transposed_by_rows(matrix: sp.csr_array, vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``X^T v`` over rows, with the bits of ``ByColumns``."""
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
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(total // (4 * (os.cpu_count() or 1)))
