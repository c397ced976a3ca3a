"""What a client asks about itself: nothing in the session's data changes."""

from __future__ import annotations

from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.session import ServerSession
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
