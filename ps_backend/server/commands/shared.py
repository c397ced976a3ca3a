"""Shared arrays: what many add to in place, as tasks do at any time and loops at their clocks.

One begins as a copy of a buffer, is read by who says that it is a shared one, and ends as a buffer.
"""

from __future__ import annotations

import numpy as np

from ps_backend import limits
from ps_backend.limits import check
from ps_backend.server.checks import array_within_bounds, verify_array
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.commands.contributions import pairs
from ps_backend.server.session import ServerSession
from ps_backend.wire import ps_pb2 as pb


def _bounds(body: pb.Share | pb.Snapshot) -> None:
    check("arrays to copy", len(body.arrays), 0, limits.MOST_TOTALS)
    check("targets", len(body.targets), len(body.arrays), len(body.arrays))
    for array in body.arrays:
        verify_array(array)


@command(_bounds)
def share(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """New shared arrays: copies of buffers."""
    body, store = request.share, session.store
    parts = [session.part(one) for one in body.arrays]
    sources = [store.get(one.buffer, part) for one, part in zip(body.arrays, parts, strict=True)]
    store.refuse_taken(body.targets)
    copies = store.new(parts, "sharing an array")
    for source, copy in zip(sources, copies, strict=True):
        np.copyto(copy.array, source.array)
    store.share(dict(zip(body.targets, copies, strict=True)))
    return Response(pb.Reply())


@command(array_within_bounds, keeps_undo=True)
def update(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """Add rows to a shared array, one request at a time."""
    body = request.update
    store, part = session.store, session.part(body.array)
    target = store.shared(body.array.buffer, part)
    target.add(pairs(store.memory, part, body.count, payload, "adding to an array"))
    return Response(pb.Reply())


@command(_bounds)
def snapshot(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """New buffers with the values of shared arrays, which are over if it is the ``last`` one."""
    body, store = request.snapshot, session.store
    parts = [session.part(one) for one in body.arrays]
    sources = [store.shared(one.buffer, part) for one, part in zip(body.arrays, parts, strict=True)]
    if body.last:
        numbers = [one.buffer for one in body.arrays]
        store.end_shared(dict(zip(numbers, body.targets, strict=True)))
        return Response(pb.Reply())
    store.refuse_taken(body.targets)
    copies = store.new(parts, "taking a snapshot")
    for source, copy in zip(sources, copies, strict=True):
        source.copy_into(copy)
    store.put(dict(zip(body.targets, copies, strict=True)))
    return Response(pb.Reply())
