"""The QR decomposition of a tall table, by a tree over its rows.

Pieces of so many rows as fit the cache are decomposed, the triangles of two neighbours together
once more, and so on in the fixed binary tree of ``ps_backend.program.summation_order``: on each
server as far as it has all pieces. The second phase fetches the few triangles that the others are
left with, and decomposes them to the top; every server does. From there the tree is walked down
again: a node's factor, times what its parent hands down, is what it hands to its children, and of
a piece the rows of Q. No product of the table with its transpose is taken, so no digits are lost,
and a table of less than full rank is one like any other.

Source: Demmel, Grigori, Hoemmen and Langou, SIAM J. Sci. Comput. 34, 2012.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.kernel import pool, thread_count
from ps_backend.program.collectives import TSQR
from ps_backend.program.householder import Matrix, Reflections, padded, signs_of, upright
from ps_backend.program.spaces import Space
from ps_backend.program.summation_order import Tree, join_all, levels
from ps_backend.program.types import ArrayType
from ps_backend.serial_blas import serial_blas
from ps_backend.server.collectives.phase import Phase, PhaseFunction, RemoteRows

_ELEMENTS = 1 << 16
"""Of a piece: it fits the cache, with what is found of it."""
_TRIANGLES = 4
"""Triangles that a piece has rows for at least, else the tree is as much work as the pieces."""
_WORK = 1 << 26
"""Multiplications that a thread does without a pause: some 10 ms."""
_TOGETHER = 1 << 18
"""Elements of small pieces that are decomposed together: they fit the cache of a core."""
_LEAST_PIECES = 8
"""Fewer are not worth a second thread."""
_MOST_PIECES = 64
"""The same where there is more to do beside them."""

Array = npt.NDArray[Any]
Step = Callable[[], None]


class Node(NamedTuple):
    """A node of the tree, and what is left of its rows."""

    first: int
    """The number of its first piece."""
    triangle: Matrix


class TablePieces:
    """A table cut into pieces, the same on any servers, and those that one of these has."""

    def __init__(self, type: ArrayType, low: int, high: int) -> None:
        """``low``, ``high``: the slots of the server."""
        self.k = type.width
        self.length = type.space.length
        self.rows = rows_of_piece(type.space, self.k)
        self.low = low
        self.first, self.last = low // self.rows, -(-high // self.rows)

    @property
    def per_turn(self) -> int:
        """Pieces that a thread treats without a pause."""
        return max(1, min(_MOST_PIECES, _WORK // (self.rows * self.k**2)))

    @property
    def most_together(self) -> int:
        """The highest level of nodes whose pieces are decomposed together."""
        if self.rows < self.k:
            return 0
        return max(1, _TOGETHER // (self.rows * self.k)).bit_length() - 1

    def are_whole(self, first: int, level: int) -> bool:
        """Whether all pieces of a node have as many rows."""
        return (first + (1 << level)) * self.rows <= self.length

    def together(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """First piece and level of nodes that have all of ``first .. last-1``."""
        while first < last:
            level = min(next(levels(first, last)), self.most_together)
            while level and not self.are_whole(first, level):
                level -= 1
            yield first, level
            first += 1 << level

    def slots(self, first: int, count: int = 1) -> tuple[int, int]:
        """First slot, and that past the last, of so many pieces."""
        return first * self.rows, min((first + count) * self.rows, self.length)

    def height(self, first: int, count: int = 1) -> int:
        """Rows of the triangle of so many pieces."""
        low, high = self.slots(first, count)
        return min(high - low, self.k)

    def nodes(self) -> Iterator[tuple[int, int]]:
        """First piece and level of each node that the server is left with, in order."""
        first = self.first
        for level in levels(self.first, self.last):
            yield first, level
            first += 1 << level


def rows_of_piece(space: Space, k: int) -> int:
    """A power of two that divides the block."""
    wanted = max(_ELEMENTS // k, _TRIANGLES * k, 1)
    return min(1 << (wanted - 1).bit_length(), space.block_size)


class Factors:
    """The reflections of the pieces and nodes of one server, in its workspace."""

    def __init__(self, phase: Phase) -> None:
        type = phase.call.types.inputs[0]
        low, high = phase.range_of(type.space)
        self.pieces = pieces = TablePieces(type, low, high)
        workspace, count = phase.workspace, pieces.last - pieces.first
        if "pieces" not in workspace:
            of_piece = Reflections.size_of(pieces.rows, pieces.k)
            workspace.new("pieces", (count, of_piece), np.float64)
            of_join = Reflections.size_of(2 * pieces.k, pieces.k)
            workspace.new("joins", (count, of_join), np.float64)
        self._of_pieces, self._of_joins = workspace["pieces"], workspace["joins"]

    def of_piece(self, piece: int) -> Reflections:
        """Those of a piece."""
        low, high = self.pieces.slots(piece)
        return Reflections(self._of_pieces[piece - self.pieces.first], high - low, self.pieces.k)

    def of_node(self, first: int, level: int) -> tuple[Reflections, int]:
        """Those of a node of two, and the height of its first one."""
        half = 1 << (level - 1)
        heights = self.pieces.height(first, half), self.pieces.height(first + half, half)
        memory = self._of_joins[first + half - self.pieces.first]  # no other node is cut there
        return Reflections(memory, sum(heights), self.pieces.k), heights[0]

    def of_pieces(self, first: int, level: int) -> Reflections:
        """Those of all pieces of a node, which are whole."""
        low = first - self.pieces.first
        return Reflections(
            self._of_pieces[low : low + (1 << level)], self.pieces.rows, self.pieces.k
        )

    def of_nodes(self, first: int, level: int, height: int) -> Reflections:
        """Those of all nodes of level ``height`` below a node, whose pieces are whole."""
        low, k = first - self.pieces.first, self.pieces.k
        cuts = slice(low + (1 << (height - 1)), low + (1 << level), 1 << height)
        return Reflections(self._of_joins[cuts], 2 * k, k)

    def decompose(self, first: int, level: int, rows: Array) -> Node:
        """A node of whole pieces, or of one piece, from its rows."""
        if not level:
            return Node(first, self.of_piece(first).find(rows))
        k = self.pieces.k
        triangles = self.of_pieces(first, level).find(rows.reshape(1 << level, -1, k))
        for height in range(1, level + 1):
            pairs = triangles.reshape(-1, 2 * k, k)
            triangles = self.of_nodes(first, level, height).find(pairs)
        return Node(first, triangles[0])

    def join(self, left: Node, right: Node) -> Node:
        """Their parent: both have as many pieces, but for the end of the table."""
        level = (right.first - left.first).bit_length()
        rows = np.concatenate([left.triangle, right.triangle])
        return Node(left.first, self.of_node(left.first, level)[0].find(rows))


def decompose(phase: Phase) -> None:
    """Up the tree, as far as this server has all pieces."""
    factors = Factors(phase)
    pieces, (table,) = factors.pieces, phase.inputs

    def climb(tree: Tree[Node], first: int, level: int) -> None:
        low, high = pieces.slots(first, 1 << level)
        rows = table[low - pieces.low : high - pieces.low]
        tree.append(factors.decompose(first, level, rows), level)

    count = pieces.last - pieces.first
    threads = max(1, min(thread_count(), count // _LEAST_PIECES))
    cuts = [pieces.first + count * part // threads for part in range(threads + 1)]
    trees = [Tree(factors.join, low) for low in cuts[:-1]]
    ways = [
        [partial(climb, tree, *node) for node in pieces.together(low, high)]
        for tree, (low, high) in zip(trees, pairwise(cuts), strict=True)
    ]
    with serial_blas():
        _go(ways, max(1, pieces.per_turn >> pieces.most_together), phase.pause)
        whole = trees[0]
        for tree in trees[1:]:
            for level, node in tree.nodes:
                whole.append(node, level)
    left = [padded(node.triangle) for _, node in whole.nodes]
    phase.workspace.put("triangles", np.reshape(left, (-1, pieces.k, pieces.k)))


def complete(phase: Phase) -> None:
    """The top of the tree, and from there down to the pieces of this server."""
    factors = Factors(phase)
    with serial_blas():
        triangle, handed = _top(phase, factors.pieces)
        phase.results[1] = triangle
        if 0 not in phase.wanted:
            return
        parts = [part for node in handed for part in _descend(factors, *node)]
        finish = partial(_finish, factors, phase.outputs[0])
        threads = max(1, min(thread_count(), len(parts)))
        ways = [[partial(finish, *part) for part in parts[k::threads]] for k in range(threads)]
        _go(ways, 1, phase.pause)


@dataclass(frozen=True, slots=True)
class Limb:
    """A node of the top of the tree: one that a server is left with, or two joined."""

    triangle: Matrix
    number: int
    """Of the node that a server is left with."""
    reflections: Reflections | None = None
    parts: tuple[Limb, ...] = ()


def _top(phase: Phase, own: TablePieces) -> tuple[Matrix, list[tuple[int, int, Matrix]]]:
    """R of the table, with no negative number on its diagonal; and by node of this server its
    first piece and level, and what is handed down to it.
    """
    k, type = own.k, phase.call.types.inputs[0]
    every = {
        server: TablePieces(type, *phase.range_of(type.space, server)) for server in phase.servers
    }
    nodes = [(pieces, *node) for pieces in every.values() for node in pieces.nodes()]
    found = _triangles(phase, every)
    memory = iter(phase.scratch((len(nodes), Reflections.size_of(2 * k, k)), np.float64))

    def join(left: Limb, right: Limb) -> Limb:
        rows = np.concatenate([left.triangle, right.triangle])
        reflections = Reflections(next(memory), len(rows), k)
        return Limb(reflections.find(rows), left.number, reflections, (left, right))

    tree: Tree[Limb] = Tree(join, 0)
    for number, (pieces, first, level) in enumerate(nodes):
        tree.append(Limb(found[number, : pieces.height(first, 1 << level)], number), level)
    root = join_all(join, [limb for _, limb in tree.nodes])
    handed = dict(_handed_down(root, np.diag(signs_of(root.triangle))))
    return upright(root.triangle), [
        (first, level, handed[number])
        for number, (pieces, first, level) in enumerate(nodes)
        if pieces is every[phase.here]
    ]


def _handed_down(limb: Limb, right: Matrix) -> Iterator[tuple[int, Matrix]]:
    """By number of a node what is handed down to it."""
    if limb.reflections is None:
        yield limb.number, right
        return
    both = limb.reflections.times(right)
    height = len(limb.parts[0].triangle)
    for part, given in zip(limb.parts, (both[:height], both[height:]), strict=True):
        yield from _handed_down(part, given)


def _triangles(phase: Phase, every: Mapping[int, TablePieces]) -> Matrix:
    """Those that all servers are left with, in the order of the rows, of shape ``(k, k)`` each."""
    counts = {server: len(list(pieces.nodes())) for server, pieces in every.items()}
    k = next(iter(every.values())).k
    found = phase.scratch((sum(counts.values()), k, k), np.float64)
    starts = accumulate(counts.values(), initial=0)
    phase.fetch(
        RemoteRows(server, "triangles", 0, count, found[start : start + count])
        for (server, count), start in zip(counts.items(), starts, strict=False)
    )
    return found


def _descend(
    factors: Factors, first: int, level: int, right: Matrix
) -> list[tuple[int, int, Matrix]]:
    """The same of the nodes below that have few pieces."""
    if 1 << level <= factors.pieces.per_turn:
        return [(first, level, right)]
    return [
        part
        for child in _children(factors, first, level, right)
        for part in _descend(factors, *child)
    ]


def _children(
    factors: Factors, first: int, level: int, right: Matrix
) -> tuple[tuple[int, int, Matrix], tuple[int, int, Matrix]]:
    """Of a node of two: what is handed down to these."""
    reflections, height = factors.of_node(first, level)
    both = reflections.times(right)
    half = level - 1
    return (first, half, both[:height]), (first + (1 << half), half, both[height:])


def _finish(factors: Factors, out: Array, first: int, level: int, right: Matrix) -> None:
    """The rows of Q of a node."""
    pieces = factors.pieces
    low, high = pieces.slots(first, 1 << level)
    rows = out[low - pieces.low : high - pieces.low]
    if not level:
        rows[...] = factors.of_piece(first).times(right)
    elif level <= pieces.most_together and pieces.are_whole(first, level):
        given = right[None]
        for height in range(level, 0, -1):
            both = factors.of_nodes(first, level, height).times(given)
            given = both.reshape(-1, pieces.k, both.shape[-1])
        made = factors.of_pieces(first, level).times(given)
        rows[...] = made.reshape(rows.shape)
    else:
        for child in _children(factors, first, level, right):
            _finish(factors, out, *child)


def _go(ways: Sequence[Sequence[Step]], steps: int, pause: Step) -> None:
    """To the end of all ways, each of one thread; with a pause after so many steps of each."""
    for start in range(0, max(map(len, ways), default=0), steps):
        some = [way[start : start + steps] for way in ways]
        if len(some) == 1:
            _take(some[0])
        else:
            list(pool().map(_take, some))
        pause()


def _take(steps: Sequence[Step]) -> None:
    with np.errstate(all="ignore"):  # of this thread
        for step in steps:
            step()


PHASES: dict[str, tuple[PhaseFunction, ...]] = {TSQR: (decompose, complete)}
"""By kind, the functions of the phases."""
