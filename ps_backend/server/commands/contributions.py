"""Indices and rows as they come in payloads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps_backend.server.commands.command import Payload
from ps_backend.server.session import ServerSession
from ps_backend.server.state.memory import Memory, MemoryBlock, rounded
from ps_backend.server.state.rounds import Contribution
from ps_backend.server.state.store import Part
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.chunks import byte_view

INDEX_BYTES = 8


def loose_rows(part: Part, count: int) -> Part:
    """The type of ``count`` loose rows of an array."""
    return Part(part.type, 0, count)


def received(
    memory: Memory,
    arrays: Sequence[tuple[Part, int | None]],
    payload: Payload,
    what: str,
    *,
    keep: bool = False,
    force: bool = False,
) -> tuple[list[Contribution], list[MemoryBlock]]:
    """What came along for ``arrays``: rows for so many indices, or all rows of the part (None).

    The payload is all their indices, then all their values; the indices are checked and made local.
    Beside it, if they ``keep`` what they change, room for that: a block for each.
    """
    rows = [part if count is None else loose_rows(part, count) for part, count in arrays]
    at, value_at = 0, sum([count or 0 for _, count in arrays]) * INDEX_BYTES
    sizes = [some.nbytes for some in rows]
    needed = [value_at + sum(sizes), *(sizes if keep else ())]
    block, *rooms = _filled(memory, needed, payload, what, force=force)
    found = []
    for (part, count), some in zip(arrays, rows, strict=True):
        indices = None
        if count is not None:
            indices = block.bytes[at : at + count * INDEX_BYTES].view(np.int64)
            _localize(indices, part)
            at += indices.nbytes
        values = block.bytes[value_at : value_at + some.nbytes].view(part.type.dtype)
        found.append(Contribution(part.type, indices, values.reshape(some.shape), block))
        value_at += some.nbytes
    return found, rooms


def pairs(
    memory: Memory, part: Part, count: int, payload: Payload, what: str, *, force: bool = False
) -> Contribution:
    """Indices and rows for one array."""
    (found,), _ = received(memory, [(part, count)], payload, what, force=force)
    return found


def contribution(
    session: ServerSession, body: pb.Stage | pb.Answer, payload: Payload, what: str
) -> Contribution:
    """What came along: rows for indices, or all rows of this server's part."""
    count = None if body.dense else body.count
    (found,), _ = received(session.store.memory, [(session.part(body.type), count)], payload, what)
    return found


def local_indices(
    memory: Memory, part: Part, count: int, payload: Payload, what: str, *more: int
) -> tuple[np.ndarray, list[MemoryBlock]]:
    """The indices that came along, made local as in ``received``; their block, and more blocks."""
    payload.expect(count * INDEX_BYTES)
    blocks = memory.allocate([rounded(size) for size in (payload.size, *more)], what)
    indices = blocks[0].array(np.dtype(np.int64), (count,))
    payload.into(byte_view(indices))
    _localize(indices, part)
    return indices, blocks


def _filled(
    memory: Memory, sizes: Sequence[int], payload: Payload, what: str, *, force: bool = False
) -> list[MemoryBlock]:
    """Blocks of these sizes, the first with the payload in it."""
    payload.expect(sizes[0])
    blocks = memory.allocate(sizes, what, force=force)
    payload.into(byte_view(blocks[0].bytes))
    return blocks


def _localize(indices: np.ndarray, part: Part) -> None:
    """Make global ``indices`` count from the part's first row; ``IndexError`` if one is outside."""
    if indices.size and not (part.low <= indices.min() and indices.max() < part.high):
        raise IndexError(
            f"indices {indices.min()} .. {indices.max()} are not all in {part.low} .. "
            f"{part.high - 1}, which this server holds of {part.type.space}"
        )
    indices -= part.low
