"""Keyed spaces: made, laid out, frozen into buffers and back, restored from files, and cut down."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend import limits
from ps_backend.errors import InvalidProgram
from ps_backend.kernels.keyed.index import RangeIndex
from ps_backend.kernels.keyed.rows import RowStore
from ps_backend.limits import check
from ps_backend.program.keys import Partition
from ps_backend.program.types import ValueType, dtype_of
from ps_backend.server.bounds import verify_array, verify_row
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.commands.files import read_saved
from ps_backend.server.session import ServerSession
from ps_backend.server.state.keyed.admission import Admission, ExactCounts, Sketch
from ps_backend.server.state.keyed.space import Counts, KeyedRows, KeyedSpace
from ps_backend.server.state.store import Buffer, Part
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.chunks import byte_view
from ps_backend.wire.codec import decode_type
from ps_backend.wire.keyed import decode_fill, decode_state, encode_state

Array = npt.NDArray[Any]

_MOST_ADMIT = 255


def keys_bounds(body: pb.MakeKeys) -> None:
    """Of what makes a space."""
    check("admit", body.admit, 0, _MOST_ADMIT)
    check("bytes of a sketch", body.sketch, 0, limits.MOST_LENGTH)
    check("length of a range", body.length, 0, limits.MOST_LENGTH)


@command(keys_bounds)
def make_keys(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """A keyed space without keys."""
    body = request.make_keys
    session.keyed.add(body.space, new_space(session, body))
    return Response(pb.Reply())


def new_space(session: ServerSession, body: pb.MakeKeys) -> KeyedSpace:
    """One without keys, which nobody else knows."""
    memory = session.store.memory
    admission: Admission | None = None
    if body.admit > 1:
        needed = body.sketch or 0
        kept = memory.reserve(needed, "counters of keys that are not admitted yet")
        admission = Sketch(body.admit, body.sketch) if needed else ExactCounts(body.admit)
        del kept
    partition, index = Partition(body.length), None
    if body.length:
        index = RangeIndex(partition, session.index, session.servers)
    return KeyedSpace(
        memory,
        most_bytes=body.most_bytes,
        admission=admission,
        partition=partition,
        index=index,
    )


def rows_bounds(body: pb.MakeRows) -> None:
    """Of what makes an array."""
    verify_row(body.type.row)
    check("parameters of initial values", len(body.params), 0, 2)


@command(rows_bounds)
def make_rows(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """An array over the keys of a space."""
    body = request.make_rows
    session.keyed.get(body.space).add_array(body.array, new_rows(body))
    return Response(pb.Reply())


def new_rows(body: pb.MakeRows) -> KeyedRows:
    """An array without rows."""
    type = decode_type(body.type)
    return KeyedRows(type, RowStore(dtype_of(type.dtype), type.row, decode_fill(body)))


@command(repeatable=True)
def layout(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """How many keys there are, and which layout this is."""
    space = session.keyed.get(request.layout.space)
    with space.lock:
        state = space.state
    return Response(pb.Reply(keyed=encode_state(state)))


@command(repeatable=True)
def read_keys(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Some of the keys, in the order of buckets and slots."""
    body = request.read_keys
    space = session.keyed.get(body.space)
    with space.lock:
        space.check_version(body.version)
        if body.first + body.count > len(space.index):
            raise IndexError(f"{body.count} keys from {body.first} on, of {len(space.index)}")
        (block,) = session.store.memory.allocate([8 * body.count], "reading keys")
        keys = block.array(np.dtype(np.int64), (body.count,))
        keys[:] = space.index.keys_between(body.first, body.first + body.count)
    return Response(pb.Reply(payload=keys.nbytes), [byte_view(keys)], [block])


def _frozen_bounds(body: pb.FreezeRows | pb.ThawRows) -> None:
    check("arrays", len(body.sources), 0, limits.MOST_TOTALS)
    check("targets", len(body.targets), len(body.sources), len(body.sources))
    arrays = body.targets if isinstance(body, pb.FreezeRows) else body.sources
    for array in arrays:
        verify_array(array)


@command(_frozen_bounds)
def freeze_rows(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Buffers with the rows that arrays have now, or with the keys, in the order of the layout."""
    body, store = request.freeze_rows, session.store
    space = session.keyed.get(body.space)
    parts = [session.part(target) for target in body.targets]
    numbers = [target.buffer for target in body.targets]
    store.refuse_taken(numbers)
    with space.lock:
        space.check_version(body.version)
        rows = dict(
            zip(wanted := [k for k in body.sources if k], space.rows_of(wanted), strict=True)
        )
        for source, part in zip(body.sources, parts, strict=True):
            verify_part(space, part, rows[source].type if source else ValueType("int64"))
        made = store.new(parts, "freezing arrays of a keyed space")
        for source, buffer in zip(body.sources, made, strict=True):
            if not len(space.index):
                break
            if source:
                rows[source].store.copy_to(buffer.array)
            else:
                buffer.array[:] = space.index.keys_in_order()
    store.put(dict(zip(numbers, made, strict=True)))
    return Response(pb.Reply())


@command(_frozen_bounds)
def thaw_rows(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Let arrays have the rows that buffers hold, in the order of the layout."""
    body = request.thaw_rows
    space = session.keyed.get(body.space)
    with space.lock:
        space.check_version(body.version)
        rows = space.rows_of(body.targets)
        sources: list[Buffer | None] = []
        for source, target in zip(body.sources, rows, strict=True):
            part = session.part(source)
            verify_part(space, part, target.type)
            sources.append(session.store.get(source.buffer, part) if len(space.index) else None)
        space.mark += 1
        for buffer, target in zip(sources, rows, strict=True):
            if buffer is not None:
                target.store.copy_from(buffer.array)
    return Response(pb.Reply())


def _adopted_bounds(body: pb.AdoptKeys) -> None:
    verify_array(body.keys)
    check("arrays", len(body.sources), 0, limits.MOST_TOTALS)
    check("targets", len(body.targets), len(body.sources), len(body.sources))
    for array in body.sources:
        verify_array(array)


@command(_adopted_bounds)
def adopt_keys(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Keys, and the rows of arrays, for a space that has none: as they were frozen once."""
    body, store = request.adopt_keys, session.store
    space = session.keyed.get(body.space)
    part = session.part(body.keys)
    if part.type.value != ValueType("int64"):
        raise InvalidProgram(f"keys are int64, and not {part.type.value}")
    count = part.high - part.low
    with space.lock:
        rows = space.rows_of(body.targets)
        parts = [session.part(source) for source in body.sources]
        for source, target in zip(parts, rows, strict=True):
            if (source.type.value, source.high - source.low) != (target.type, count):
                raise InvalidProgram(f"{source.type} are no {count} rows of {target.type}")
        if not count:
            return Response(pb.Reply())
        given = [
            store.get(source.buffer, one).array
            for source, one in zip(body.sources, parts, strict=True)
        ]
        adopt(session, space, store.get(body.keys.buffer, part).array)
        for array, target in zip(given, rows, strict=True):
            target.store.copy_from(array)
    return Response(pb.Reply())


def adopt(session: ServerSession, space: KeyedSpace, keys: Array) -> None:
    """Insert keys in the order of a layout; ``InvalidProgram`` for those of other servers."""
    if np.any(space.partition.server_of(keys, session.servers) != session.index):
        raise InvalidProgram("keys came to a server that is not theirs")
    space.adopt(keys)


def _mask_bounds(body: pb.KeepRows) -> None:
    verify_array(body.mask)


@command(_mask_bounds)
def keep_rows(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Remove the keys where a mask is false."""
    body = request.keep_rows
    space = session.keyed.get(body.space)
    with space.lock:
        space.check_version(body.version)
        part = session.part(body.mask)
        verify_part(space, part, ValueType("bool"))
        if len(space.index):
            space.keep(session.store.get(body.mask.buffer, part).array)
    return Response(pb.Reply())


def verify_part(space: KeyedSpace, part: Part, type: ValueType) -> None:
    """``InvalidProgram`` unless ``part`` has a row of ``type`` for each key."""
    if part.type.value != type or part.high - part.low != len(space.index):
        raise InvalidProgram(
            f"{part.high - part.low} rows of {part.type.value} are here, and the space has "
            f"{len(space.index)} of {type}"
        )


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
