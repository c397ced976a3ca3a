"""Keyed spaces: made, laid out, frozen into buffers and back, restored from files, and cut down."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
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
from ps_backend.server.sessions import ServerSession
from ps_backend.server.state.keyed.admission import Admission, ExactCounts, Sketch
from ps_backend.server.state.keyed.space import Counts, KeyedRows, KeyedSpace
from ps_backend.server.state.store import Buffer, Part
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import decode_type
from ps_backend.wire.keyed import decode_fill, decode_state, encode_state
from ps_backend.wire.protocol import byte_view

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
def read_keys(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """How many keys there are, and which layout this is; of that some keys, in its order."""
    body = request.read_keys
    space = session.keyed.get(body.space)
    with space.lock:
        state = encode_state(space.state)
        if not body.HasField("version"):
            return Response(pb.Reply(keyed=state))
        space.check_version(body.version)
        if body.first + body.count > len(space.index):
            raise IndexError(
                f"{body.count} keys from {body.first} on are out of range for {len(space.index)} "
                "keys"
            )
        (block,) = session.store.memory.allocate([8 * body.count], "reading keys")
        keys = block.array(np.dtype(np.int64), (body.count,))
        keys[:] = space.index.keys_between(body.first, body.first + body.count)
    return Response(pb.Reply(payload=keys.nbytes, keyed=state), [byte_view(keys)], [block])


def _copy_bounds(body: pb.CopyRows) -> None:
    check("arrays", len(body.rows), 0, limits.MOST_TOTALS)
    check("buffers", len(body.buffers), len(body.rows), len(body.rows))
    for array in body.buffers:
        verify_array(array)


@command(_copy_bounds)
def copy_rows(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Buffers with the rows that arrays have now, or with the keys, in the order of the layout; or
    arrays with the rows that buffers hold, or all of an empty space."""
    body = request.copy_rows
    space = session.keyed.get(body.space)
    parts = [session.part(one) for one in body.buffers]
    with space.lock:
        if not body.thaw:
            _freeze(session, space, body, parts)
        elif 0 in body.rows:
            _adopt(session, space, body, parts)
        else:
            _thaw(session, space, body, parts)
    return Response(pb.Reply())


def _freeze(
    session: ServerSession, space: KeyedSpace, body: pb.CopyRows, parts: Sequence[Part]
) -> None:
    store, numbers = session.store, [one.buffer for one in body.buffers]
    store.refuse_taken(numbers)
    space.check_version(body.version)
    named = [number for number in body.rows if number]
    rows = dict(zip(named, space.rows_of(named), strict=True))
    for number, part in zip(body.rows, parts, strict=True):
        verify_part(space, part, rows[number].type if number else ValueType("int64"))
    made = store.new(parts, "freezing arrays of a keyed space")
    for number, buffer in zip(body.rows, made, strict=True):
        if not len(space.index):
            break
        if number:
            rows[number].store.copy_to(buffer.array)
        else:
            buffer.array[:] = space.index.keys_in_order()
    store.put(dict(zip(numbers, made, strict=True)))


def _thaw(
    session: ServerSession, space: KeyedSpace, body: pb.CopyRows, parts: Sequence[Part]
) -> None:
    space.check_version(body.version)
    rows = space.rows_of(body.rows)
    for part, target in zip(parts, rows, strict=True):
        verify_part(space, part, target.type)
    sources = _buffers(session, body, parts) if len(space.index) else []
    space.mark += 1
    for source, target in zip(sources, rows, strict=False):
        target.store.copy_from(source.array)


def _adopt(
    session: ServerSession, space: KeyedSpace, body: pb.CopyRows, parts: Sequence[Part]
) -> None:
    """Keys come first, and what belongs to them as it was frozen once."""
    part, *others = parts
    if body.rows[0] or part.type.value != ValueType("int64"):
        raise InvalidProgram(f"the first part must be int64 keys, got {part.type.value}")
    count = part.high - part.low
    rows = space.rows_of(body.rows[1:])
    for other, target in zip(others, rows, strict=True):
        if (other.type.value, other.high - other.low) != (target.type, count):
            raise InvalidProgram(f"expected {count} rows of {target.type}, got {other.type}")
    if not count:
        return
    keys, *given = _buffers(session, body, parts)
    adopt(session, space, keys.array)
    for source, target in zip(given, rows, strict=True):
        target.store.copy_from(source.array)


def _buffers(session: ServerSession, body: pb.CopyRows, parts: Sequence[Part]) -> list[Buffer]:
    return [
        session.store.get(one.buffer, part) for one, part in zip(body.buffers, parts, strict=True)
    ]


def adopt(session: ServerSession, space: KeyedSpace, keys: Array) -> None:
    """Insert keys in the order of a layout; ``InvalidProgram`` for those of other servers."""
    if np.any(space.partition.server_of(keys, session.servers) != session.index):
        raise InvalidProgram("some of the keys belong to another server")
    space.adopt(keys)


def verify_part(space: KeyedSpace, part: Part, type: ValueType) -> None:
    """``InvalidProgram`` unless ``part`` has a row of ``type`` for each key."""
    if part.type.value != type or part.high - part.low != len(space.index):
        raise InvalidProgram(
            f"this server has {part.high - part.low} rows of {part.type.value}, but the space "
            f"has {len(space.index)} of {type}"
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
        adopt(session, made, _load_rows(session, body.keys).array)
        for array, one in zip(body.arrays, body.rows, strict=True):
            (rows,) = made.rows_of([array.array])
            loaded = _load_rows(session, one)
            verify_part(made, loaded.part, rows.type)
            rows.store.copy_from(loaded.array)
        if made.admission is not None and body.HasField("waiting"):
            loaded = _load_rows(session, body.waiting)
            if loaded.part.type.value != made.admission.type:
                raise InvalidProgram(f"expected counters of keys, got {loaded.part.type}")
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


def _load_rows(session: ServerSession, saved: pb.Saved) -> Buffer:
    """This server's rows of what was saved."""
    part = session.part(saved.array)
    (buffer,) = session.store.new([part], "loading rows of keys")
    read_saved(session, saved, part, buffer)
    return buffer
