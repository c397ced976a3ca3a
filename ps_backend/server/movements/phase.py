"""What one phase of a movement works with on a server."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ps_backend.program.movements import MovementCall
from ps_backend.program.spaces import Space
from ps_backend.program.types import Row
from ps_backend.server.peers import Asked, Neighbours, wait_for_all
from ps_backend.server.state.memory import Memory, MemoryBlock
from ps_backend.server.state.store import Buffer, Workspace
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.chunks import byte_view

Array = npt.NDArray[Any]

_SMALL_BYTES = 1 << 16
"""Pieces that come together in one message, and are then copied to where they belong."""


class Piece(NamedTuple):
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

    call: MovementCall
    here: int
    count: int
    inputs: Sequence[Array]
    """This server's parts, which nobody may write to; of length 0 where it holds none."""
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

    def fetch(self, pieces: Iterable[Piece]) -> None:
        """Bring ``pieces``, which an earlier phase has left, to where they are to go; waits.

        One message to each server for all that are small, and one for each large piece. Raises
        ``PeerLost``, ``BufferLost``, ``OutOfBudget``.
        """
        asked: list[Asked] = []
        later: list[Callable[[], None]] = []
        small: dict[int, list[Piece]] = defaultdict(list)
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

    def _ask(self, pieces: Sequence[Piece], into: memoryview, keep: object) -> Asked:
        shelves = [
            pb.Shelf(workspace=self.call.workspace, name=one.name, start=one.start, count=one.rows)
            for one in pieces
        ]
        body = pb.Fetch(shelves=shelves)
        return self._neighbours.ask(pieces[0].server, "fetch", body, into, keep=(keep, self))

    def get_all(
        self, name: str, count: int, dtype: npt.DTypeLike, row: Row = ()
    ) -> dict[int, Array]:
        """The first ``count`` rows of a small array that every server has left, by server."""
        found = {server: np.empty((count, *row), dtype) for server in self.servers}
        self.fetch(Piece(server, name, 0, count, into) for server, into in found.items())
        return found

    def get(self, server: int, name: str, count: int, dtype: npt.DTypeLike, row: Row = ()) -> Array:
        """The same of one server."""
        into = np.empty((count, *row), dtype)
        self.fetch([Piece(server, name, 0, count, into)])
        return into


def _deal(pieces: Sequence[Piece], come: npt.NDArray[np.uint8]) -> None:
    """Copy what came in one message to where each piece belongs."""
    low = 0
    for piece in pieces:
        high = low + piece.into.nbytes
        byte_view(piece.into)[:] = come[low:high].data
        low = high


Run = Callable[[Phase], None]
