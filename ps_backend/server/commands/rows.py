"""Rows of arrays, in and out: all, some, at indices, where a mask is true."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ps_backend import limits
from ps_backend.errors import InvalidProgram
from ps_backend.kernels.collectives.partition import compress as compress_rows
from ps_backend.kernels.collectives.partition import take
from ps_backend.limits import MOST_FORCED_BYTES, check
from ps_backend.server.bounds import verify_array, verify_space
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.sessions import ServerSession
from ps_backend.server.state.memory import MemoryBlock, rounded
from ps_backend.server.state.store import Buffer, Part, Rows
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import space_of
from ps_backend.wire.protocol import Winner, byte_view

_INDEX_BYTES = 8

# --- rows in payloads -----------------------------------------------------------------------------


def received(
    session: ServerSession,
    named: Sequence[pb.Rows],
    payload: Payload,
    what: str,
    *,
    keep: bool = False,
    force: bool = False,
) -> tuple[list[Rows], list[MemoryBlock]]:
    """The rows that came along, at indices or for all of the part.

    The payload is all their indices, then all their values; the indices are checked and made local.
    Beside it, if they ``keep`` what they change, room for that: a block for each.
    """
    parts = [session.part(one.array) for one in named]
    counts = [one.indices if one.HasField("indices") else None for one in named]
    loose = [
        part if count is None else Part(part.type, 0, count)
        for part, count in zip(parts, counts, strict=True)
    ]
    at, value_at = 0, sum([count or 0 for count in counts]) * _INDEX_BYTES
    sizes = [some.nbytes for some in loose]
    total = value_at + sum(sizes)
    payload.expect(total)
    needed = [total, *(sizes if keep else ())]
    block, *rooms = session.store.memory.allocate(needed, what, force=force)
    payload.into(byte_view(block.bytes))
    found = []
    for part, count, some in zip(parts, counts, loose, strict=True):
        indices = None
        if count is not None:
            indices = block.bytes[at : at + count * _INDEX_BYTES].view(np.int64)
            _localize(indices, part)
            at += indices.nbytes
        values = block.bytes[value_at : value_at + some.nbytes].view(part.type.dtype)
        found.append(Rows(part.type, indices, values.reshape(some.shape), block))
        value_at += some.nbytes
    return found, rooms


def wanted(
    session: ServerSession,
    part: Part,
    count: int,
    payload: Payload,
    what: str,
    *,
    room: bool = True,
) -> tuple[npt.NDArray[np.int64], Part, list[MemoryBlock]]:
    """The ``count`` indices that came along, counted from the first row of ``part``; the rows there
    by themselves, and ``room`` for them."""
    some = Part(part.type, 0, count)
    payload.expect(count * _INDEX_BYTES)
    sizes = [payload.size, some.nbytes] if room else [payload.size]
    blocks = session.store.memory.allocate([rounded(size) for size in sizes], what)
    indices = blocks[0].array(np.dtype(np.int64), (count,))
    payload.into(byte_view(indices))
    _localize(indices, part)
    return indices, some, blocks


def _localize(indices: np.ndarray, part: Part) -> None:
    """Make global ``indices`` count from the part's first row; ``IndexError`` if one is outside."""
    if indices.size and not (part.low <= indices.min() and indices.max() < part.high):
        raise IndexError(
            f"indices {indices.min()} to {indices.max()} are out of range: this server stores "
            f"{part.low} to {part.high - 1} of {part.type.space}"
        )
    indices -= part.low


# --- read and written -----------------------------------------------------------------------------


def rows_within_bounds(body: pb.Read | pb.Write) -> None:
    """For a message with ``rows``."""
    verify_array(body.rows.array)


@command(rows_within_bounds, repeatable=True)
def read(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """Rows of a buffer, straight from its memory, or those at the indices that came along, in their
    order; of a shared array those of now."""
    body = request.read
    part = session.part(body.rows.array)
    find = session.store.shared if body.shared else session.store.get
    source = find(body.rows.array.buffer, part)
    if body.rows.HasField("indices"):
        what = "gathering from an array"
        indices, some, blocks = wanted(session, part, body.rows.indices, payload, what)
        found = blocks[1].array(part.type.dtype, some.shape)
        take(source.array, 0, indices, found)
        return Response(pb.Reply(payload=some.nbytes), [byte_view(found)], blocks)
    rows, count = source.array, body.rows.count
    if count:
        first, last = body.rows.first - part.low, body.rows.first + count - part.low
        if not 0 <= first < last <= len(rows):
            raise ValueError(
                f"{count} rows from {body.rows.first} on are out of range {part.low}:{part.high}"
            )
        rows = rows[first:last]
    parts = [byte_view(rows)]
    return Response(pb.Reply(payload=len(parts[0])), parts, [source])


@command(rows_within_bounds, keeps_undo=True)
def write(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """A new buffer of the rows that came along, or one with them added, or a shared array with them
    added in place, one request at a time; in the order given."""
    body, store = request.write, session.store
    part = session.part(body.rows.array)
    if body.rows.array.buffer:
        _add(session, body, part, payload)
        return Response(pb.Reply())
    if body.rows.HasField("indices") or not body.target:
        raise ValueError("a new array needs all of its rows, and a number")
    payload.expect(part.nbytes)
    (buffer,) = store.new([part], "writing an array")
    payload.into(byte_view(buffer.array))
    store.put({body.target: buffer})
    return Response(pb.Reply())


def _add(session: ServerSession, body: pb.Write, part: Part, payload: Payload) -> None:
    """Add rows to a shared array, or to a buffer, which makes a new one."""
    store, number, what = session.store, body.rows.array.buffer, "adding to an array"
    if not body.target:
        shared = store.shared(number, part)
        (given,), _ = received(session, [body.rows], payload, what)
        shared.add(given)
        return
    source = store.get(number, part)
    store.refuse_taken([body.target])
    if body.round:
        (given,) = session.rounds.winners(body.round, 0, [Winner(0, 0)], part.type)
    else:
        # Where the other servers gave the source away, this one must not refuse for so little.
        force = body.donate and payload.size <= MOST_FORCED_BYTES
        (given,), _ = received(session, [body.rows], payload, what, force=force)
    given_away = [number] if body.donate else []
    with store.writing(given_away) as own:
        if own:
            target = source.successor()
        else:
            (target,) = store.new([part], what)
            np.copyto(target.array, source.array)
        given.combine_into(target.array, np.add)
        if body.round:
            session.rounds.drop(body.round)
        store.put({body.target: target}, instead_of=given_away)


# --- shared arrays --------------------------------------------------------------------------------


def _copy_bounds(body: pb.Copy) -> None:
    check("arrays to copy", len(body.arrays), 0, limits.MOST_TOTALS)
    check("targets", len(body.targets), len(body.arrays), len(body.arrays))
    for array in body.arrays:
        verify_array(array)


@command(_copy_bounds)
def copy(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Shared arrays with the values of buffers, or buffers with those of shared arrays, which are
    over if it is the ``last`` copy."""
    body, store = request.copy, session.store
    parts = [session.part(one) for one in body.arrays]
    find = store.get if body.share else store.shared
    sources = [find(one.buffer, part) for one, part in zip(body.arrays, parts, strict=True)]
    if body.last and not body.share:
        numbers = [one.buffer for one in body.arrays]
        store.end_shared(dict(zip(numbers, body.targets, strict=True)))
        return Response(pb.Reply())
    store.refuse_taken(body.targets)
    copies = store.new(parts, "sharing an array" if body.share else "taking a snapshot")
    for source, target in zip(sources, copies, strict=True):
        source.copy_into(target)
    publish = store.share if body.share else store.put
    publish(dict(zip(body.targets, copies, strict=True)))
    return Response(pb.Reply())


# --- masks ----------------------------------------------------------------------------------------

_CHUNK = 1 << 15
"""Rows at a time: what was read of them for the mask is near still."""


def _compress_bounds(body: pb.Compress) -> None:
    verify_array(body.array)
    verify_space(body.chosen)


@command(_compress_bounds)
def compress(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """A new buffer: the rows of the source where the mask is true, in their order; with ``values``
    the source, with these one after the other where the mask is true."""
    body, store = request.compress, session.store
    part = session.part(body.array)
    source = store.get(body.array.buffer, part)
    row = () if body.single else part.type.row
    aligned = session.part_of(part.type.space, "bool", part.type.row if body.single else ())
    mask = store.get(body.mask, aligned).array.reshape(-1)
    chosen = session.part_of(space_of(body.chosen), body.array.dtype, row)
    count = chosen.high - chosen.low
    values: Buffer | None = None
    if body.values and count:  # of a server without any: not here
        values = store.get(body.values, chosen)
    true = int(np.count_nonzero(mask))
    if true != count:
        raise InvalidProgram(f"the mask selects {true} rows on this server, not {count}")
    store.refuse_taken([body.target])
    (target,) = store.new(
        [part if body.values else chosen],
        "putting rows into an array" if body.values else "choosing rows of an array",
    )
    old = source.array.reshape(-1, *row)
    new = target.array.reshape(-1, *row)
    if not body.values:
        compress_rows(mask, old, new)
    for some, places in _chunks(mask) if body.values else ():
        new[some] = old[some]
        if values is not None:
            new[some][mask[some]] = values.array[places]
    store.put({body.target: target})
    return Response(pb.Reply())


def _chunks(mask: npt.NDArray[np.bool_]) -> Iterator[tuple[slice, slice]]:
    """Rows in order, and where those of them stand that are chosen."""
    done = 0
    for low in range(0, len(mask), _CHUNK):
        rows = slice(low, low + _CHUNK)
        count = int(np.count_nonzero(mask[rows]))
        yield rows, slice(done, done + count)
        done += count
