"""The board: values that many wait for, and their answers."""

from __future__ import annotations

from ps_backend import limits
from ps_backend.limits import check, check_name
from ps_backend.server.checks import name_within_bounds
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.session import ServerSession
from ps_backend.wire import ps_pb2 as pb


def _wait_bounds(body: pb.AwaitPost | pb.AwaitAnswers) -> None:
    check_name("topic", body.topic)
    check("seconds to wait", body.seconds, 0, limits.LONGEST_SECONDS)


@command(name_within_bounds("topic"), keeps_undo=True)
def post(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """A new value of a topic."""
    version = session.board.post(request.post.topic, request.post.value)
    return Response(pb.Reply(posted=pb.Posted(version=version)))


@command(_wait_bounds, repeatable=True, waits=True)
def await_post(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """A topic's value, as soon as there is a new one."""
    body = request.await_post
    found = session.board.wait(body.topic, body.after, body.seconds)
    posted = pb.Posted() if found is None else pb.Posted(version=found.version, value=found.value)
    return Response(pb.Reply(posted=posted))


@command(name_within_bounds("topic"), repeatable=True)
def answer(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Answers to a topic's value; repeating this changes nothing."""
    body = request.answer
    session.board.answer(body.topic, body.version, body.answers)
    return Response(pb.Reply())


@command(_wait_bounds, repeatable=True, waits=True)
def await_answers(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """The answers to a topic's value, as soon as there are enough."""
    body = request.await_answers
    answers = session.board.answers(body.topic, body.version, body.count, body.seconds)
    return Response(pb.Reply(posted=pb.Posted(version=body.version, answers=answers)))


@command(name_within_bounds("topic"), keeps_undo=True)
def close_topic(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """End a topic and all waits on it."""
    session.board.close_topic(request.close_topic.topic)
    return Response(pb.Reply())
