"""The order in which floats are added up and multiplied: every reduction of a block keeps to it.

Rounding makes a sum depend on its order. This one is the same in every engine, for every number of
servers and threads, and on every processor, however wide its vectors are; and a block whose length
is a power of two has the bits that ``numpy.add.reduce`` gives it.

*Sums.* A block is cut into leaves of ``LEAF`` elements, the last of which may be shorter. In a
leaf element ``i`` goes to lane ``i % LANES``, one after the other; the lanes are joined as
``((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))``, and elements that fill no whole row of lanes are
added at the end. *Products* have leaves of ``CHUNK`` elements in rows of ``WIDE`` lanes, which are
joined by halves: lane ``i`` with lane ``i + 32``, then with ``i + 16``, and so on. In both, leaves
are joined in the binary tree of ``Tree``: neighbours first, and what has no neighbour goes one
level up as it is.

Partial results of blocks are combined in the same fixed tree. Node ``(0, i)`` is that of block
``i``, node ``(level, i)`` is node ``(level - 1, 2 * i)`` joined with node ``(level - 1, 2 * i +
1)``. A run of blocks is left with the largest nodes that it has all blocks of, at most twice the
logarithm of their number; these are few enough to travel, and whichever process joins them rounds
as one that had all blocks would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

Value = TypeVar("Value")


def levels(first: int, last: int) -> Iterator[int]:
    """The levels of the nodes that blocks ``first .. last-1`` are left with, in their order."""
    while first < last:
        level = (last - first).bit_length() - 1
        if first:
            level = min(level, (first & -first).bit_length() - 1)
        yield level
        first += 1 << level


class Tree(Generic[Value]):
    """The nodes of a run of blocks that begins at block ``first`` and grows at its end."""

    def __init__(self, join: Callable[[Value, Value], Value], first: int) -> None:
        """``join``: two neighbours as one, the left one first."""
        self._join, self._next = join, first
        self.nodes: list[tuple[int, Value]] = []
        """With their levels, in the order of the blocks."""

    def append(self, value: Value, level: int = 0) -> None:
        """The next node: of one block, or of the ``2 ** level`` that come next."""
        self._next += 1 << level
        # A right child ends where its parent ends.
        while self.nodes and self.nodes[-1][0] == level and not self._next % (2 << level):
            value = self._join(self.nodes.pop()[1], value)
            level += 1
        self.nodes.append((level, value))


def join_all(join: Callable[[Value, Value], Value], nodes: Sequence[Value]) -> Value:
    """What all blocks are left with, as one: joined from the right to the left."""
    result = nodes[-1]
    for node in reversed(nodes[:-1]):
        result = join(node, result)
    return result


LEAF = 128
LANES = 8
CHUNK = 512
"""Elements that compiled loops reduce at once: four leaves of a sum, one of a product."""
WIDE = 64

Floats = npt.NDArray[np.float64]
OfRows = Callable[[npt.NDArray[Any]], Floats]
"""Each row of a matrix reduced."""


_PADDED = 4096
"""Rows of so many elements take less time where they are longer, but are summed by one call."""


def rows_for_sums(count: int, length: int) -> Floats:
    """A matrix for ``sums``: its first ``length`` columns are to be filled.

    It may have further ones, of negative zeros: these change no sum, not even the sign of zero, and
    a whole number of leaves that is a power of two is summed by NumPy in our order.
    """
    if length > _PADDED or length % LANES:
        return np.empty((count, length))
    leaves = -(-length // LEAF)
    rows = np.empty((count, LEAF << (leaves - 1).bit_length()))
    rows[:, length:] = -0.0
    return rows


def sums(rows: Floats) -> Floats:
    """The sum of each row of a matrix of shape ``(k, m)``, in the order above."""
    rows = np.ascontiguousarray(rows)
    whole, parts, low = rows.shape[1] // LEAF, [], 0
    if whole & (whole - 1) == 0 and whole * LEAF == rows.shape[1]:
        total: Floats = np.add.reduce(rows, axis=1)
        return total
    if len(rows) == 1:
        return np.array([_sum_of(rows[0])])
    for level in reversed(range(whole.bit_length())):
        if whole >> level & 1:  # for so many leaves NumPy's own order is this one
            high = low + (LEAF << level)
            parts.append(np.add.reduce(rows[:, low:high], axis=1))
            low = high
    if low < rows.shape[1] or not parts:
        parts.append(np.add.reduce(rows[:, low:], axis=1))
    total = parts.pop()
    while parts:
        total = parts.pop() + total
    return total


def _sum_of(row: Floats) -> Any:
    """The same of one row, which takes half as long where that is short."""
    whole, parts, low = len(row) // LEAF, [], 0
    for level in reversed(range(whole.bit_length())):
        if whole >> level & 1:
            high = low + (LEAF << level)
            parts.append(np.add.reduce(row[low:high]))
            low = high
    if low < len(row) or not parts:
        parts.append(np.add.reduce(row[low:]))
    total = parts.pop()
    while parts:
        total = parts.pop() + total
    return total


def products(rows: Floats) -> Floats:
    """The product of each row of a matrix of shape ``(k, m)``, in the order above."""
    short = -rows.shape[1] % CHUNK
    if short or not rows.size:
        rows = np.pad(rows, ((0, 0), (0, short or CHUNK)), constant_values=1.0)
    leaves = np.multiply.reduce(rows.reshape(len(rows), -1, CHUNK // WIDE, WIDE), axis=2)
    lanes = WIDE
    while lanes > 1:
        lanes //= 2
        leaves = leaves[..., :lanes] * leaves[..., lanes:]
    return _by_neighbours(leaves[..., 0])


def _by_neighbours(leaves: Floats) -> Floats:
    """The columns of a matrix multiplied in the binary tree."""
    while (count := leaves.shape[1]) > 1:
        pairs = leaves[:, 0 : count - 1 : 2] * leaves[:, 1::2]
        leaves = np.concatenate([pairs, leaves[:, -1:]], axis=1) if count % 2 else pairs
    return leaves[:, 0]


class OfBlock:
    """One block reduced as its elements come, in pieces of any length."""

    def __init__(self, of_rows: OfRows, join: Callable[..., Any]) -> None:
        """``of_rows`` reduces rows in the order above, ``join`` joins two results."""
        self._of_rows, self._join = of_rows, join
        self._clear()

    def _clear(self) -> None:
        self._tree: Tree[Any] = Tree(self._join, 0)
        self._chunks = 0
        self._rest = np.empty(0)

    def add(self, values: Floats) -> None:
        """The next elements."""
        if len(self._rest):
            values = np.concatenate([self._rest, values])
        low, left = 0, len(values) // CHUNK
        while left:
            level = left.bit_length() - 1
            if self._chunks:  # a node begins at a multiple of its size
                level = min(level, (self._chunks & -self._chunks).bit_length() - 1)
            high = low + (CHUNK << level)
            self._tree.append(self._of_rows(values[None, low:high])[0], level)
            self._chunks += 1 << level
            low, left = high, left - (1 << level)
        self._rest = values[low:].copy()

    def end(self) -> Any:
        """The result; the next element begins another block."""
        parts = [node for _, node in self._tree.nodes]
        if len(self._rest) or not parts:
            parts.append(self._of_rows(self._rest[None, :])[0])
        self._clear()
        return join_all(self._join, parts)
