"""Keyed spaces: made, read and changed by row programs, frozen into buffers, and cut down."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend import limits
from ps_backend.errors import InvalidProgram
from ps_backend.kernels.keyed.rows import RowStore
from ps_backend.kernels.user.compiled import UserKernels
from ps_backend.limits import MOST_PARTIAL_BYTES, check, check_name
from ps_backend.program.keys import server_of
from ps_backend.program.row_program import digest_of
from ps_backend.program.types import ValueType, dtype_of
from ps_backend.server.checks import name_within_bounds, verify_array, verify_row
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.session import ServerSession
from ps_backend.server.state.keyed.admission import Admission, ExactCounts, Sketch
from ps_backend.server.state.keyed.own_run import OwnRun, of_kernel, of_plugin
from ps_backend.server.state.keyed.row_run import RowRun, located
from ps_backend.server.state.keyed.space import KeyedRows, KeyedSpace, KeyList
from ps_backend.server.state.keyed.staged import Prepared, StagedRows
from ps_backend.server.state.memory import MemoryBlock
from ps_backend.server.state.store import Buffer, Part
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.chunks import byte_view
from ps_backend.wire.codec import decode_type
from ps_backend.wire.errors import UnknownSweep, UnknownView
from ps_backend.wire.keyed import (
    SpaceState,
    decode_fill,
    decode_keys,
    decode_row_program,
    encode_state,
    padded,
)
from ps_backend.wire.narrow import check_kind, narrowed, travelling, widened
from ps_backend.wire.rounds import Key, Winner

Array = npt.NDArray[Any]

_MOST_ADMIT = 255


def _keys_bounds(body: pb.MakeKeys) -> None:
    check("admit", body.admit, 0, _MOST_ADMIT)
    check("bytes of a sketch", body.sketch, 0, limits.MOST_LENGTH)


@command(_keys_bounds)
def make_keys(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """A keyed space without keys."""
    body, memory = request.make_keys, session.store.memory
    admission: Admission | None = None
    if body.admit > 1:
        needed = body.sketch or 0
        kept = memory.reserve(needed, "counters of keys that are not admitted yet")
        admission = Sketch(body.admit, body.sketch) if needed else ExactCounts(body.admit)
        del kept
    space = KeyedSpace(memory, most_bytes=body.most_bytes, admission=admission)
    session.keyed.add(body.space, space)
    return Response(pb.Reply())


def _rows_bounds(body: pb.MakeRows) -> None:
    verify_row(body.type.row)
    check("parameters of initial values", len(body.params), 0, 2)


@command(_rows_bounds)
def make_rows(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """An array over the keys of a space."""
    body = request.make_rows
    type = decode_type(body.type)
    store = RowStore(dtype_of(type.dtype), type.row, decode_fill(body))
    session.keyed.get(body.space).add_array(body.array, KeyedRows(type, store))
    return Response(pb.Reply())


def _call_bounds(body: pb.RowCall) -> None:
    check("keys", body.keys.count, 0, limits.MOST_LENGTH)
    check("arrays of a row program", len(body.arrays), 0, limits.MOST_VALUES)
    places = len(body.gathers) + len(body.scatters) + len(body.returns)
    check("places of a row program", places, 0, limits.MOST_VALUES)
    check("bytes of scalars", len(body.scalars), 0, limits.MOST_OPERAND_BYTES)
    check_kind(body.given_as)
    check_kind(body.returns_as)
    check("characters of a signature", len(body.own.signature), 0, limits.MOST_SIGNATURE)
    check_name("plugin", body.own.plugin)
    check("bytes of a kernel", len(body.own.tree), 0, limits.MOST_TREE_BYTES)


@command(_call_bounds, repeatable=True)
def look_up(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """Rows of keys as they are now, or what a row program makes of them; nothing changes.

    Of keys that are not there those that they would begin with.
    """
    body = request.look_up
    space, run = _prepare(session, body)
    if run.program.changes:
        raise InvalidProgram("a look-up changes nothing, so its program scatters nothing")
    keys, given, blocks = _received(session, space, body, run, payload)
    count, kind = len(keys.keys), body.returns_as
    types = [part for type in run.program.returned for part in travelling(type, kind)]
    size, places = _layout(types, count, body.find)
    (block,) = session.store.memory.allocate([size], "looking up keys")
    found = [block.bytes[at : at + n] for at, n in places]
    parts = _typed(types, found[body.find :], count)
    if kind:
        out = [np.empty((count, *type.row), type.dtype) for type in run.program.returned]
    else:
        out = parts
    run.run(space, keys, given, out)
    if kind:
        for part, rows in zip(parts, _narrowed(run, out, kind), strict=True):
            np.copyto(part, rows)
    if body.find:
        with space.lock:
            np.greater_equal(located(space, keys), 0, out=found[0].view(np.bool_))
    del blocks
    return Response(pb.Reply(payload=size), [byte_view(block.bytes[:size])], [block])


@command(_call_bounds)
def change_rows(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """Run a row program that writes. Keys that are not there yet are inserted."""
    body = request.change_rows
    space, run = _prepare(session, body)
    count = body.keys.count
    size = sum(count * type.row_bytes for type in run.program.returned)
    if size > MOST_PARTIAL_BYTES:
        raise InvalidProgram(
            f"the row program returns {size} bytes, and an answer that is kept for repeats has "
            f"room for {MOST_PARTIAL_BYTES}: give it fewer keys at once"
        )
    keys, given, blocks = _received(session, space, body, run, payload)
    out = [np.empty((count, *type.row), type.dtype) for type in run.program.returned]
    run.run(space, keys, given, out)
    del blocks
    answer = _narrowed(run, out, body.returns_as)
    return Response(pb.Reply(partials=[one.tobytes() for one in answer]))


def _staged_bounds(body: pb.RowCall) -> None:
    _call_bounds(body)
    check_name("round", body.staged.round)


@command(_staged_bounds, keeps_undo=True)
def stage_rows(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """Keep a row program that writes until the round is committed or dropped."""
    body = request.stage_rows
    space, run = _prepare(session, body)
    if run.program.returned or not isinstance(run, RowRun):
        raise InvalidProgram("a row program of a round returns nothing, and is none of a plug-in")
    keys, given, (block,) = _received(session, space, body, run, payload)
    whose = body.staged
    key = Key(whose.partition, whose.attempt, whose.slot, whose.number)
    session.rounds.stage(whose.round, key, StagedRows(space, run, keys, given, block))
    return Response(pb.Reply())


def _prepare_bounds(body: pb.PrepareRows) -> None:
    check_name("round", body.round)
    check("totals of a commit", len(body.totals), 0, limits.MOST_TOTALS)


@command(_prepare_bounds)
def prepare_rows(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Reserve room for the keys that the winners of a round insert."""
    body = request.prepare_rows
    rows: list[StagedRows] = []
    for total in body.totals:
        winners = [Winner(one.partition, one.attempt, one.contributions) for one in total.winners]
        for staged in session.rounds.staged(body.round, total.slot, winners):
            if not isinstance(staged, StagedRows):
                raise ValueError(f"slot {total.slot} of round {body.round!r} has no rows of keys")
            rows.append(staged)
    session.rounds.keep_prepared(body.round, Prepared(rows))
    return Response(pb.Reply())


@command(name_within_bounds("round"))
def apply_rows(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Run what was prepared; the round is over."""
    session.rounds.take_prepared(request.apply_rows.round).apply()
    return Response(pb.Reply())


def _remove_bounds(body: pb.RemoveKeys) -> None:
    check("keys", body.keys.count, 0, limits.MOST_LENGTH)


@command(_remove_bounds)
def remove_keys(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """Remove keys; those that are not there are none."""
    body = request.remove_keys.keys
    space = session.keyed.get(body.space)
    payload.expect(body.bytes)
    (block,) = session.store.memory.allocate([body.bytes], "removing keys")
    payload.into(byte_view(block.bytes[: body.bytes]))
    keys = decode_keys(block.bytes[: body.bytes], body.count)
    with space.lock:
        space.remove(keys)
    return Response(pb.Reply())


@command(repeatable=True)
def layout(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """How many keys there are, and which layout this is."""
    space = session.keyed.get(request.layout.space)
    with space.lock:
        counts = space.counts
        state = SpaceState(
            len(space.index), space.version, space.nbytes,
            counts.evicted, counts.refused, counts.waiting,
        )  # fmt: skip
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
        keys[:] = space.index.keys_in_order()[body.first : body.first + body.count]
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
            _verify_part(space, part, rows[source].type if source else ValueType("int64"))
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
            _verify_part(space, part, target.type)
            sources.append(session.store.get(source.buffer, part) if len(space.index) else None)
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
        keys = store.get(body.keys.buffer, part).array
        if np.any(server_of(keys, session.servers) != session.index):
            raise InvalidProgram("keys came to a server that is not theirs")
        given = [
            store.get(source.buffer, one).array
            for source, one in zip(body.sources, parts, strict=True)
        ]
        space.adopt(keys)
        for array, target in zip(given, rows, strict=True):
            target.store.copy_from(array)
    return Response(pb.Reply())


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
        _verify_part(space, part, ValueType("bool"))
        if len(space.index):
            space.keep(session.store.get(body.mask.buffer, part).array)
    return Response(pb.Reply())


def _verify_part(space: KeyedSpace, part: Part, type: ValueType) -> None:
    if part.type.value != type or part.high - part.low != len(space.index):
        raise InvalidProgram(
            f"{part.high - part.low} rows of {part.type.value} are here, and the space has "
            f"{len(space.index)} of {type}"
        )


# --- what comes along, and goes back --------------------------------------------------------------


def _prepare(session: ServerSession, body: pb.RowCall) -> tuple[KeyedSpace, RowRun | OwnRun]:
    space = session.keyed.get(body.keys.space)
    if body.HasField("own"):
        return space, _prepare_own(session, space, body)
    program, scalars = decode_row_program(body, session.sweep(body))
    return space, RowRun.prepare(program, space.rows_of(body.arrays), scalars)


def _prepare_own(session: ServerSession, space: KeyedSpace, body: pb.RowCall) -> OwnRun:
    own, host = body.own, session.host
    if own.plugin:
        plugin = host.loaded.plugin(own.plugin, own.signature)
        program, scalars = decode_row_program(body, session.sweep(body))
        compute = of_plugin(plugin, program)
    else:
        tree = _tree(host.kernels, own)
        program, scalars = decode_row_program(body, session.sweep(body), tree)
        assert host.kernels is not None and program.own is not None
        compute = of_kernel(host.kernels.get(program.own.signature, tree), program)
    arrays, memory = space.rows_of(body.arrays), session.store.memory
    return OwnRun.prepare(program, arrays, scalars, compute, memory)


def _tree(kernels: UserKernels | None, own: pb.OwnFunction) -> bytes:
    """The tree that came along, or came before; ``UnknownSweep`` if it never did."""
    if kernels is None:
        raise InvalidProgram(
            "this server compiles no kernels of clients; who operates it switches them on: "
            "distvec serve --kernels (or dv.local(kernels=True)); @dv.rows functions need no leave"
        )
    if not own.tree:
        known = kernels.tree(own.digest)
        if known is None:
            raise UnknownSweep("the kernel is not known here")
        return known
    kernels.remember(digest_of(own.tree), own.tree)
    return own.tree


def _received(
    session: ServerSession,
    space: KeyedSpace,
    body: pb.RowCall,
    run: RowRun | OwnRun,
    payload: Payload,
) -> tuple[KeyList, list[Array], list[MemoryBlock]]:
    """The keys, what came along with each of them, and the memory that this is in."""
    count, size = body.keys.count, body.keys.bytes
    kept = space.views.get(body.keys.view)
    if not size and count and (kept is None or len(kept[0].keys) != count):
        raise UnknownView(f"no view {body.keys.view} of {count} keys is here")
    places, at = [], padded(size)
    types = [travelling(type, body.given_as) for type in run.program.given]
    for type in chain(*types):
        places.append(at)
        at += padded(count * type.row_bytes)
    payload.expect(at)
    (block,) = session.store.memory.allocate([at], "rows of a keyed space")
    payload.into(byte_view(block.bytes[:at]))
    parts = []
    for type, place in zip(chain(*types), places, strict=True):
        rows = block.bytes[place : place + count * type.row_bytes]
        parts.append(rows.view(type.dtype).reshape(count, *type.row))
    given = []
    for type, some in zip(run.program.given, types, strict=True):
        given.append(widened(parts[: len(some)], type, body.given_as))
        parts = parts[len(some) :]
    if kept is not None and not size:
        return kept[0], given, [block]
    keys = KeyList(decode_keys(block.bytes[:size], count))
    if body.keys.view:
        room = session.store.memory.reserve(16 * count, "keys that stay")
        with space.lock:
            space.views[body.keys.view] = keys, room
    return keys, given, [block]


def _narrowed(run: RowRun | OwnRun, out: Sequence[Array], kind: str) -> list[Array]:
    """What the answer brings, as it travels: rounded to the nearest."""
    pairs = zip(out, run.program.returned, strict=True)
    return [part for rows, type in pairs for part in narrowed(rows, type, kind)]


def _layout(
    types: Sequence[ValueType], count: int, find: bool
) -> tuple[int, list[tuple[int, int]]]:
    """How long the answer is, and where in it each part lies: begin and size."""
    sizes = [count] * find + [count * type.row_bytes for type in types]
    places, at = [], 0
    for size in sizes:
        places.append((at, size))
        at += padded(size)
    return at, places


def _typed(types: Sequence[ValueType], parts: Sequence[Array], count: int) -> list[Array]:
    return [
        part.view(type.dtype).reshape(count, *type.row)
        for part, type in zip(parts, types, strict=True)
    ]
