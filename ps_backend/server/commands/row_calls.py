"""What comes along with a row program, and how its answer is laid out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.errors import InvalidProgram
from ps_backend.kernels.user.compiled import UserKernels
from ps_backend.program.row_program import digest_of
from ps_backend.program.types import ValueType
from ps_backend.server.commands.command import Payload
from ps_backend.server.session import ServerSession
from ps_backend.server.state.keyed.own_run import OwnRun, of_kernel, of_plugin
from ps_backend.server.state.keyed.row_run import RowRun
from ps_backend.server.state.keyed.space import KeyedSpace, KeyList
from ps_backend.server.state.memory import MemoryBlock
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.chunks import byte_view
from ps_backend.wire.errors import UnknownSweep, UnknownView
from ps_backend.wire.keyed import (
    check_keys_size,
    decode_keys,
    decode_row_program,
    padded,
)
from ps_backend.wire.narrow import narrowed, travelling, widen

Array = npt.NDArray[Any]

KEY_BYTES = 16
"""Of memory for a key that came, and its location; making it of what came takes a little less."""


def prepared(session: ServerSession, body: pb.RowCall) -> tuple[KeyedSpace, RowRun | OwnRun]:
    """The space that a call names, and its program on the arrays there."""
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


def received(
    session: ServerSession,
    space: KeyedSpace,
    body: pb.RowCall,
    run: RowRun | OwnRun,
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
    block, *wider = blocks = memory.allocate([at, *wide], what)
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


def answered(run: RowRun | OwnRun, out: Sequence[Array], kind: str) -> list[Array]:
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
