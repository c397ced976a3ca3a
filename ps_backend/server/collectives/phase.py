"""One phase of a collective on a server: its blocks, its workspace, and those of other servers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.kernel import pool, thread_count
from ps_backend.program.collectives import CollectiveCall
from ps_backend.program.spaces import Space
from ps_backend.program.types import Row
from ps_backend.server.peers import Asked, Neighbours, wait_for_all
from ps_backend.server.state.memory import Memory, MemoryBlock
from ps_backend.server.state.store import Buffer, Workspace
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import byte_view

Array = npt.NDArray[Any]

_SMALL_BYTES = 1 << 16
"""Pieces that come together in one message, and are then copied to where they belong."""


class RemoteRows(NamedTuple):
    """Rows ``start`` to ``start + rows`` of an array in the workspace of ``server``, and where
    they are to go: ``into`` is C-contiguous, of their dtype and shape."""

    server: int
    name: str
    start: int
    rows: int
    into: Array


@dataclass(slots=True)
class Phase:
    """One phase on this server, which is number ``here`` of ``count`` in its session."""

    call: CollectiveCall
    here: int
    count: int
    buffers: Sequence[Buffer]
    """This server's parts of the inputs; of length 0 where it holds none."""
    outputs: Mapping[int, Array]
    """This server's parts of the arrays that are made, by number: in the last phase alone."""
    workspace: Workspace
    memory: Memory
    _neighbours: Neighbours
    _buffers: Sequence[Buffer]
    """What holds the memory of the outputs, while answers come into it."""
    pause: Callable[[], None]
    """To be called every some 20 ms: lets other programs have a turn, or ends the phase."""
    results: dict[int, Array] = field(default_factory=dict)
    """What the client keeps, by number, to be put here in the last phase. What the first of
    ``servers`` puts here counts."""
    _scratch: list[MemoryBlock] = field(default_factory=list)

    @property
    def inputs(self) -> Sequence[Array]:
        """The arrays of ``buffers``, which nobody may write to."""
        return [buffer.array for buffer in self.buffers]

    @property
    def servers(self) -> list[int]:
        """Who takes part, in order."""
        return self.call.servers(self.count)

    @property
    def wanted(self) -> frozenset[int]:
        """The numbers of the outputs that are asked for."""
        return frozenset(number for number, _ in self.call.types.outputs)

    @property
    def operands(self) -> tuple[Array, ...]:
        """Small arrays that the client sent along."""
        return self.call.operands

    @property
    def params(self) -> tuple[int, ...]:
        """As of the call."""
        return self.call.params

    def range_of(self, space: Space, server: int | None = None) -> tuple[int, int]:
        """First slot, and that past the last, that a server holds: this one, if none is named."""
        return space.range_of(self.here if server is None else server, self.count)

    def scratch(self, shape: int | Sequence[int], dtype: npt.DTypeLike) -> Array:
        """Memory for the time of this phase, contents undefined; raises ``OutOfBudget``."""
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        kind = np.dtype(dtype)
        size = kind.itemsize * int(np.prod(extents, dtype=np.int64))
        (block,) = self.memory.allocate([size], f"a {self.call.kind}")
        self._scratch.append(block)
        return block.array(kind, extents)

    def fetch(self, pieces: Iterable[RemoteRows]) -> None:
        """Bring ``pieces``, which an earlier phase has left, to where they are to go; waits.

        One message to each server for all that are small, and one for each large piece. Raises
        ``PeerLost``, ``BufferLost``, ``OutOfBudget``.
        """
        asked: list[Asked] = []
        later: list[Callable[[], None]] = []
        small: dict[int, list[RemoteRows]] = defaultdict(list)
        for piece in pieces:
            if piece.server == self.here:
                source = self.workspace[piece.name][piece.start : piece.start + piece.rows]
                np.copyto(piece.into, source)
            elif piece.into.nbytes > _SMALL_BYTES:
                asked.append(self._ask([piece], byte_view(piece.into), piece.into))
            elif piece.into.nbytes:
                small[piece.server].append(piece)
        for some in small.values():
            come = np.empty(sum(piece.into.nbytes for piece in some), np.uint8)
            asked.append(self._ask(some, come.data, come))
            later.append(lambda some=some, come=come: _deal(some, come))  # type: ignore[misc]
        wait_for_all(asked, self.pause)
        for deal in later:
            deal()

    def _ask(self, pieces: Sequence[RemoteRows], into: memoryview, keep: object) -> Asked:
        shelves = [
            pb.Shelf(workspace=self.call.workspace, name=one.name, start=one.start, count=one.rows)
            for one in pieces
        ]
        body = pb.Fetch(shelves=shelves)
        return self._neighbours.ask(pieces[0].server, "fetch", body, into, keep=(keep, self))

    def allgather(
        self, name: str, count: int, dtype: npt.DTypeLike, row: Row = ()
    ) -> dict[int, Array]:
        """The first ``count`` rows of a small array that every server has left, by server."""
        found = {server: np.empty((count, *row), dtype) for server in self.servers}
        self.fetch(RemoteRows(server, name, 0, count, into) for server, into in found.items())
        return found

    def get(self, server: int, name: str, count: int, dtype: npt.DTypeLike, row: Row = ()) -> Array:
        """The same of one server."""
        into = np.empty((count, *row), dtype)
        self.fetch([RemoteRows(server, name, 0, count, into)])
        return into


def _deal(pieces: Sequence[RemoteRows], come: npt.NDArray[np.uint8]) -> None:
    """Copy what came in one message to where each piece belongs."""
    low = 0
    for piece in pieces:
        high = low + piece.into.nbytes
        byte_view(piece.into)[:] = come[low:high].data
        low = high


PhaseFunction = Callable[[Phase], None]

_PER_CALL = 1 << 20
"""Elements of the blocks that are computed by one call: enough that calling costs nothing."""
_ALONE = 1 << 18
"""Elements that are not worth a second thread: to hand them over takes 100 us."""
_SLICE = 1 << 22
"""Elements that a thread goes on for without a pause: some 10 ms."""


def block_count(phase: Phase, space: Space, server: int | None = None) -> int:
    """Blocks of ``space`` that a server holds: this one, if none is named."""
    low, high = phase.range_of(space, server)
    return -(-(high - low) // space.block_size)


class BlockRange:
    """Consecutive blocks of one length on this server."""

    def __init__(self, first: int, past: int, size: int, rows: slice) -> None:
        self.blocks = slice(first, past)
        """Their numbers on this server."""
        self.rows = rows
        """Their rows on this server."""
        self._size = size

    def of(self, x: Array) -> Array:
        """Their elements in a server's part of an array, as ``(blocks, rows, width)``."""
        return x[self.rows].reshape(-1, self._size, prod(x.shape[1:]))


def for_each_range(
    phase: Phase, space: Space, width: int, work: Callable[[BlockRange], None]
) -> None:
    """Call ``work`` with all the blocks of ``space`` on this server, some at once, in any order.

    ``width``: elements of a row, by which it is judged how many.
    """
    low, high = phase.range_of(space)
    size, length = space.block_size, high - low
    whole, rest = divmod(length, size)
    threads = 1 if length * width <= _ALONE else min(thread_count(), whole + 1)
    together = max(1, min(_PER_CALL // (size * width), -(-whole // threads)))
    runs = [
        BlockRange(first, min(first + together, whole), size, _rows(first, together, whole, size))
        for first in range(0, whole, together)
    ]
    if rest:
        runs.append(BlockRange(whole, whole + 1, rest, slice(whole * size, length)))
    at_once = threads * max(1, _SLICE // (together * size * width))
    for first in range(0, len(runs), at_once):
        some = runs[first : first + at_once]
        if threads == 1:
            for run in some:
                work(run)
        else:
            list(pool().map(_without_warnings(work), some))
        phase.pause()


def _without_warnings(work: Callable[[BlockRange], None]) -> Callable[[BlockRange], None]:
    """``work`` for threads of the pool, which do not know what their caller says of warnings."""

    def quiet(run: BlockRange) -> None:
        with np.errstate(all="ignore"):
            work(run)

    return quiet


def _rows(first: int, together: int, whole: int, size: int) -> slice:
    return slice(first * size, min(first + together, whole) * size)
