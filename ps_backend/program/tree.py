"""The fixed binary tree in which partial results of blocks are combined.

Node ``(0, i)`` is that of block ``i``, node ``(level, i)`` is node ``(level - 1, 2 * i)`` joined
with node ``(level - 1, 2 * i + 1)``. A run of blocks is left with the largest nodes that it has all
blocks of, at most twice the logarithm of their number; these are few enough to travel, and whoever
joins them rounds as one who had all blocks would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

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


def joined(join: Callable[[Value, Value], Value], nodes: Sequence[Value]) -> Value:
    """What all blocks are left with, as one: joined from the right to the left."""
    result = nodes[-1]
    for node in reversed(nodes[:-1]):
        result = join(node, result)
    return result
