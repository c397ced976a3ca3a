"""Mailboxes: questions that many wait for, and their answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps_backend import limits
from ps_backend.limits import check, check_name
from ps_backend.server.checks import name_within_bounds, verify_array
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.commands.contributions import contribution
from ps_backend.server.session import ServerSession
from ps_backend.server.state.mailbox import MAILBOX_BYTES, Mailbox, Question
from ps_backend.server.state.rounds import Contribution
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.chunks import byte_view
from ps_backend.wire.errors import NotAlong, TooEarly
from ps_backend.wire.questions import check_size


def _bounds(body: pb.Ask | pb.AwaitQuestion | pb.Answer) -> None:
    check_name("mailbox", body.mailbox)
    if not isinstance(body, pb.AwaitQuestion):
        check_size(body.value)
    if not isinstance(body, pb.Answer):
        check("seconds to wait", body.seconds, 0, limits.LONGEST_SECONDS)
    for array in (body.about, body.target) if isinstance(body, pb.Ask) else (body.type,):
        verify_array(array)


@command(_bounds, repeatable=True, waits=True)
def ask(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """A new question, its answers as soon as there are enough, and the total that they make."""
    body, memory = request.ask, session.store.memory
    for array in ("about", "target"):  # else it would be asked, and found out afterwards
        if body.HasField(array):
            session.part(getattr(body, array))
    if body.HasField("value"):
        mailbox = session.meetings.open(
            Mailbox, body.mailbox, MAILBOX_BYTES, lambda room: Mailbox(body.mailbox, room, memory)
        )
        about = body.about if body.HasField("about") else None
        mailbox.ask(Question(body.question, body.value, about))
    else:
        mailbox = session.meetings.get(Mailbox, body.mailbox)

    def add_up(contributions: Sequence[Contribution]) -> None:
        _make_total(session, body.target, contributions)

    answers = mailbox.answers(
        body.question, body.count, body.seconds, add_up if body.HasField("target") else None
    )
    return Response(pb.Reply(asked=pb.Asked(question=body.question, answers=answers)))


def _make_total(
    session: ServerSession, target: pb.Array, contributions: Sequence[Contribution]
) -> None:
    """A new buffer: zeros and what was contributed, in this order."""
    part = session.part(target)
    session.store.refuse_taken([target.buffer])
    for one in contributions:
        one.check_fits(part.type)
    (buffer,) = session.store.new([part], "adding up contributions")
    buffer.array.fill(0)
    for one in contributions:
        one.combine_into(buffer.array, np.add)
    session.store.put({target.buffer: buffer})


@command(_bounds, repeatable=True, waits=True)
def await_question(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """A question as soon as there is a new one, with the values that it is about if wanted."""
    body = request.await_question
    question = session.meetings.get(Mailbox, body.mailbox).question(body.after, body.seconds)
    if question is None:
        raise TooEarly(f"mailbox {body.mailbox!r} has no new question yet")
    asked = pb.Asked(question=question.number, value=question.value)
    if not body.HasField("type"):
        return Response(pb.Reply(asked=asked))
    about = question.about
    if about is None or session.part(about) != session.part(body.type):
        raise NotAlong(f"question {question.number} is not about such an array")
    buffer = session.store.get(about.buffer, session.part(about))
    parts = [byte_view(buffer.array)]
    return Response(pb.Reply(asked=asked, payload=len(parts[0])), parts, [buffer])


@command(_bounds, repeatable=True)
def answer(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """One answer, and what it contributes."""
    body = request.answer
    mailbox = session.meetings.get(Mailbox, body.mailbox)
    what = "contributing to a total"
    added = contribution(session, body, payload, what) if body.HasField("type") else None
    mailbox.answer(body.question, body.key, body.value, added)
    return Response(pb.Reply())


@command(name_within_bounds("mailbox"), repeatable=True)
def close_mailbox(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """End a mailbox and all waits at it."""
    session.meetings.close(Mailbox, request.close_mailbox.mailbox)
    return Response(pb.Reply())
