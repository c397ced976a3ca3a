"""What many contribute to, and wait for: rounds, mailboxes, and the clocks of loops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps_backend import limits
from ps_backend.limits import check, check_name
from ps_backend.server.bounds import name_within_bounds, verify_array
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.commands.rows import received, wanted
from ps_backend.server.session import ServerSession
from ps_backend.server.state.clocks import Clocks, Push
from ps_backend.server.state.mailbox import MAILBOX_BYTES, Mailbox, Question
from ps_backend.server.state.memory import MemoryBlock
from ps_backend.server.state.store import Part, Rows
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.barriers import OPERATIONS, Key, Winner, check_size
from ps_backend.wire.chunks import byte_view
from ps_backend.wire.errors import NotAlong, TooEarly


def _stage_bounds(body: pb.Stage) -> None:
    check_name("round", body.round)
    verify_array(body.rows.array)


def _commit_bounds(body: pb.Commit) -> None:
    check_name("round", body.round)
    check("totals of a commit", len(body.totals), 0, limits.MOST_TOTALS)
    for total in body.totals:
        verify_array(total.target)


@command(_stage_bounds, keeps_undo=True)
def stage(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """Keep a contribution to a round until it is committed or dropped."""
    body = request.stage
    key = Key(body.partition, body.attempt, body.slot, body.number)
    (rows,), _ = received(session, [body.rows], payload, "staging to a round")
    session.rounds.stage(body.round, key, rows)
    return Response(pb.Reply())


@command(_commit_bounds)
def commit(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """New buffers: zeros or the sources, combined with what the winners staged."""
    body, store = request.commit, session.store
    parts = [session.part(total.target) for total in body.totals]
    staged = [
        _staged(session, body.round, total, part)
        for total, part in zip(body.totals, parts, strict=True)
    ]
    sources = [
        store.get(total.source, part) if total.HasField("source") else None
        for total, part in zip(body.totals, parts, strict=True)
    ]
    numbers = [total.target.buffer for total in body.totals]
    store.refuse_taken(numbers)
    targets = store.new(parts, "committing a round")
    for total, target, source, winners in zip(body.totals, targets, sources, staged, strict=True):
        if source is None:
            target.array.fill(0)
        else:
            np.copyto(target.array, source.array)
        for winner in winners:
            winner.combine_into(target.array, OPERATIONS[total.op])
    store.put(dict(zip(numbers, targets, strict=True)))
    # Another server may refuse, and then this one has to take it back.
    kept = session.rounds.close(body.round, undo=session.servers > 1)
    return Response(pb.Reply(kept=kept))


def _staged(session: ServerSession, round: str, total: pb.Total, part: Part) -> list[Rows]:
    if total.op not in OPERATIONS:
        raise ValueError(f"op={total.op!r}; a round combines by one of {', '.join(OPERATIONS)}")
    winners = [Winner(one.partition, one.attempt, one.contributions) for one in total.winners]
    return session.rounds.winners(round, total.slot, winners, part.type)


@command(name_within_bounds("round"), keeps_undo=True)
def reopen(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Take back a commit that another server refused."""
    session.store.free(request.reopen.targets)
    session.rounds.reopen(request.reopen.round)
    return Response(pb.Reply())


@command(name_within_bounds("round"))
def drop_round(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """End a round without a result."""
    session.rounds.drop(request.drop_round.round)
    return Response(pb.Reply())


def _bounds(body: pb.Ask | pb.AwaitQuestion | pb.Answer) -> None:
    check_name("mailbox", body.mailbox)
    if not isinstance(body, pb.AwaitQuestion):
        check_size(body.value)
    if not isinstance(body, pb.Answer):
        check("seconds to wait", body.seconds, 0, limits.LONGEST_SECONDS)
    match body:
        case pb.Ask():
            verify_array(body.about)
            verify_array(body.target)
        case pb.AwaitQuestion():
            verify_array(body.type)
        case pb.Answer():
            verify_array(body.rows.array)


@command(_bounds, repeatable=True, waits=True)
def ask(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """A new question, its answers as soon as there are enough, and the total that they make."""
    body, memory = request.ask, session.store.memory
    for array in ("about", "target"):  # else it would be asked, and found out afterwards
        if body.HasField(array):
            session.part(getattr(body, array))
    if body.HasField("value"):
        mailbox = session.barriers.open(
            Mailbox, body.mailbox, MAILBOX_BYTES, lambda room: Mailbox(body.mailbox, room, memory)
        )
        about = body.about if body.HasField("about") else None
        mailbox.ask(Question(body.question, body.value, about))
    else:
        mailbox = session.barriers.get(Mailbox, body.mailbox)

    def add_up(contributions: Sequence[Rows]) -> None:
        _make_total(session, body.target, contributions)

    answers = mailbox.answers(
        body.question, body.count, body.seconds, add_up if body.HasField("target") else None
    )
    return Response(pb.Reply(asked=pb.Asked(question=body.question, answers=answers)))


def _make_total(session: ServerSession, target: pb.Array, contributions: Sequence[Rows]) -> None:
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
    question = session.barriers.get(Mailbox, body.mailbox).question(body.after, body.seconds)
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
    mailbox = session.barriers.get(Mailbox, body.mailbox)
    what = "contributing to a total"
    named = [body.rows] if body.HasField("rows") else []
    added, _ = received(session, named, payload, what) if named else ([], [])
    mailbox.answer(body.question, body.key, body.value, *added)
    return Response(pb.Reply())


@command(name_within_bounds("mailbox"), repeatable=True)
def close_mailbox(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """End a mailbox and all waits at it."""
    session.barriers.close(Mailbox, request.close_mailbox.mailbox)
    return Response(pb.Reply())


def _join_bounds(body: pb.JoinLoop) -> None:
    check_name("loop", body.loop)
    check("clock to go on at", body.at, 0, limits.MOST_CLOCK)


def _tick_bounds(body: pb.Tick) -> None:
    check_name("loop", body.loop)
    check("clock", body.clock, 0, limits.MOST_CLOCK - 1)
    check("pushes of a tick", len(body.rows), 0, limits.MOST_TOTALS)
    for rows in body.rows:
        verify_array(rows.array)


def _pull_bounds(body: pb.Pull) -> None:
    check_name("loop", body.loop)
    check("clock", body.clock, 0, limits.MOST_CLOCK)
    check("seconds to wait", body.seconds, 0, limits.LONGEST_SECONDS)
    verify_array(body.rows.array)


@command(name_within_bounds("loop"), repeatable=True)
def open_loop(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """A loop with all its ranks at clock 0."""
    body = request.open_loop
    bound = body.staleness if body.HasField("staleness") else None
    session.barriers.open(
        Clocks,
        body.loop,
        Clocks.bytes_of(body.ranks),
        lambda room: Clocks(body.loop, body.ranks, bound, room),
    )
    return Response(pb.Reply())


@command(_join_bounds, repeatable=True)
def join_loop(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Where a rank goes on, and who speaks for it from now on."""
    body = request.join_loop
    at = body.at if body.HasField("at") else None
    joined = session.barriers.get(Clocks, body.loop).join(body.rank, body.attempt, at)
    return Response(pb.Reply(clocks=pb.Clocks(clocks=[joined.clock], out=joined.out)))


@command(_tick_bounds, repeatable=True)
def tick(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """The end of a rank's clock, with what it adds."""
    body = request.tick
    loop = session.barriers.get(Clocks, body.loop)
    pushes = _pushes(session, body.rows, payload, keep=loop.is_bsp)
    loop.tick(body.rank, body.attempt, body.clock, pushes, leave=body.leave)
    return Response(pb.Reply())


def _pushes(
    session: ServerSession, named: Sequence[pb.Rows], payload: Payload, *, keep: bool
) -> list[Push]:
    """The pushes of a tick, and room for what they change if that is to be kept."""
    targets = [session.store.shared(one.array.buffer, session.part(one.array)) for one in named]
    rows, rooms = received(session, named, payload, "adding to arrays in a loop", keep=keep)
    kept: Sequence[MemoryBlock | None] = rooms if keep else [None] * len(rows)
    return list(map(Push, targets, rows, kept))


@command(_pull_bounds, repeatable=True, waits=True)
def pull(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """Elements of an array once the ranks are near enough, with the rank's own ticks in them."""
    body = request.pull
    some = part = session.part(body.rows.array)
    array = session.store.shared(body.rows.array.buffer, part)
    loop = session.barriers.get(Clocks, body.loop)
    indices, blocks, what = None, list[MemoryBlock](), "pulling in a loop"
    if body.rows.HasField("indices"):
        indices, some, blocks = wanted(session, body.rows, payload, what, room=False)

    def room_for() -> np.ndarray:  # not before the wait, which may be long
        blocks.extend(session.store.memory.allocate([some.nbytes], what))
        return blocks[-1].array(part.type.dtype, some.shape)

    found, own = loop.pull(
        body.rank, body.attempt, body.clock, body.seconds, array, indices, room_for
    )
    reply = pb.Reply(payload=some.nbytes, clocks=pb.Clocks(clocks=[own]))
    return Response(reply, [byte_view(found)], blocks)


@command(name_within_bounds("loop"), repeatable=True)
def exclude_rank(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Let nobody wait for a rank that was not heard of."""
    body = request.exclude_rank
    session.barriers.get(Clocks, body.loop).exclude(body.rank, body.attempt)
    return Response(pb.Reply())


@command(name_within_bounds("loop"), repeatable=True)
def read_clocks(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """How many clocks each rank has ended."""
    clocks = session.barriers.get(Clocks, request.read_clocks.loop).clocks
    return Response(pb.Reply(clocks=pb.Clocks(clocks=clocks)))


@command(name_within_bounds("loop"), repeatable=True)
def close_loop(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """End a loop and all waits in it."""
    session.barriers.close(Clocks, request.close_loop.loop)
    return Response(pb.Reply())
