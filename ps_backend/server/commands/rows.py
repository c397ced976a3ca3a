"""Rows of arrays, in and out: all, some, at indices, where a mask is true."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ps_backend import limits
from ps_backend.errors import InvalidProgram
from ps_backend.kernels.collectives.partition import take
from ps_backend.limits import MOST_FORCED_BYTES, check
from ps_backend.server.bounds import array_within_bounds, verify_array, verify_space
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.session import ServerSession
from ps_backend.server.state.memory import Memory, MemoryBlock, rounded
from ps_backend.server.state.rounds import Contribution
from ps_backend.server.state.store import Buffer, Part
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.barriers import Winner
from ps_backend.wire.chunks import byte_view
from ps_backend.wire.codec import space_of

INDEX_BYTES = 8


def loose_rows(part: Part, count: int) -> Part:
    """The type of ``count`` loose rows of an array."""
    return Part(part.type, 0, count)


def received(
    memory: Memory,
    arrays: Sequence[tuple[Part, int | None]],
    payload: Payload,
    what: str,
    *,
    keep: bool = False,
    force: bool = False,
) -> tuple[list[Contribution], list[MemoryBlock]]:
    """What came along for ``arrays``: rows for so many indices, or all rows of the part (None).

    The payload is all their indices, then all their values; the indices are checked and made local.
    Beside it, if they ``keep`` what they change, room for that: a block for each.
    """
    rows = [part if count is None else loose_rows(part, count) for part, count in arrays]
    at, value_at = 0, sum([count or 0 for _, count in arrays]) * INDEX_BYTES
    sizes = [some.nbytes for some in rows]
    needed = [value_at + sum(sizes), *(sizes if keep else ())]
    block, *rooms = _filled(memory, needed, payload, what, force=force)
    found = []
    for (part, count), some in zip(arrays, rows, strict=True):
        indices = None
        if count is not None:
            indices = block.bytes[at : at + count * INDEX_BYTES].view(np.int64)
            _localize(indices, part)
            at += indices.nbytes
        values = block.bytes[value_at : value_at + some.nbytes].view(part.type.dtype)
        found.append(Contribution(part.type, indices, values.reshape(some.shape), block))
        value_at += some.nbytes
    return found, rooms


def pairs(
    memory: Memory, part: Part, count: int, payload: Payload, what: str, *, force: bool = False
) -> Contribution:
    """Indices and rows for one array."""
    (found,), _ = received(memory, [(part, count)], payload, what, force=force)
    return found


def contribution(
    session: ServerSession, body: pb.Stage | pb.Answer, payload: Payload, what: str
) -> Contribution:
    """What came along: rows for indices, or all rows of this server's part."""
    count = None if body.dense else body.count
    (found,), _ = received(session.store.memory, [(session.part(body.type), count)], payload, what)
    return found


def local_indices(
    memory: Memory, part: Part, count: int, payload: Payload, what: str, *more: int
) -> tuple[np.ndarray, list[MemoryBlock]]:
    """The indices that came along, made local as in ``received``; their block, and more blocks."""
    payload.expect(count * INDEX_BYTES)
    blocks = memory.allocate([rounded(size) for size in (payload.size, *more)], what)
    indices = blocks[0].array(np.dtype(np.int64), (count,))
    payload.into(byte_view(indices))
    _localize(indices, part)
    return indices, blocks


def _filled(
    memory: Memory, sizes: Sequence[int], payload: Payload, what: str, *, force: bool = False
) -> list[MemoryBlock]:
    """Blocks of these sizes, the first with the payload in it."""
    payload.expect(sizes[0])
    blocks = memory.allocate(sizes, what, force=force)
    payload.into(byte_view(blocks[0].bytes))
    return blocks


def _localize(indices: np.ndarray, part: Part) -> None:
    """Make global ``indices`` count from the part's first row; ``IndexError`` if one is outside."""
    if indices.size and not (part.low <= indices.min() and indices.max() < part.high):
        raise IndexError(
            f"indices {indices.min()} .. {indices.max()} are not all in {part.low} .. "
            f"{part.high - 1}, which this server holds of {part.type.space}"
        )
    indices -= part.low


@command(lambda body: verify_array(body.target))
def write(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """A new buffer with the values that came along."""
    part = session.part(request.write.target)
    payload.expect(part.nbytes)
    (buffer,) = session.store.new([part], "writing an array")
    payload.into(byte_view(buffer.array))
    session.store.put({request.write.target.buffer: buffer})
    return Response(pb.Reply())


@command(array_within_bounds, repeatable=True)
def read(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Values of a buffer, straight from its memory: all, or those of some rows that follow each
    other; of a shared array those of now."""
    body = request.read
    part = session.part(body.array)
    find = session.store.shared if body.shared else session.store.get
    found = find(body.array.buffer, part)
    rows = found.array
    if body.count:
        first, last = body.first - part.low, body.first + body.count - part.low
        if not 0 <= first < last <= len(rows):
            raise ValueError(
                f"{body.count} rows from {body.first} on are not all in {part.low}:{part.high}"
            )
        rows = rows[first:last]
    parts = [byte_view(rows)]
    return Response(pb.Reply(payload=len(parts[0])), parts, [found])


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


_CHUNK = 1 << 15
"""Rows at a time: what was read of them for the mask is near still."""


def _masks_bounds(body: pb.Compress | pb.Expand) -> None:
    verify_array(body.array)
    verify_space(body.chosen)


@command(_masks_bounds)
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


@command(_masks_bounds)
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
