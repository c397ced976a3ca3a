"""What a server fetches from another one of its session while it runs a program."""

from __future__ import annotations

import numpy as np

from ps_backend import limits
from ps_backend.errors import InvalidProgram
from ps_backend.limits import check, check_name
from ps_backend.server.checks import verify_array
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.pieces import pieces_of
from ps_backend.server.session import ServerSession
from ps_backend.server.state.memory import MemoryBlock
from ps_backend.server.state.store import Buffer
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.chunks import byte_view


def _bounds(body: pb.Fetch) -> None:
    check("spans of a fetch", len(body.pieces), 0, limits.MOST_VALUES)
    for one in body.pieces:
        verify_array(one.array)
        check("pieces", one.count, 0, limits.MOST_LENGTH)
        check("width of a piece", one.width, 1, limits.MOST_LENGTH)
        check("steps between pieces", one.step, -limits.MOST_LENGTH, limits.MOST_LENGTH)
    check("shelves of a fetch", len(body.shelves), 0, limits.MOST_VALUES)
    for shelf in body.shelves:
        check_name("name of a shelf", shelf.name)


@command(_bounds, repeatable=True)
def fetch(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Elements of buffers and of workspaces, straight from their memory where they lie together.

    Needs no turn: a program of this server may fetch from the sender at the same time.
    """
    parts: list[memoryview] = []
    keep: list[Buffer | MemoryBlock] = []
    for one in request.fetch.pieces:
        part = session.part(one.array)
        buffer = session.store.get(one.array.buffer, part)
        flat = buffer.array.reshape(-1)
        start = one.start - part.low * part.type.width
        last = start + one.step * (one.count - 1)
        if one.count and not (0 <= min(start, last) <= max(start, last) + one.width <= flat.size):
            raise InvalidProgram(
                f"a fetch of {one.count} pieces of {one.width} elements from {one.start} by "
                f"{one.step} leaves the part of buffer {one.array.buffer} that is here"
            )
        found = pieces_of(flat, start, one.step, one.count, one.width)
        if found.flags.c_contiguous:
            keep.append(buffer)
        else:
            (block,) = session.store.memory.allocate([found.nbytes], "a fetch of another server")
            copy = block.array(found.dtype, found.shape)
            np.copyto(copy, found)
            found = copy
            keep.append(block)
        parts.append(byte_view(found))
    for shelf in request.fetch.shelves:
        held, block = session.store.workspace(shelf.workspace).held(shelf.name)
        if shelf.start + shelf.count > len(held):
            raise InvalidProgram(
                f"a fetch of rows {shelf.start} to {shelf.start + shelf.count} of "
                f"{shelf.name[:40]!r}, which has {len(held)} here"
            )
        parts.append(byte_view(held[shelf.start : shelf.start + shelf.count]))
        keep.append(block)
    return Response(pb.Reply(payload=sum(map(len, parts))), parts, keep)
