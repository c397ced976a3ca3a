"""Between Python objects and protobuf messages: spaces, types, sweeps, scalars, collectives, files.

Nothing here, and nothing else in the transport, reads a pickle.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from ps_backend import errors
from ps_backend.durability.file_checksums import FileRange
from ps_backend.errors import InvalidProgram
from ps_backend.limits import MOST_OPERAND_BYTES, MOST_OPERAND_EXTENTS
from ps_backend.program.collectives import CollectiveCall, CollectiveTypes
from ps_backend.program.spaces import Space, decode_space
from ps_backend.program.sweep import (
    COMBINE,
    Combination,
    Link,
    Reduction,
    Scalar,
    Step,
    Sweep,
    SweepCall,
)
from ps_backend.program.types import (
    ArrayType,
    NodeType,
    ValueType,
    client_type,
    dtype_of,
    stored_type,
)
from ps_backend.program.views import View
from ps_backend.wire import ps_pb2 as pb


def encode_piece(piece: FileRange) -> pb.Piece:
    """A piece as a message."""
    return pb.Piece(
        file=piece.file,
        offset=piece.offset,
        low=piece.low,
        high=piece.high,
        unit=piece.unit,
        crcs=piece.crcs,
    )


def decode_piece(message: pb.Piece) -> FileRange:
    """The inverse; ``ValueError`` for one of no rows to a checksum."""
    if message.unit < 1 or message.low > message.high:
        raise ValueError(f"no piece of an array has rows {message.low}:{message.high}")
    return FileRange(
        message.file,
        message.offset,
        message.low,
        message.high,
        message.unit,
        tuple(message.crcs),
    )


_MOST_REMEMBERED_SCALARS = 64
_NUMBER_BYTES = 8


@lru_cache(maxsize=4096)
def encode_space(space: Space) -> pb.Space:
    """A space as a message, which nobody may change: it is shared."""
    return pb.Space(kind=space.kind, length=space.length, id=space.id, details=space.details)


def space_of(message: pb.Space) -> Space:
    """The inverse of ``encode_space``. Raises ``InvalidProgram``, ``ValueError``."""
    return decode_space(message.kind, message.length, message.id, message.details)


def encode_array(buffer: int, array: ArrayType) -> pb.Array:
    """The type and place of an array; ``buffer`` 0 where it has none."""
    return pb.Array(
        buffer=buffer, space=encode_space(array.space), dtype=array.value.dtype, row=array.row
    )


def encode_type(value: ValueType) -> pb.ValueType:
    """The type of one value of a sweep as a message."""
    return pb.ValueType(dtype=value.dtype, row=value.row)


def decode_type(message: pb.ValueType) -> ValueType:
    """The inverse of ``encode_type``."""
    return ValueType(message.dtype, tuple(message.row))


def encode_sweep(sweep: Sweep) -> pb.Sweep:
    """The structure of one traversal as a message."""
    return pb.Sweep(
        inputs=[encode_type(value) for value in sweep.inputs],
        scalars=[encode_type(value) for value in sweep.scalars],
        steps=[_encode_step(step) for step in sweep.steps],
        outputs=sweep.outputs,
        reductions=[
            pb.Reduction(op=r.op, args=r.args, axis=r.axis, bins=r.bins) for r in sweep.reductions
        ],
    )


def _encode_step(step: Step | Combination) -> pb.Step:
    if isinstance(step, Step):
        type = encode_type(step.type)
        return pb.Step(op=step.op, args=step.args, type=type, params=step.params)
    links = [
        pb.Link(op=link.op, vector=link.vector, scalar=link.scalar, negative=link.negative)
        for link in step.links
    ]
    return pb.Step(op=COMBINE, links=links, type=encode_type(step.type))


def _decode_step(message: pb.Step) -> Step | Combination:
    if message.op != COMBINE:
        type = decode_type(message.type)
        return Step(message.op, tuple(message.args), type, tuple(message.params))
    links = tuple(
        Link(
            link.op,
            link.vector if link.HasField("vector") else None,
            link.scalar if link.HasField("scalar") else None,
            link.negative,
        )
        for link in message.links
    )
    return Combination(links, decode_type(message.type))


def decode_sweep(message: pb.Sweep) -> Sweep:
    """The inverse of ``encode_sweep``; whether it is legal is for ``program.verify`` to say."""
    return Sweep(
        inputs=tuple(decode_type(value) for value in message.inputs),
        scalars=tuple(decode_type(value) for value in message.scalars),
        steps=tuple(_decode_step(step) for step in message.steps),
        outputs=tuple(message.outputs),
        reductions=tuple(
            Reduction(r.op, tuple(r.args), r.axis if r.HasField("axis") else None, r.bins)
            for r in message.reductions
        ),
    )


_known: WeakValueDictionary[bytes, Sweep] = WeakValueDictionary()
"""By message, sweeps that this process has: its servers need not decode what its client made."""


def note_sweep(message: pb.Sweep, sweep: Sweep) -> None:
    """Let ``known_sweep`` find ``sweep``, encoded as ``message``, as long as it is used."""
    _known[message.SerializeToString()] = sweep


def known_sweep(message: pb.Sweep) -> Sweep:
    """``decode_sweep``, or the sweep of this process that was encoded or decoded so."""
    key = message.SerializeToString()
    found = _known.get(key)
    if found is None:
        found = _known[key] = decode_sweep(message)
    return found


_Narrow = tuple[tuple[int, int, int], ...]
"""Of integers narrower than they travel: which scalar, the least value and the greatest."""


def _scalar_format(types: tuple[ValueType, ...]) -> tuple[struct.Struct, _Narrow]:
    """How scalars travel, and which of them may not have all values that do."""
    few = len(types) <= _MOST_REMEMBERED_SCALARS  # else what is remembered would be large
    return _remembered_format(types) if few else _new_format(types)


def _new_format(types: tuple[ValueType, ...]) -> tuple[struct.Struct, _Narrow]:
    kinds = [dtype_of(value.dtype) for value in types]
    limits = [(k, np.iinfo(kind)) for k, kind in enumerate(kinds) if kind.kind in "iu"]
    narrow = tuple((k, int(one.min), int(one.max)) for k, one in limits if one.bits < 64)
    return struct.Struct("<" + "".join(map(_letter, kinds))), narrow


def _letter(kind: np.dtype[Any]) -> str:
    """What ``struct`` calls the eight bytes of a scalar."""
    return {"f": "d", "u": "Q"}.get(kind.kind, "q")


_remembered_format = lru_cache(maxsize=4096)(_new_format)


def encode_scalars(types: tuple[ValueType, ...], values: Sequence[Scalar]) -> bytes:
    """Eight bytes per number: floats as float64, so NaN and inf pass, unsigned integers as uint64,
    the rest as int64.

    Raises ``ValueError`` for a value its type cannot hold, or if there are too many or too few.
    """
    try:
        return _scalar_format(types)[0].pack(*values)
    except (struct.error, OverflowError) as error:
        names = ", ".join(value.dtype for value in types)
        raise ValueError(f"scalars {tuple(values)!r} do not fit ({names}): {error}") from error


def decode_scalars(types: tuple[ValueType, ...], data: bytes) -> tuple[Scalar, ...]:
    """The inverse of ``encode_scalars``."""
    if not types and not data:
        return ()
    if len(data) != 8 * len(types):
        raise errors.InvalidProgram(
            f"{len(types)} scalars are {8 * len(types)} bytes, got {len(data)}"
        )
    form, narrow = _scalar_format(types)
    values = form.unpack(data)
    for k, least, greatest in narrow:
        if not least <= values[k] <= greatest:
            raise errors.InvalidProgram(f"scalar {values[k]} is no {types[k].dtype}")
    return tuple(
        bool(value) if type_.dtype == "bool" else value
        for type_, value in zip(types, values, strict=True)
    )


def _encode_each(types: tuple[ValueType, ...], values: Sequence[Scalar]) -> bytes:
    """Numbers as above, arrays as they lie in memory."""
    if len(types) != len(values):
        raise ValueError(f"{len(types)} scalars are wanted, got {len(values)}")
    size = sum(value.row_bytes for value in types)
    if size > MOST_OPERAND_BYTES:
        raise ValueError(
            f"the small arrays that a program takes along are {size:,} bytes, and a message has "
            f"room for {MOST_OPERAND_BYTES:,}: put the large ones on the servers, or take fewer "
            f"columns at once"
        )
    return b"".join(map(_encode_scalar, types, values))


def _encode_scalar(type: ValueType, value: Scalar) -> bytes:
    if not type.row:
        return encode_scalars((type,), (value,))
    if (
        not isinstance(value, np.ndarray)
        or (value.dtype.name, value.shape) != (type.dtype, type.row)
        or not value.flags.c_contiguous
    ):
        found = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else repr(value)
        raise ValueError(f"scalar {found} is no C-contiguous array of {type}")
    return value.tobytes()


def _decode_each(types: tuple[ValueType, ...], data: bytes) -> tuple[Scalar, ...]:
    sizes = [value.row_bytes if value.row else _NUMBER_BYTES for value in types]
    if len(data) != sum(sizes):
        raise errors.InvalidProgram(f"{len(types)} scalars are {sum(sizes)} bytes, got {len(data)}")
    ends = accumulate(sizes)
    parts = [data[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    return tuple(
        decode_array(value, part) if value.row else decode_scalars((value,), part)[0]
        for value, part in zip(types, parts, strict=True)
    )


def decode_array(type: ValueType, data: bytes) -> npt.NDArray[Any]:
    """An array that travelled as it lies in memory; ``InvalidProgram`` for bytes that are none."""
    if type.dtype == "bool" and data.translate(None, b"\x00\x01"):
        raise errors.InvalidProgram(f"an array of {type} has bytes that are no bool")
    return np.frombuffer(data, type.dtype).reshape(type.row)


def encode_values(sweep: Sweep, scalars: Sequence[Scalar]) -> bytes:
    """The scalars of a call of ``sweep``, one after the other."""
    encode = _encode_each if sweep.takes_rows else encode_scalars
    return encode(sweep.scalars, scalars)


def decode_values(sweep: Sweep, data: bytes) -> tuple[Scalar, ...]:
    """The inverse of ``encode_values``."""
    decode = _decode_each if sweep.takes_rows else decode_scalars
    return decode(sweep.scalars, data)


def encode_call(call: SweepCall, *, full: bool) -> pb.SweepCall:
    """One sweep with what it runs on; its structure goes along only if ``full``."""
    sweep = call.sweep
    message = pb.SweepCall(digest=sweep.digest, space=encode_space(call.space), inputs=call.inputs)
    if full:
        message.sweep.CopyFrom(encode_sweep(sweep))
    if sweep.scalars or call.scalars:
        message.scalars = encode_values(sweep, call.scalars)
    if call.outputs:
        message.outputs.extend(call.outputs)
    if call.donors:
        message.donors.extend(call.donors)
    if call.views:
        message.views.extend(_encode_views(call.views))
    return message


def _encode_views(views: Sequence[View | None]) -> list[pb.View]:
    return [
        pb.View(
            input=number,
            space=encode_space(view.space),
            row=view.row,
            start=view.start,
            step=view.step,
            spread=view.spread,
            index=view.index,
        )
        for number, view in enumerate(views)
        if view is not None
    ]


def _decode_views(messages: Sequence[pb.View], inputs: int) -> tuple[View | None, ...]:
    views: list[View | None] = [None] * inputs
    for message in messages:
        if message.input >= inputs or views[message.input] is not None:
            raise errors.InvalidProgram(
                f"a view of input {message.input}, of {inputs}: each may have one"
            )
        views[message.input] = View(
            space_of(message.space),
            tuple(message.row),
            message.start,
            message.step,
            message.spread,
            message.index,
        )
    return tuple(views)


def decode_call(message: pb.SweepCall, sweep: Sweep) -> SweepCall:
    """The inverse of ``encode_call``, for a sweep that was looked up by its digest.

    Raises ``InvalidProgram`` if there are more or fewer buffers or scalars than the sweep has.
    """
    inputs, outputs = tuple(message.inputs), tuple(message.outputs)
    if (len(inputs), len(outputs)) != (len(sweep.inputs), len(sweep.outputs)):
        raise errors.InvalidProgram(
            f"the sweep has {len(sweep.inputs)} inputs and {len(sweep.outputs)} outputs, but the "
            f"call names {len(inputs)} and {len(outputs)}:\n{sweep}"
        )
    return SweepCall(
        sweep=sweep,
        space=space_of(message.space),
        inputs=inputs,
        scalars=decode_values(sweep, message.scalars),
        outputs=outputs,
        donors=tuple(message.donors),
        views=_decode_views(message.views, len(inputs)) if message.views else (),
    )


def encode_collective(call: CollectiveCall) -> pb.MovementCall:
    """One phase as a message; ``ValueError`` if its operands are too large for one."""
    size = sum(operand.nbytes for operand in call.operands)
    if size > MOST_OPERAND_BYTES:
        raise ValueError(
            f"the small arrays that a {call.kind} takes along are {size:,} bytes, and a message "
            f"has room for {MOST_OPERAND_BYTES:,}: put the large ones on the servers"
        )
    types = call.types
    return pb.MovementCall(
        kind=call.kind,
        phase=call.phase,
        workspace=call.workspace,
        inputs=map(encode_array, call.inputs, types.inputs),
        operands=map(encode_type, types.operands),
        values=b"".join(operand.tobytes() for operand in call.operands),
        outputs=[
            _encode_output(number, buffer, type)
            for buffer, (number, type) in zip(call.outputs, types.outputs, strict=True)
        ],
        params=call.params,
        whole=call.whole,
    )


def _encode_output(number: int, buffer: int, type: NodeType) -> pb.Output:
    if isinstance(type, ArrayType):
        return pb.Output(number=number, array=encode_array(buffer, type))
    return pb.Output(number=number, kept=encode_type(type.value))


def decode_collective(message: pb.MovementCall) -> CollectiveCall:
    """The inverse of ``encode_collective``.

    Raises ``InvalidProgram``, and ``TypeError`` or ``ValueError`` for types that there are not.
    """
    operands = tuple(map(decode_type, message.operands))
    types = CollectiveTypes(
        inputs=tuple(map(_array_type, message.inputs)),
        operands=operands,
        outputs=tuple((one.number, _output_type(one)) for one in message.outputs),
    )
    return CollectiveCall(
        kind=message.kind,
        phase=message.phase,
        workspace=message.workspace,
        types=types,
        inputs=tuple(one.buffer for one in message.inputs),
        operands=tuple(map(decode_array, operands, _parts(operands, message.values))),
        outputs=tuple(one.array.buffer if one.HasField("array") else 0 for one in message.outputs),
        params=tuple(message.params),
        whole=message.whole,
    )


def _array_type(message: pb.Array) -> ArrayType:
    return stored_type(space_of(message.space), dtype_of(message.dtype), tuple(message.row))


def _output_type(message: pb.Output) -> NodeType:
    if message.HasField("array"):
        return _array_type(message.array)
    row = tuple(message.kept.row)
    if len(row) > MOST_OPERAND_EXTENTS:  # else thousands of extents would be remembered
        raise InvalidProgram(f"an operand of the client has at most {MOST_OPERAND_EXTENTS} extents")
    return client_type(dtype_of(message.kept.dtype), row)


def _parts(types: Sequence[ValueType], data: bytes) -> list[bytes]:
    """The bytes of each operand; ``InvalidProgram`` if they are more or fewer than all take."""
    sizes = [type.row_bytes for type in types]
    if sum(sizes) != len(data):
        raise InvalidProgram(f"operands of {sum(sizes)} bytes came as {len(data)}")
    ends = accumulate(sizes)
    return [data[end - size : end] for size, end in zip(sizes, ends, strict=True)]
