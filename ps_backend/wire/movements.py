"""Between phases of movements and protobuf messages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ps_backend.errors import InvalidProgram
from ps_backend.limits import MOST_OPERAND_BYTES, MOST_OPERAND_EXTENTS
from ps_backend.program.movements import MovementCall, MovementTypes
from ps_backend.program.types import (
    ArrayType,
    NodeType,
    ValueType,
    client_type,
    dtype_of,
    stored_type,
)
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import decode_array, decode_type, encode_array, encode_type, space_of


def encode_movement(call: MovementCall) -> pb.MovementCall:
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


def decode_movement(message: pb.MovementCall) -> MovementCall:
    """The inverse of ``encode_movement``.

    Raises ``InvalidProgram``, and ``TypeError`` or ``ValueError`` for types that there are not.
    """
    operands = tuple(map(decode_type, message.operands))
    types = MovementTypes(
        inputs=tuple(map(_array_type, message.inputs)),
        operands=operands,
        outputs=tuple((one.number, _output_type(one)) for one in message.outputs),
    )
    return MovementCall(
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
        raise InvalidProgram(f"what a client keeps has at most {MOST_OPERAND_EXTENTS} extents")
    return client_type(dtype_of(message.kept.dtype), row)


def _parts(types: Sequence[ValueType], data: bytes) -> list[bytes]:
    """The bytes of each operand; ``InvalidProgram`` if they are more or fewer than all take."""
    sizes = [type.row_bytes for type in types]
    if sum(sizes) != len(data):
        raise InvalidProgram(f"operands of {sum(sizes)} bytes came as {len(data)}")
    ends = accumulate(sizes)
    return [data[end - size : end] for size, end in zip(sizes, ends, strict=True)]
