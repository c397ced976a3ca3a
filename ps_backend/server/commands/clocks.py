"""What a server does for requests that concern loops (``clocks.py``). Repeating one is harmless."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps_backend import limits
from ps_backend.limits import check, check_name
from ps_backend.server.checks import name_within_bounds, verify_array
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.commands.contributions import local_indices, loose_rows, received
from ps_backend.server.session import ServerSession
from ps_backend.server.state.clocks import Clocks
from ps_backend.server.state.lockstep import Push
from ps_backend.server.state.memory import MemoryBlock
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.chunks import byte_view


def _join_bounds(body: pb.JoinLoop) -> None:
    check_name("loop", body.loop)
    check("clock to go on at", body.at, 0, limits.MOST_CLOCK)


def _tick_bounds(body: pb.Tick) -> None:
    check_name("loop", body.loop)
    check("clock", body.clock, 0, limits.MOST_CLOCK - 1)
    check("pushes of a tick", len(body.pushes), 0, limits.MOST_TOTALS)
    for push in body.pushes:
        verify_array(push.array)


def _pull_bounds(body: pb.Pull) -> None:
    check_name("loop", body.loop)
    check("clock", body.clock, 0, limits.MOST_CLOCK)
    check("seconds to wait", body.seconds, 0, limits.LONGEST_SECONDS)
    verify_array(body.array)


@command(name_within_bounds("loop"), repeatable=True)
def open_loop(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """A loop with all its ranks at clock 0."""
    body = request.open_loop
    bound = body.staleness if body.HasField("staleness") else None
    session.meetings.open(
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
    joined = session.meetings.get(Clocks, body.loop).join(body.rank, body.attempt, at)
    return Response(pb.Reply(clocks=pb.Clocks(clocks=[joined.clock], out=joined.out)))


@command(_tick_bounds, repeatable=True)
def tick(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """The end of a rank's clock, with what it adds."""
    body = request.tick
    loop = session.meetings.get(Clocks, body.loop)
    pushes = _pushes(session, body.pushes, payload, keep=loop.in_lockstep)
    loop.tick(body.rank, body.attempt, body.clock, pushes, leave=body.leave)
    return Response(pb.Reply())


def _pushes(
    session: ServerSession, given: Sequence[pb.Push], payload: Payload, *, keep: bool
) -> list[Push]:
    """The pushes of a tick, and room for what they change if that is to be kept."""
    parts = [session.part(one.array) for one in given]
    targets = [
        session.store.shared(one.array.buffer, part) for one, part in zip(given, parts, strict=True)
    ]
    counts = [None if one.dense else one.count for one in given]
    contributions, rooms = received(
        session.store.memory,
        list(zip(parts, counts, strict=True)),
        payload,
        "adding to arrays in a loop",
        keep=keep,
    )
    kept: Sequence[MemoryBlock | None] = rooms if keep else [None] * len(parts)
    return list(map(Push, targets, contributions, kept))


@command(_pull_bounds, repeatable=True, waits=True)
def pull(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """Elements of an array once the ranks are near enough, with the rank's own ticks in them."""
    body = request.pull
    memory, part = session.store.memory, session.part(body.array)
    array = session.store.shared(body.array.buffer, part)
    loop = session.meetings.get(Clocks, body.loop)
    rows = part if body.dense else loose_rows(part, body.count)
    indices, blocks = local_indices(
        memory, part, 0 if body.dense else body.count, payload, "pulling in a loop"
    )
    wanted = None if body.dense else indices

    def room_for() -> np.ndarray:  # not before the wait, which may be long
        blocks.extend(memory.allocate([rows.nbytes], "pulling in a loop"))
        return blocks[-1].array(part.type.dtype, rows.shape)

    found, own = loop.pull(
        body.rank, body.attempt, body.clock, body.seconds, array, wanted, room_for
    )
    reply = pb.Reply(payload=rows.nbytes, clocks=pb.Clocks(clocks=[own]))
    return Response(reply, [byte_view(found)], blocks)


@command(name_within_bounds("loop"), repeatable=True)
def exclude_rank(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Let nobody wait for a rank that was not heard of."""
    body = request.exclude_rank
    session.meetings.get(Clocks, body.loop).exclude(body.rank, body.attempt)
    return Response(pb.Reply())


@command(name_within_bounds("loop"), repeatable=True)
def read_clocks(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """How many clocks each rank has ended."""
    clocks = session.meetings.get(Clocks, request.read_clocks.loop).clocks
    return Response(pb.Reply(clocks=pb.Clocks(clocks=clocks)))


@command(name_within_bounds("loop"), repeatable=True)
def close_loop(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """End a loop and all waits in it."""
    session.meetings.close(Clocks, request.close_loop.loop)
    return Response(pb.Reply())
