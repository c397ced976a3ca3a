"""What a server does for requests that concern loops (``clocks.py``). Repeating one is harmless."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from ps_backend.server.commands.data import (
    INDEX_BYTES,
    Command,
    Outcome,
    Payload,
    localize,
    loose_rows,
)
from ps_backend.server.session import Session
from ps_backend.server.state.lockstep import Addition
from ps_backend.server.state.memory import Block
from ps_backend.server.state.rounds import Contribution
from ps_backend.server.state.store import Part
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.chunks import byte_view


def open_loop(session: Session, request: pb.Request, _: Payload) -> Outcome:
    """A loop with all its ranks at clock 0."""
    body = request.open_loop
    bound = body.staleness if body.HasField("staleness") else None
    session.loops.open(body.loop, body.ranks, bound)
    return Outcome(pb.Reply())


def join_loop(session: Session, request: pb.Request, _: Payload) -> Outcome:
    """Where a rank goes on, and who speaks for it from now on."""
    body = request.join_loop
    at = body.at if body.HasField("at") else None
    joined = session.loops.get(body.loop).join(body.rank, body.attempt, at)
    return Outcome(pb.Reply(clocks=pb.Clocks(clocks=[joined.clock], out=joined.out)))


def tick(session: Session, request: pb.Request, payload: Payload) -> Outcome:
    """The end of a rank's clock, with what it adds."""
    body = request.tick
    loop = session.loops.get(body.loop)
    additions = _additions(session, body.additions, payload, keep=loop.in_lockstep)
    loop.tick(body.rank, body.attempt, body.clock, additions, leave=body.leave)
    return Outcome(pb.Reply())


def _additions(
    session: Session, given: Sequence[pb.Addition], payload: Payload, *, keep: bool
) -> list[Addition]:
    """The additions of a tick, and room for what they change if that is to be kept."""
    parts = [session.part(one.array) for one in given]
    targets = [
        session.store.get(one.array.buffer, part) for one, part in zip(given, parts, strict=True)
    ]
    rows = [
        part if one.dense else loose_rows(part, one.count)
        for one, part in zip(given, parts, strict=True)
    ]
    counts = [0 if one.dense else one.count for one in given]
    sizes = [sum(counts) * INDEX_BYTES + sum(part.nbytes for part in rows)]
    sizes += [part.nbytes for part in rows] if keep else []
    payload.expect(sizes[0])
    block, *rooms = session.store.memory.allocate(sizes, "adding to arrays in a loop")
    payload.into(byte_view(block.bytes))
    contributions = _cut(block, parts, rows, counts, [one.dense for one in given])
    kept: Sequence[Block | None] = rooms if keep else [None] * len(parts)
    return list(map(Addition, targets, contributions, kept))


def _cut(
    block: Block,
    parts: Sequence[Part],
    rows: Sequence[Part],
    counts: Sequence[int],
    dense: Sequence[bool],
) -> list[Contribution]:
    """The contributions that lie in ``block``: all their indices, then all their values."""
    found = []
    at, value_at = 0, sum(counts) * INDEX_BYTES
    for part, some, count, whole in zip(parts, rows, counts, dense, strict=True):
        indices = block.bytes[at : at + count * INDEX_BYTES].view(np.int64)
        localize(indices, part)
        values = block.bytes[value_at : value_at + some.nbytes].view(np.dtype(part.type.dtype))
        found.append(
            Contribution(
                part.space.length, None if whole else indices, values.reshape(some.shape), block
            )
        )
        at, value_at = at + indices.nbytes, value_at + some.nbytes
    return found


def pull(session: Session, request: pb.Request, payload: Payload) -> Outcome:
    """Elements of an array once the ranks are near enough, with the rank's own ticks in them."""
    body = request.pull
    memory, part = session.store.memory, session.part(body.array)
    buffer = session.store.get(body.array.buffer, part)
    loop = session.loops.get(body.loop)
    rows = part if body.dense else loose_rows(part, body.count)
    size = 0 if body.dense else body.count * INDEX_BYTES
    payload.expect(size)
    blocks = memory.allocate([size], "pulling in a loop")
    payload.into(byte_view(blocks[0].bytes))
    wanted = None if body.dense else blocks[0].array(np.dtype(np.int64), (body.count,))
    if wanted is not None:
        localize(wanted, part)

    def room_for() -> np.ndarray:  # not before the wait, which may be long
        blocks.extend(memory.allocate([rows.nbytes], "pulling in a loop"))
        return blocks[-1].array(np.dtype(part.type.dtype), rows.shape)

    found, own = loop.pull(
        body.rank, body.attempt, body.clock, body.seconds, buffer, wanted, room_for
    )
    reply = pb.Reply(payload=rows.nbytes, clocks=pb.Clocks(clocks=[own]))
    return Outcome(reply, [byte_view(found)], blocks)


def exclude_rank(session: Session, request: pb.Request, _: Payload) -> Outcome:
    """Let nobody wait for a rank that was not heard of."""
    body = request.exclude_rank
    session.loops.get(body.loop).exclude(body.rank, body.attempt)
    return Outcome(pb.Reply())


def read_clocks(session: Session, request: pb.Request, _: Payload) -> Outcome:
    """How many clocks each rank has ended."""
    clocks = session.loops.get(request.read_clocks.loop).clocks
    return Outcome(pb.Reply(clocks=pb.Clocks(clocks=clocks)))


def close_loop(session: Session, request: pb.Request, _: Payload) -> Outcome:
    """End a loop and all waits in it."""
    session.loops.close_loop(request.close_loop.loop)
    return Outcome(pb.Reply())


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "open_loop": open_loop,
        "join_loop": join_loop,
        "tick": tick,
        "pull": pull,
        "exclude_rank": exclude_rank,
        "read_clocks": read_clocks,
        "close_loop": close_loop,
    }
)
