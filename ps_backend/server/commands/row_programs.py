"""Row programs: run on the rows of keys, immediately or as a round says; keys that are removed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend import limits
from ps_backend.errors import InvalidProgram
from ps_backend.limits import MOST_PARTIAL_BYTES, check, check_name
from ps_backend.program.row_program import RowProgram
from ps_backend.program.sweep import Scalar
from ps_backend.program.types import ValueType
from ps_backend.server.bounds import verify_array
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.commands.keyed_spaces import verify_part
from ps_backend.server.sessions import ServerSession
from ps_backend.server.state.keyed.coupled_run import CoupledRun
from ps_backend.server.state.keyed.row_run import PreparedRows, RowRun, StagedRows
from ps_backend.server.state.keyed.space import KeyedSpace, KeyList
from ps_backend.server.state.keyed.user_function import UserFunctionRun
from ps_backend.server.state.memory import MemoryBlock, rounded
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.keyed import check_keys_size, decode_keys, decode_row_program, padded
from ps_backend.wire.protocol import UnknownView, Winner, byte_view
from ps_backend.wire.quantize import check_kind, narrow, narrowed, travelling, widen

Array = npt.NDArray[Any]

KEY_BYTES = 16
"""Of memory for a key that came, and its location; making it of what came takes a little less."""


def prepared(
    session: ServerSession, body: pb.RowCall
) -> tuple[KeyedSpace, RowRun | UserFunctionRun]:
    """The space that a call names, and its program on the arrays there."""
    space = session.keyed.get(body.keys.space)
    program, scalars = decode_row_program(body, session.sweep(body))
    if body.spaces or program.is_conditional:
        return space, _coupled(session, space, body, program, scalars)
    arrays = space.rows_of(body.arrays)
    if program.own is None:
        return space, RowRun.prepare(program, arrays, scalars)
    plugin = session.host.plugins.plugin(program.own.plugin, body.own.signature)
    return space, UserFunctionRun.prepare(program, arrays, scalars, plugin, session.store.memory)


def _coupled(
    session: ServerSession,
    space: KeyedSpace,
    body: pb.RowCall,
    program: RowProgram,
    scalars: Sequence[Scalar],
) -> CoupledRun:
    """A program that has arrays of several spaces, or writes the rows of some keys alone."""
    numbers = list(body.spaces) or [body.keys.space] * len(body.arrays)
    if program.own is not None or len(numbers) != len(body.arrays):
        raise InvalidProgram("a plug-in, or another number of spaces than of arrays")
    spaces = {number: session.keyed.get(number) for number in sorted({*numbers, body.keys.space})}
    arrays = [
        spaces[number].rows_of([array])[0]
        for number, array in zip(numbers, body.arrays, strict=True)
    ]
    run = CoupledRun.prepare(program, arrays, scalars)
    return run.over(space, [spaces[number] for number in numbers], tuple(spaces.values()))


def received(
    session: ServerSession,
    space: KeyedSpace,
    body: pb.RowCall,
    run: RowRun | UserFunctionRun,
    payload: Payload,
) -> tuple[KeyList, list[Array], list[MemoryBlock]]:
    """The keys, what came along with each of them, and the memory that this is in."""
    count, size = body.keys.count, body.keys.bytes
    kept = space.views.get(body.keys.view)
    if not size and count and (kept is None or len(kept.keys) != count):
        raise UnknownView(f"no view {body.keys.view} of {count} keys is here")
    check_keys_size(size, count if size else 0)
    places, at = [], padded(size)
    types = [travelling(type, body.given_as) for type in run.program.given]
    for type in chain(*types):
        places.append(at)
        at += padded(count * type.row_bytes)
    payload.expect(at)
    memory, what = session.store.memory, "rows of a keyed space"
    room = memory.reserve(KEY_BYTES * count if size else 0, "keys that come")
    pairs = list(zip(run.program.given, types, strict=True))
    wide = [type.row_bytes * count for type, some in pairs if some != (type,)]
    block, *wider = blocks = memory.allocate([rounded(at), *wide], what)
    payload.into(byte_view(block.bytes[:at]))
    parts = []
    for type, place in zip(chain(*types), places, strict=True):
        rows = block.bytes[place : place + count * type.row_bytes]
        parts.append(rows.view(type.dtype).reshape(count, *type.row))
    given = []
    for type, some in pairs:
        if some == (type,):
            given.append(parts[0])
        else:
            given.append(wider.pop(0).array(np.dtype(type.dtype), (count, *type.row)))
            widen(parts[: len(some)], type, body.given_as, given[-1])
        parts = parts[len(some) :]
    if kept is not None and not size:
        return kept, given, blocks
    keys = KeyList(decode_keys(block.bytes[:size], count), room=room)
    if body.keys.view:
        with space.lock:
            space.views[body.keys.view] = keys
    return keys, given, blocks


def answered(run: RowRun | UserFunctionRun, out: Sequence[Array], kind: str) -> list[Array]:
    """What the answer brings, as it travels: rounded to the nearest."""
    pairs = zip(out, run.program.returned, strict=True)
    return [part for rows, type in pairs for part in narrowed(rows, type, kind)]


def laid_out(
    types: Sequence[ValueType], count: int, find: bool
) -> tuple[int, list[tuple[int, int]]]:
    """How long the answer is, and where in it each part lies: begin and size."""
    sizes = [count] * find + [count * type.row_bytes for type in types]
    places, at = [], 0
    for size in sizes:
        places.append((at, size))
        at += padded(size)
    return at, places


def typed(types: Sequence[ValueType], parts: Sequence[Array], count: int) -> list[Array]:
    """Bytes as rows of these types."""
    return [
        part.view(type.dtype).reshape(count, *type.row)
        for part, type in zip(parts, types, strict=True)
    ]


def call_bounds(body: pb.RowCall) -> None:
    """Of what runs a row program, or keeps one."""
    check("keys", body.keys.count, 0, limits.MOST_LENGTH)
    check("arrays of a row program", len(body.arrays), 0, limits.MOST_VALUES)
    check("spaces of a row program", len(body.spaces), 0, limits.MOST_VALUES)
    places = len(body.gathers) + len(body.scatters) + len(body.returns)
    check("places of a row program", places, 0, limits.MOST_VALUES)
    check("bytes of scalars", len(body.scalars), 0, limits.MOST_OPERAND_BYTES)
    check_kind(body.given_as)
    check_kind(body.returns_as)
    check("characters of a signature", len(body.own.signature), 0, limits.MOST_SIGNATURE)
    check_name("plugin", body.own.plugin)


@command(call_bounds, repeatable=True)
def look_up(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """Rows of keys as they are now, or what a row program makes of them; nothing changes.

    Of keys that are not there those that they would begin with.
    """
    body = request.look_up
    space, run = prepared(session, body)
    if run.program.changes:
        raise InvalidProgram("the program of a look-up must not scatter rows")
    keys, given, blocks = received(session, space, body, run, payload)
    count, kind = len(keys.keys), body.returns_as
    types = [part for type in run.program.returned for part in travelling(type, kind)]
    size, places = laid_out(types, count, body.find)
    wide = [count * type.row_bytes for type in run.program.returned] if kind else []
    block, *wider = session.store.memory.allocate([rounded(size), *wide], "looking up keys")
    found = [block.bytes[at : at + n] for at, n in places]
    parts = typed(types, found[body.find :], count)
    if kind:
        out = [
            one.array(np.dtype(type.dtype), (count, *type.row))
            for one, type in zip(wider, run.program.returned, strict=True)
        ]
    else:
        out = parts
    run.run(space, keys, given, out)
    if kind:
        for rows, type in zip(out, run.program.returned, strict=True):
            some = len(travelling(type, kind))
            narrow(rows, type, kind, parts[:some])
            parts = parts[some:]
    if body.find:
        with space.lock:
            np.greater_equal(space.locate(keys), 0, out=found[0].view(np.bool_))
    del blocks
    return Response(pb.Reply(payload=size), [byte_view(block.bytes[:size])], [block])


@command(call_bounds)
def change_rows(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """Run a row program that writes. Keys that are not there yet are inserted."""
    body = request.change_rows
    space, run = prepared(session, body)
    count = body.keys.count
    size = sum(count * type.row_bytes for type in run.program.returned)
    if size > MOST_PARTIAL_BYTES:
        raise InvalidProgram(
            f"the row program returns {size} bytes, but a reply holds {MOST_PARTIAL_BYTES}: pass "
            "fewer keys in one call"
        )
    keys, given, blocks = received(session, space, body, run, payload)
    out = [np.empty((count, *type.row), type.dtype) for type in run.program.returned]
    run.run(space, keys, given, out)
    del blocks
    answer = answered(run, out, body.returns_as)
    return Response(pb.Reply(partials=[one.tobytes() for one in answer]))


def stage_rows(session: ServerSession, body: pb.RowCall, payload: Payload) -> StagedRows:
    """A row program that writes, as it is kept until a round ends."""
    space, run = prepared(session, body)
    if run.program.returned or not isinstance(run, RowRun):
        raise InvalidProgram(
            "a round cannot run plug-ins, or row programs that return values: these could fail "
            "after a part of the round was committed"
        )
    keys, given, (block, *wider) = received(session, space, body, run, payload)
    return StagedRows(space, run, keys, given, block, wider)


def reserve_rows(
    session: ServerSession, round: str, slots: Iterable[tuple[int, Sequence[Winner]]]
) -> None:
    """Reserve room for the keys that the winners of a round insert."""
    rows: list[StagedRows] = []
    for slot, winners in slots:
        for staged in session.rounds.staged(round, slot, winners):
            if not isinstance(staged, StagedRows):
                raise ValueError(f"slot {slot} of round {round!r} has no rows of keys")
            rows.append(staged)
    session.rounds.keep_prepared(round, PreparedRows(rows))


def _remove_bounds(body: pb.RemoveKeys) -> None:
    check("keys", body.keys.count, 0, limits.MOST_LENGTH)
    verify_array(body.mask)


@command(_remove_bounds)
def remove_keys(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """Remove keys; those that are not there are none. Or those where a mask is false."""
    body = request.remove_keys.keys
    space = session.keyed.get(body.space)
    if request.remove_keys.HasField("mask"):
        _keep(session, space, request.remove_keys)
        return Response(pb.Reply())
    payload.expect(body.bytes)
    check_keys_size(body.bytes, body.count)
    room = session.store.memory.reserve(KEY_BYTES * body.count, "removing keys")
    (block,) = session.store.memory.allocate([rounded(body.bytes)], "removing keys")
    payload.into(byte_view(block.bytes[: body.bytes]))
    keys = decode_keys(block.bytes[: body.bytes], body.count)
    with space.lock:
        space.remove(keys)
    del room
    return Response(pb.Reply())


def _keep(session: ServerSession, space: KeyedSpace, body: pb.RemoveKeys) -> None:
    """Keep the keys where a mask in the order of the layout is true."""
    with space.lock:
        space.check_version(body.version)
        part = session.part(body.mask)
        verify_part(space, part, ValueType("bool"))
        if len(space.index):
            space.keep(session.store.get(body.mask.buffer, part).array)
