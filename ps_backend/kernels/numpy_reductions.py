"""The accumulators of the NumPy engine over the chunks of a run of blocks.

NumPy reduces all blocks of a chunk at once where it holds whole ones. Else each chunk is reduced,
the chunks of a block are joined in their order, and so the partial result of a block follows from
the block alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.collectives import counting
from ps_backend.kernels.numpy_instructions import Listed
from ps_backend.program import householder
from ps_backend.program.partials import Arrays, accumulators
from ps_backend.program.reducers import REDUCERS, Partial, Reducer
from ps_backend.program.summation_order import OfBlock, OfRows, Tree, levels
from ps_backend.program.sweep import Reduction, Sweep

Array = npt.NDArray[Any]

Of = Callable[..., Partial]
"""What a chunk reduces to, from the index of its first slot and its values."""
OfBlocks = Callable[..., Array]
"""What each of several blocks reduces to, from values of shape ``(blocks, size, *row)``."""


class Fold(Protocol):
    """What one thread accumulates of one reduction over the blocks that it walks."""

    def add(self, first: int, *values: Any) -> None:
        """The next chunk, which begins at slot ``first``; values of shape ``(length, *row)``."""

    def end_block(self) -> None:
        """The chunk before was the last one of its block."""


class _Joining:
    """Joins the chunks of a block."""

    def __init__(self, reduce: Of, reducer: Reducer) -> None:
        self._reduce, self._join = reduce, reducer.joined
        self._block: Partial | None = None

    def add(self, first: int, *values: Any) -> None:
        """See ``Fold``."""
        part = self._reduce(first, *values)
        self._block = part if self._block is None else self._join(self._block, part)

    def end_block(self) -> None:
        """See ``Fold``."""
        if self._block is not None:
            self._keep(self._block)
        self._block = None

    def _keep(self, block: Partial) -> None:
        raise NotImplementedError


class PerBlock(_Joining):
    """One partial result for each block."""

    def __init__(self, reduce: Of, reducer: Reducer, block: int, arrays: Arrays) -> None:
        """``arrays``: of the partial results of the job, ``block``: the first one here."""
        super().__init__(reduce, reducer)
        self._number, self._arrays = block, arrays

    def _keep(self, block: Partial) -> None:
        for array, value in zip(self._arrays, block, strict=True):
            array[self._number] = value
        self._number += 1


class InOrder:
    """One sum or product of floats for each block, in the order of ``program.summation_order``."""

    def __init__(self, of_rows: OfRows, reducer: Reducer, block: int, arrays: Arrays) -> None:
        """``arrays``: of the partial results of the job, ``block``: the first one here."""
        self._block = OfBlock(of_rows, reducer.numpy)
        self._number, (self._array,) = block, arrays

    def add(self, first: int, *values: Any) -> None:
        """See ``Fold``."""
        self._block.add(values[0].reshape(-1).astype(np.float64, copy=False))

    def end_block(self) -> None:
        """See ``Fold``."""
        self._array[self._number] = self._block.end()
        self._number += 1


class InTree(_Joining):
    """The nodes of the tree over the blocks."""

    def __init__(
        self, reduce: Of, of_blocks: OfBlocks | None, reducer: Reducer, block: int
    ) -> None:
        """``block``: the number of the first one in the space."""
        super().__init__(reduce, reducer)
        self.tree: Tree[Partial] = Tree(reducer.joined, block)
        self._of_blocks, self._next = of_blocks, block

    def _keep(self, block: Partial) -> None:
        self.tree.append(block)
        self._next += 1

    def add_blocks(self, size: int, *values: Any) -> int:
        """Take the whole blocks of ``size`` slots at once, if they can be; how many slots."""
        count = len(values[0]) // size
        if self._of_blocks is None or not count:
            return 0
        blocks = [one[: count * size].reshape(count, size, *one.shape[1:]) for one in values]
        nodes, low = self._of_blocks(*blocks), 0
        for level in levels(self._next, self._next + count):
            some = nodes[low : low + (1 << level)]
            low += 1 << level
            while len(some) > 1:
                (some,) = self._join((some[::2],), (some[1::2],))
            self.tree.append((some[0],), level)
        self._next += count
        return count * size


class Counts:
    """How often each number is there, or how many values are between two edges."""

    def __init__(self, bins: int, edges: Array | None, *, compiled: bool) -> None:
        self.total = np.zeros(bins, np.int64)
        self._edges, self._compiled = edges, compiled

    def add(self, first: int, *values: Any) -> None:
        """See ``Fold``; a chunk may have several blocks."""
        numbers = np.ascontiguousarray(values[0])
        if self._edges is not None:
            numbers = counting.bin_numbers(numbers, self._edges, compiled=self._compiled)
        counting.count(numbers, self.total, compiled=self._compiled)

    def end_block(self) -> None:
        """Blocks do not matter."""


class WeightsOfNumbers:
    """The nodes of the tree over the blocks: sums of the weights of each number, or bin."""

    def __init__(
        self, bins: int, edges: Array | None, block: int, block_size: int, *, compiled: bool
    ) -> None:
        """``block``: the number of the first one in the space."""
        self.tree: Tree[Partial] = Tree(_add_to, block)
        self._weights = counting.Weights(bins, block_size, compiled=compiled)
        self._edges, self._compiled = edges, compiled
        self._bins, self._size, self._next = bins, block_size, block
        self._block: Array | None = None

    def add(self, first: int, *values: Any) -> None:
        """See ``Fold``; a chunk may have several blocks, whole ones but for the last."""
        numbers = np.ascontiguousarray(values[0], np.int64 if self._edges is None else None)
        if self._edges is not None:
            numbers = counting.bin_numbers(numbers, self._edges, compiled=self._compiled)
        weights = np.ascontiguousarray(values[1])
        if len(numbers) <= self._size:
            if self._block is None:
                self._block = np.zeros(self._bins)
            self._weights.add(numbers, weights, self._block)
            return
        low, blocks = 0, -(-len(numbers) // self._size)
        for level in levels(self._next, self._next + blocks):
            part = slice(low, low + (self._size << level))
            self.tree.append((self._weights.node(numbers[part], weights[part], level),), level)
            low = part.stop
        self._next += blocks

    def end_block(self) -> None:
        """See ``Fold``."""
        if self._block is not None:
            self.tree.append((self._block,))
            self._block, self._next = None, self._next + 1


def _add_to(left: Partial, right: Partial) -> Partial:
    left[0].__iadd__(right[0])
    return left


class AllRows:
    """The values of all slots."""

    def __init__(self, array: npt.NDArray[Any], offset: int) -> None:
        """``array``: of the job, which begins at slot ``offset``."""
        self._array, self._offset = array, offset

    def add(self, first: int, *values: Any) -> None:
        """See ``Fold``."""
        low = first - self._offset
        self._array[low : low + len(values[0])] = values[0]

    def end_block(self) -> None:
        """Blocks do not matter."""


class ListedRows:
    """The values at slots of a list."""

    def __init__(self, array: npt.NDArray[Any], listed: Listed) -> None:
        """``array``: of the job."""
        self._array, self._listed = array, listed

    def add(self, first: int, *values: Any) -> None:
        """See ``Fold``."""
        self._listed.copy(self._array, first, values[0])

    def end_block(self) -> None:
        """Blocks do not matter."""


def reduction_of(sweep: Sweep, reduction: Reduction) -> Of:
    """How a chunk is reduced, if its values are not just copied."""
    reducer = REDUCERS[reduction.op]
    if reduction.op == "triangle":
        return _triangle
    if reducer.layout and reduction.op != "gram":
        return _copy
    if reduction.op == "gram":
        return _gram(_factors(sweep, reduction))
    wide = accumulators(sweep, reduction)[0]
    if reduction.axis == 0:
        return _locate_below(reducer, wide) if reducer.locates else _below(reducer)
    return _locate(reducer, wide) if reducer.locates else _all(reducer, wide)


def block_reduction_of(sweep: Sweep, reduction: Reduction) -> OfBlocks | None:
    """How whole blocks are reduced at once, each as if it was alone; None if one by one."""
    reducer = REDUCERS[reduction.op]
    if reduction.op == "gram":
        factors = _factors(sweep, reduction)
        return lambda left, right: _products_of_blocks(*factors(left, right))
    is_below = reduction.axis == 0 and not reducer.locates and not reducer.layout
    return reducer.below if is_below else None


def _copy(first: int, *values: Any) -> Partial:
    return values


def _all(reducer: Reducer, wide: np.dtype[Any]) -> Of:
    reduce = reducer.numpy.reduce  # type: ignore[attr-defined]

    def of(first: int, values: Any) -> Partial:
        flat = values.reshape(-1)
        if reducer.picks and flat.dtype.kind == "f":
            return (reduce(flat) + 0.0,)  # see ``Reducer.over_rows``
        if not (reducer.picks or reducer.truth):
            flat = flat.astype(wide, copy=False)
        return (reduce(flat),)

    return of


def _locate(reducer: Reducer, wide: np.dtype[Any]) -> Of:
    def of(first: int, values: Any) -> Partial:
        flat = values.reshape(-1)
        place = reducer.numpy(flat)
        return wide.type(flat[place]), np.int64(first * (flat.size // len(values)) + place)

    return of


def _below(reducer: Reducer) -> Of:
    def of(first: int, values: Any) -> Partial:
        return (reducer.below(values),)

    return of


def _locate_below(reducer: Reducer, wide: np.dtype[Any]) -> Of:
    def of(first: int, values: Any) -> Partial:
        place = reducer.numpy(values, axis=0)
        found = np.take_along_axis(values, place[None], axis=0)[0]
        return found.astype(wide), place.astype(np.int64) + first

    return of


Factors = Callable[[Any, Any], tuple[Any, Any, np.dtype[Any]]]
"""The factors of a product in the dtype that BLAS computes in, and the dtype of the result."""


def _factors(sweep: Sweep, reduction: Reduction) -> Factors:
    wide = accumulators(sweep, reduction)[0]
    is_square = reduction.args[0] == reduction.args[1]

    def of(left: Any, right: Any) -> tuple[Any, Any, np.dtype[Any]]:
        # BLAS has floats alone; sums over a chunk of products of short integers are exact in them.
        is_short = max(left.dtype.itemsize, right.dtype.itemsize) <= _SHORT
        work = np.dtype(np.float64) if is_short else wide
        a = left.astype(work, copy=False)
        return a, a if is_square else right.astype(work, copy=False), wide

    return of


def _gram(factors: Factors) -> Of:
    def of(first: int, left: Any, right: Any) -> Partial:
        a, b, wide = factors(left, right)
        return (np.matmul(a.T, b).astype(wide, copy=False),)

    return of


def _products_of_blocks(a: Any, b: Any, wide: np.dtype[Any]) -> Array:
    """Of shape ``(blocks, size, *row)`` each; the rows may be numbers."""
    left, right = (one if one.ndim > 2 else one[..., None] for one in (a, b))
    found = np.matmul(left.swapaxes(1, 2), right).astype(wide, copy=False)
    shaped: Array = found.reshape(len(a), *a.shape[2:], *b.shape[2:])
    return shaped


def _triangle(first: int, rows: Any, _: Any) -> Partial:
    return (householder.padded(householder.triangle(rows)),)


_SHORT = 2
"""Bytes of integers of which a product has 32 bits at most."""


def total_counts(folds: Sequence[Fold]) -> Array:
    """What walks have counted."""
    found: Array = np.add.reduce([fold.total for fold in folds if isinstance(fold, Counts)])
    return found


def joined_tree(folds: Sequence[Fold]) -> Tree[Partial]:
    """The nodes of consecutive walks."""
    first, *others = [fold.tree for fold in folds if isinstance(fold, InTree | WeightsOfNumbers)]
    for tree in others:
        for level, node in tree.nodes:
            first.append(node, level)
    return first


# --- whole blocks ---------------------------------------------------------------------------------


def reduce_blocks(
    reduction: Reduction, values: Array, index: int, block_size: int
) -> tuple[Array, ...]:
    """Partial results of the blocks of one chunk, the last of which may be short."""
    reducer = REDUCERS[reduction.op]
    values = _accumulator(reducer, values)
    whole = len(values) // block_size * block_size
    parts = []
    if whole:
        parts.append(_reduce_rows(reducer, values[:whole].reshape(-1, block_size), index))
    if whole < len(values):
        parts.append(_reduce_rows(reducer, values[whole:][None, :], index + whole))
    if len(parts) == 1:
        return parts[0]
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))


def _accumulator(reducer: Reducer, values: Array) -> Array:
    if reducer.truth:
        return values if values.dtype == np.bool_ else np.not_equal(values, 0)
    if _counts(reducer, values):
        return values
    wide: Array = values.astype(reducer.wide(values.dtype), copy=False)
    return wide


def _counts(reducer: Reducer, values: Array) -> bool:
    """Whether it is a sum of masks, whose elements stay single bytes."""
    return reducer.name == "sum" and values.dtype == np.bool_


def _reduce_rows(reducer: Reducer, rows: Array, index: int) -> tuple[Array, ...]:
    if _counts(reducer, rows):
        return (np.array([np.count_nonzero(row) for row in rows], np.int64),)
    in_order = reducer.in_order if rows.dtype == np.float64 else None
    reduced = (in_order or reducer.over_rows)(rows)
    if not reducer.locates:
        return (reduced,)
    number = np.arange(len(rows))
    return rows[number, reduced], (index + number * rows.shape[1] + reduced).astype(np.int64)
