"""A keyed space as it was saved, in place of what a server has of it now, or had before it died."""

from __future__ import annotations

import secrets

from ps_backend import limits
from ps_backend.errors import InvalidProgram
from ps_backend.limits import check
from ps_backend.server.checks import verify_array
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.commands.durability import read_saved
from ps_backend.server.commands.keyed_spaces import (
    adopt,
    keys_bounds,
    new_rows,
    new_space,
    rows_bounds,
    verify_part,
)
from ps_backend.server.session import ServerSession
from ps_backend.server.state.keyed.space import Counts
from ps_backend.server.state.store import Buffer
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.keyed import decode_state

_VERSION_BITS = 60


def _restored_bounds(body: pb.RestoreKeys) -> None:
    keys_bounds(body.space)
    check("arrays", len(body.arrays), 0, limits.MOST_VALUES)
    check("rows", len(body.rows), len(body.arrays), len(body.arrays))
    for array in body.arrays:
        rows_bounds(array)
    for one in (body.keys, body.waiting, *body.rows):
        verify_array(one.array)


@command(_restored_bounds, waits=True)
def restore_keys(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Let a keyed space be as it was saved; all of it is read before anything changes."""
    body = request.restore_keys
    number = body.space.space
    made = new_space(session, body.space)
    for array in body.arrays:
        made.add_array(array.array, new_rows(array))
    most, made.most_bytes = made.most_bytes, 0  # it had room for them before
    with made.lock:
        adopt(session, made, _loaded(session, body.keys).array)
        for array, one in zip(body.arrays, body.rows, strict=True):
            (rows,) = made.rows_of([array.array])
            loaded = _loaded(session, one)
            verify_part(made, loaded.part, rows.type)
            rows.store.copy_from(loaded.array)
        if made.admission is not None and body.HasField("waiting"):
            loaded = _loaded(session, body.waiting)
            if loaded.part.type.value != made.admission.type:
                raise InvalidProgram(f"{loaded.part.type} are no counters of keys")
            made.admission.copy_from(loaded.array)
        state = decode_state(body.state)
        made.counts = Counts(state.evicted, state.refused, state.waiting)
        made.most_bytes = most
        made.version = secrets.randbits(_VERSION_BITS)  # not one that a lost server had
    there, mark = session.keyed.by_number.get(number), made.mark
    if there is None:
        session.keyed.add(number, made)
    else:
        mark = there.become(made)
    answer = pb.PinnedKeys(space=number, mark=mark)
    return Response(pb.Reply(pinned=pb.Pinned(spaces=[answer])))


def _loaded(session: ServerSession, saved: pb.Saved) -> Buffer:
    """This server's rows of what was saved."""
    part = session.part(saved.array)
    (buffer,) = session.store.new([part], "loading rows of keys")
    read_saved(session, saved, part, buffer)
    return buffer
