"""What a client asks about itself, and names of arrays for a driver that takes over the session."""

from __future__ import annotations

from ps_backend import limits
from ps_backend.limits import check, check_name
from ps_backend.server.bounds import verify_array
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.sessions import ServerSession
from ps_backend.wire import ps_pb2 as pb


@command()
def nothing(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """The frees that came along were all that was wanted, and what was committed stands."""
    return Response(pb.Reply())


@command(repeatable=True)
def renew(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """The session is still in use, as any request says."""
    return Response(pb.Reply())


@command(repeatable=True)
def cancel(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """End the sender's programs up to one, as by Ctrl-C."""
    log = session.reply_log(request.client)
    log.cancelled = max(log.cancelled, request.cancel.sequence)
    return Response(pb.Reply())


def _bounds(body: pb.Publish) -> None:
    given = body.given
    check("arrays", len(given.arrays), 0, limits.MOST_VALUES)
    check("names of arrays", len(given.names), len(given.arrays), len(given.arrays))
    for name, array in zip(given.names, given.arrays, strict=True):
        check_name("array", name)
        verify_array(array)


@command(_bounds)
def publish(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Give names to buffers, in place of the names before. ``only``: free all other buffers.

    Or say which names buffers have, in each list that this server knows.
    """
    body = request.publish
    if not body.HasField("given"):
        return Response(pb.Reply(publications=session.publications.all()))
    for array in body.given.arrays:
        part = session.part(array)
        if part.low < part.high:
            session.store.get(array.buffer, part)
    session.publications.publish(body.given, body.settled)
    if body.only:
        session.store.keep_only({array.buffer for array in body.given.arrays})
    return Response(pb.Reply())


@command()
def empty_session(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Drop all arrays, keyed spaces and rounds: who asks will send again what made them."""
    session.store.clear()
    session.keyed.clear()
    session.rounds.clear()
    session.call_cache.clear()
    return Response(pb.Reply())
