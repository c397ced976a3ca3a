"""What many contribute to, and wait for: rounds, mailboxes, and the clocks of loops.

Each kind of barrier counts a contribution once, however often it comes: a round by its key, a
mailbox by who answers, a loop by the clock that ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ps_backend import limits
from ps_backend.limits import check, check_name
from ps_backend.server.bounds import verify_array
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.commands.row_programs import call_bounds, reserve_rows, stage_rows
from ps_backend.server.commands.rows import received, wanted
from ps_backend.server.sessions import ServerSession
from ps_backend.server.state.barriers import MAILBOX_BYTES, Mailbox, Question
from ps_backend.server.state.clocks import Clocks, Push
from ps_backend.server.state.memory import MemoryBlock
from ps_backend.server.state.store import Buffer, Rows
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import (
    OPERATIONS,
    Key,
    NotAlong,
    ReleaseStep,
    TooEarly,
    Winner,
    byte_view,
    check_size,
)

_KINDS = ("round", "mailbox", "loop")


def _verify(barrier: pb.Barrier) -> None:
    """Raise ``ValueError`` unless it is of a kind that there is, and its name within bounds."""
    if barrier.kind not in _KINDS:
        raise ValueError(
            f"unknown kind of barrier {barrier.kind[:40]!r}; known are {', '.join(_KINDS)}"
        )
    check_name(barrier.kind, barrier.name)


def _is(barrier: pb.Barrier, *kinds: str) -> None:
    """Raise ``ValueError`` unless it is of one of the ``kinds``, of which the request can be."""
    if barrier.kind not in kinds:
        raise ValueError(
            f"a {barrier.kind} does not support this request; it supports {', '.join(kinds)}"
        )


# --- who takes part -------------------------------------------------------------------------------


def _join_bounds(body: pb.Join) -> None:
    _verify(body.barrier)
    check("clock to go on at", body.at, 0, limits.MOST_CLOCK)


@command(_join_bounds, repeatable=True)
def join(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Open a loop, or let an attempt speak for a rank, or nobody wait for it; how many clocks each
    rank has ended."""
    body, name = request.join, request.join.barrier.name
    _is(body.barrier, "loop")
    if body.HasField("ranks"):
        bound, size = body.staleness if body.HasField("staleness") else None, body.ranks
        session.barriers.open(
            Clocks, name, Clocks.bytes_of(size), lambda room: Clocks(name, size, bound, room)
        )
        return Response(pb.Reply())
    loop = session.barriers.get(Clocks, name)
    if body.exclude:
        loop.exclude(body.member, body.attempt)
    elif body.attempt:
        joined = loop.join(body.member, body.attempt, body.at if body.HasField("at") else None)
        return Response(pb.Reply(clocks=pb.Clocks(clocks=[joined.clock], out=joined.out)))
    return Response(pb.Reply(clocks=pb.Clocks(clocks=loop.clocks)))


# --- contributions --------------------------------------------------------------------------------


def _contribute_bounds(body: pb.Contribute) -> None:
    _verify(body.barrier)
    is_loop = body.barrier.kind == "loop"
    check("arrays of a contribution", len(body.rows), 0, limits.MOST_TOTALS if is_loop else 1)
    for rows in body.rows:
        verify_array(rows.array)
    if is_loop:
        check("clock", body.turn, 0, limits.MOST_CLOCK - 1)
    if body.HasField("call"):
        call_bounds(body.call)
    check_size(body.value)


@command(_contribute_bounds, keeps_undo=True)
def contribute(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """Stage to a round until it ends, answer a question, or end the clock of a rank."""
    body, name = request.contribute, request.contribute.barrier.name
    match body.barrier.kind:
        case "round":
            key = Key(body.member, body.attempt, body.slot, body.number)
            if body.HasField("call"):
                session.rounds.stage(name, key, stage_rows(session, body.call, payload))
            else:
                rows, _ = received(session, body.rows or [pb.Rows()], payload, "staging to a round")
                session.rounds.stage(name, key, rows[0])
        case "mailbox":
            mailbox = session.barriers.get(Mailbox, name)
            rows, what = [], "contributing to a total"
            if body.rows:
                rows, _ = received(session, body.rows, payload, what)
            mailbox.answer(body.turn, body.member, body.value, *rows)
        case _:
            loop = session.barriers.get(Clocks, name)
            pushes = _pushes(session, body.rows, payload, keep=loop.is_bsp)
            loop.tick(body.member, body.attempt, body.turn, pushes, leave=body.leave)
    return Response(pb.Reply())


def _pushes(
    session: ServerSession, named: Sequence[pb.Rows], payload: Payload, *, keep: bool
) -> list[Push]:
    """What a rank adds to shared arrays, and room for what that changes if it is to be kept."""
    targets = [session.store.shared(one.array.buffer, session.part(one.array)) for one in named]
    rows, rooms = received(session, named, payload, "adding to arrays in a loop", keep=keep)
    kept: Sequence[MemoryBlock | None] = rooms if keep else [None] * len(rows)
    return list(map(Push, targets, rows, kept))


# --- waits ----------------------------------------------------------------------------------------


def _wait_bounds(body: pb.Wait) -> None:
    _verify(body.barrier)
    check("seconds to wait", body.seconds, 0, limits.LONGEST_SECONDS)
    verify_array(body.rows.array)
    if body.HasField("ask"):
        check_size(body.ask.value)
        verify_array(body.ask.about)
        verify_array(body.ask.target)
    if body.barrier.kind == "loop":
        check("clock", body.turn, 0, limits.MOST_CLOCK)


@command(_wait_bounds, repeatable=True, waits=True)
def wait(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """Answers as soon as there are enough, a question as soon as there is a new one, or rows of an
    array once the ranks of a loop are near enough."""
    body = request.wait
    _is(body.barrier, "mailbox", "loop")
    if body.barrier.kind == "loop":
        return _pull(session, body, payload)
    return _answers(session, body) if body.HasField("ask") else _question(session, body)


def _answers(session: ServerSession, body: pb.Wait) -> Response:
    """Ask, if that was not done; the answers, and the total that they make."""
    ask, name, memory = body.ask, body.barrier.name, session.store.memory
    for array in ("about", "target"):  # else it would be asked, and found out afterwards
        if ask.HasField(array):
            session.part(getattr(ask, array))
    if ask.HasField("value"):
        mailbox = session.barriers.open(
            Mailbox, name, MAILBOX_BYTES, lambda room: Mailbox(name, room, memory)
        )
        about = ask.about if ask.HasField("about") else None
        mailbox.ask(Question(body.turn, ask.value, about))
    else:
        mailbox = session.barriers.get(Mailbox, name)

    def add_up(contributions: Sequence[Rows]) -> None:
        for one in contributions:
            one.check_fits(session.part(ask.target).type)
        _make(session, [_Made(ask.target, contributions)], "adding up contributions")

    summed = add_up if ask.HasField("target") else None
    answers = mailbox.answers(body.turn, ask.count, body.seconds, summed)
    return Response(pb.Reply(asked=pb.Asked(question=body.turn, answers=answers)))


def _question(session: ServerSession, body: pb.Wait) -> Response:
    """A new question, with the values that it is about if they are wanted."""
    question = session.barriers.get(Mailbox, body.barrier.name).question(body.turn, body.seconds)
    if question is None:
        raise TooEarly(f"mailbox {body.barrier.name!r} has no new question yet")
    asked = pb.Asked(question=question.number, value=question.value)
    if not body.HasField("rows"):
        return Response(pb.Reply(asked=asked))
    about = question.about
    if about is None or session.part(about) != session.part(body.rows.array):
        raise NotAlong(f"question {question.number} is not about such an array")
    buffer = session.store.get(about.buffer, session.part(about))
    parts = [byte_view(buffer.array)]
    return Response(pb.Reply(asked=asked, payload=len(parts[0])), parts, [buffer])


def _pull(session: ServerSession, body: pb.Wait, payload: Payload) -> Response:
    """Rows of a shared array with the rank's own ticks in them."""
    some = part = session.part(body.rows.array)
    array = session.store.shared(body.rows.array.buffer, part)
    loop = session.barriers.get(Clocks, body.barrier.name)
    indices, blocks, what = None, list[MemoryBlock](), "pulling in a loop"
    if body.rows.HasField("indices"):
        indices, some, blocks = wanted(session, part, body.rows.indices, payload, what, room=False)

    def room_for() -> np.ndarray:  # not before the wait, which may be long
        blocks.extend(session.store.memory.allocate([some.nbytes], what))
        return blocks[-1].array(part.type.dtype, some.shape)

    found, own = loop.pull(
        body.member, body.attempt, body.turn, body.seconds, array, indices, room_for
    )
    reply = pb.Reply(payload=some.nbytes, clocks=pb.Clocks(clocks=[own]))
    return Response(reply, [byte_view(found)], blocks)


# --- what becomes of a round ----------------------------------------------------------------------


def _release_bounds(body: pb.Release) -> None:
    check_name("round", body.round)
    check("totals of a commit", len(body.totals), 0, limits.MOST_TOTALS)
    for total in body.totals:
        verify_array(total.target)


@command(_release_bounds, keeps_undo=True)
def release(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Make totals of what the winners staged, or reserve the room for that, or take it back."""
    body, rounds = request.release, session.rounds
    if body.step == ReleaseStep.UNDO:
        session.store.free(total.target.buffer for total in body.totals)
        rounds.reopen(body.round)
        return Response(pb.Reply())
    rounds.settle()
    if body.step == ReleaseStep.ARRAYS:
        return _commit(session, body)
    if body.step == ReleaseStep.RESERVE:
        slots = [(total.slot, _winners(total)) for total in body.totals]
        reserve_rows(session, body.round, slots)
    elif body.step == ReleaseStep.KEYS:
        rounds.take_prepared(body.round).apply()
    else:
        raise ValueError(f"a round has no step {body.step}")
    return Response(pb.Reply())


def _commit(session: ServerSession, body: pb.Release) -> Response:
    """New buffers: zeros or the sources, combined with what the winners staged."""
    made = []
    for total in body.totals:
        if total.op not in OPERATIONS:
            raise ValueError(f"op={total.op!r}; a round combines by one of {', '.join(OPERATIONS)}")
        type = session.part(total.target).type
        staged = session.rounds.winners(body.round, total.slot, _winners(total), type)
        made.append(_Made(total.target, staged, OPERATIONS[total.op]))
    for number, total in enumerate(body.totals):
        if total.HasField("source"):
            source = session.store.get(total.source, session.part(total.target))
            made[number] = made[number]._replace(source=source)
    _make(session, made, "committing a round")
    # Another server may refuse, and then this one has to take it back.
    kept = session.rounds.close(body.round, undo=session.servers > 1)
    return Response(pb.Reply(kept=kept))


def _winners(total: pb.Total) -> list[Winner]:
    return [Winner(one.partition, one.attempt, one.contributions) for one in total.winners]


class _Made(NamedTuple):
    """A new buffer: zeros, or a source, and contributions, in this order."""

    target: pb.Array
    contributions: Sequence[Rows]
    operation: np.ufunc = np.add
    source: Buffer | None = None


def _make(session: ServerSession, made: Sequence[_Made], what: str) -> None:
    numbers = [one.target.buffer for one in made]
    session.store.refuse_taken(numbers)
    buffers = session.store.new([session.part(one.target) for one in made], what)
    for one, buffer in zip(made, buffers, strict=True):
        if one.source is None:
            buffer.array.fill(0)
        else:
            one.source.copy_into(buffer)
        for rows in one.contributions:
            rows.combine_into(buffer.array, one.operation)
    session.store.put(dict(zip(numbers, buffers, strict=True)))


@command(lambda body: _verify(body.barrier), repeatable=True)
def end(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """End a round without a result, or a mailbox or a loop and all waits there."""
    barrier = request.end.barrier
    match barrier.kind:
        case "round":
            session.rounds.settle()
            session.rounds.drop(barrier.name)
        case "mailbox":
            session.barriers.close(Mailbox, barrier.name)
        case _:
            session.barriers.close(Clocks, barrier.name)
    return Response(pb.Reply())
