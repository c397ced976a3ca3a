"""Indices and rows as they come in payloads."""

from __future__ import annotations

import numpy as np

from ps_backend.server.commands.command import Payload
from ps_backend.server.session import ServerSession
from ps_backend.server.state.memory import Memory
from ps_backend.server.state.rounds import Contribution
from ps_backend.server.state.store import Part
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.chunks import byte_view

INDEX_BYTES = 8


def loose_rows(part: Part, count: int) -> Part:
    """The type of ``count`` loose rows of an array."""
    return Part(part.type, 0, count)


def pairs(
    memory: Memory, part: Part, count: int, payload: Payload, what: str, *, force: bool = False
) -> Contribution:
    """Indices and rows from the payload, the indices checked and made local."""
    rows = loose_rows(part, count)
    cut = count * INDEX_BYTES
    payload.expect(cut + rows.nbytes)
    (block,) = memory.allocate([cut + rows.nbytes], what, force=force)
    payload.into(byte_view(block.bytes))
    indices = block.bytes[:cut].view(np.int64)
    localize(indices, part)
    values = block.bytes[cut:].view(part.type.dtype).reshape(rows.shape)
    return Contribution(part.type, indices, values, block)


def localize(indices: np.ndarray, part: Part) -> None:
    """Make global ``indices`` count from the part's first row; ``IndexError`` if one is outside."""
    if indices.size and not (part.low <= indices.min() and indices.max() < part.high):
        raise IndexError(
            f"indices {indices.min()} .. {indices.max()} are not all in {part.low} .. "
            f"{part.high - 1}, which this server holds of {part.type.space}"
        )
    indices -= part.low


def contribution(
    session: ServerSession, body: pb.Stage | pb.Answer, payload: Payload, what: str
) -> Contribution:
    """What came along: rows for indices, or all rows of this server's part."""
    memory, part = session.store.memory, session.part(body.type)
    if not body.dense:
        return pairs(memory, part, body.count, payload, what)
    payload.expect(part.nbytes)
    (block,) = memory.allocate([part.nbytes], what)
    payload.into(byte_view(block.bytes))
    values = block.array(part.type.dtype, part.shape)
    return Contribution(part.type, None, values, block)
