"""Rows at indices: read, or added to a new array."""

from __future__ import annotations

import numpy as np

from ps_backend.kernels.moving.random_access import take
from ps_backend.limits import MOST_FORCED_BYTES
from ps_backend.server.checks import array_within_bounds
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.commands.contributions import local_indices, loose_rows, pairs
from ps_backend.server.session import ServerSession
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.chunks import byte_view
from ps_backend.wire.rounds import Winner


@command(array_within_bounds, repeatable=True)
def gather(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """The rows at the indices that came along, in their order; of a shared array those of now."""
    body = request.gather
    part = session.part(body.array)
    find = session.store.shared if body.shared else session.store.get
    source = find(body.array.buffer, part)
    rows = loose_rows(part, body.count)
    indices, blocks = local_indices(
        session.store.memory, part, body.count, payload, "gathering from an array", rows.nbytes
    )
    found = blocks[1].array(part.type.dtype, rows.shape)
    take(source.array, 0, indices, found)
    return Response(pb.Reply(payload=rows.nbytes), [byte_view(found)], blocks)


@command(array_within_bounds)
def scatter_add(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """A new buffer: the source with rows added at indices, in the order given."""
    body = request.scatter_add
    store, part = session.store, session.part(body.array)
    source = store.get(body.array.buffer, part)
    store.refuse_taken([body.target])
    if body.round:
        (given,) = session.rounds.winners(body.round, 0, [Winner(0, 0)], part.type)
    else:
        # Where the other servers gave the source away, this one must not refuse for so little.
        force = body.donate and payload.size <= MOST_FORCED_BYTES
        given = pairs(store.memory, part, body.count, payload, "adding to an array", force=force)
    with store.writing([body.array.buffer] if body.donate else []) as own:
        if own:
            target = source
        else:
            (target,) = store.new([part], "adding to an array")
            np.copyto(target.array, source.array)
        given.combine_into(target.array, np.add)
        if body.round:
            session.rounds.drop(body.round)
        store.put({body.target: target}, instead_of=[body.array.buffer] if body.donate else [])
    return Response(pb.Reply())
