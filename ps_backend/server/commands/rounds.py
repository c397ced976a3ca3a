"""Rounds: contributions that are staged, and committed together."""

from __future__ import annotations

import numpy as np

from ps_backend import limits
from ps_backend.limits import check, check_name
from ps_backend.server.checks import name_within_bounds, verify_array
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.commands.contributions import contribution
from ps_backend.server.session import ServerSession
from ps_backend.server.state.rounds import Contribution
from ps_backend.server.state.store import Part
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.rounds import OPERATIONS, Key, Winner


def _stage_bounds(body: pb.Stage) -> None:
    check_name("round", body.round)
    verify_array(body.type)


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
    session.rounds.stage(
        body.round, key, contribution(session, body, payload, "staging to a round")
    )
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


def _staged(session: ServerSession, round: str, total: pb.Total, part: Part) -> list[Contribution]:
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
