"""Rows where a mask is true: put one after the other, and back to where they came from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ps_backend.errors import InvalidProgram
from ps_backend.server.checks import verify_array, verify_space
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.session import ServerSession
from ps_backend.server.state.store import Buffer, Part
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import space_of

_CHUNK = 1 << 15
"""Rows at a time: what was read of them for the mask is near still."""


def _bounds(body: pb.Compress | pb.Expand) -> None:
    verify_array(body.array)
    verify_space(body.chosen)


@command(_bounds)
def compress(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """A new buffer: the rows of the source where the mask is true, in their order."""
    body = request.compress
    store = session.store
    source, mask = _aligned(session, body)
    part = _chosen(session, body)
    _verify_count(mask, part.high - part.low)
    store.refuse_taken([body.target])
    (target,) = store.new([part], "choosing rows of an array")
    rows = source.array.reshape(-1, *part.type.row)
    for some, places in _chunks(mask):
        np.compress(mask[some], rows[some], axis=0, out=target.array[places])
    store.put({body.target: target})
    return Response(pb.Reply())


@command(_bounds)
def expand(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """A new buffer: the source, with ``values`` one after the other where the mask is true."""
    body = request.expand
    store = session.store
    source, mask = _aligned(session, body)
    part = _chosen(session, body)
    count = part.high - part.low
    values = store.get(body.values, part) if count else None  # of a server without any: not here
    _verify_count(mask, count)
    store.refuse_taken([body.target])
    (target,) = store.new([source.part], "putting rows into an array")
    old, new = (buffer.array.reshape(-1, *part.type.row) for buffer in (source, target))
    for some, places in _chunks(mask):
        new[some] = old[some]
        if values is not None:
            new[some][mask[some]] = values.array[places]
    store.put({body.target: target})
    return Response(pb.Reply())


def _aligned(
    session: ServerSession, body: pb.Compress | pb.Expand
) -> tuple[Buffer, npt.NDArray[np.bool_]]:
    """The source, and what says of each of its rows (or elements) whether it is chosen."""
    part = session.part(body.array)
    source = session.store.get(body.array.buffer, part)
    row = part.type.row if body.single else ()
    mask = session.store.get(body.mask, session.part_of(part.type.space, "bool", row))
    return source, mask.array.reshape(-1)


def _chosen(session: ServerSession, body: pb.Compress | pb.Expand) -> Part:
    """What the chosen rows (or elements) are here."""
    row = () if body.single else tuple(body.array.row)
    return session.part_of(space_of(body.chosen), body.array.dtype, row)


def _verify_count(mask: npt.NDArray[np.bool_], count: int) -> None:
    found = int(np.count_nonzero(mask))
    if found != count:
        raise InvalidProgram(f"the mask is true at {found} of the rows here, and not at {count}")


def _chunks(mask: npt.NDArray[np.bool_]) -> Iterator[tuple[slice, slice]]:
    """Rows in order, and where those of them stand that are chosen."""
    done = 0
    for low in range(0, len(mask), _CHUNK):
        rows = slice(low, low + _CHUNK)
        count = int(np.count_nonzero(mask[rows]))
        yield rows, slice(done, done + count)
        done += count
