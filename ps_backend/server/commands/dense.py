"""Whole arrays, in and out."""

from __future__ import annotations

from ps_backend.server.checks import array_within_bounds, verify_array
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.session import ServerSession
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.chunks import byte_view


@command(lambda body: verify_array(body.target))
def write(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """A new buffer with the values that came along."""
    part = session.part(request.write.target)
    payload.expect(part.nbytes)
    (buffer,) = session.store.new([part], "writing an array")
    payload.into(byte_view(buffer.array))
    session.store.put({request.write.target.buffer: buffer})
    return Response(pb.Reply())


@command(array_within_bounds, repeatable=True)
def read(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Values of a buffer, straight from its memory: all, or those of some rows that follow each
    other; of a shared array those of now."""
    body = request.read
    part = session.part(body.array)
    find = session.store.shared if body.shared else session.store.get
    found = find(body.array.buffer, part)
    rows = found.array
    if body.count:
        first, last = body.first - part.low, body.first + body.count - part.low
        if not 0 <= first < last <= len(rows):
            raise ValueError(
                f"{body.count} rows from {body.first} on are not all in {part.low}:{part.high}"
            )
        rows = rows[first:last]
    parts = [byte_view(rows)]
    return Response(pb.Reply(payload=len(parts[0])), parts, [found])
