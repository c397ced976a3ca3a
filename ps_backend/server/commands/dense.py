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
    """All values of a buffer, straight from its memory; those of now of a shared array."""
    array = request.read.array
    find = session.store.shared if request.read.shared else session.store.get
    found = find(array.buffer, session.part(array))
    parts = [byte_view(found.array)]
    return Response(pb.Reply(payload=len(parts[0])), parts, [found])
