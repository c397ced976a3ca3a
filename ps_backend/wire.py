"""Between Python objects and protobuf messages: sweeps, scalars, errors and chunks of bulk data.

Nothing here, and nothing else in the transport, reads a pickle.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from ps_backend import errors
from ps_backend.program import DTYPES, Reduction, Scalar, Step, Sweep, SweepCall, ValueType
from ps_backend.proto import ps_pb2 as pb
from ps_backend.space import DenseSpace

PROTOCOL = 1
"""Version of the messages; a client and a server of different versions refuse to talk."""

CLIENT_BITS = 20
"""A session numbers so many clients, anew after each replacement of the server that does it."""

CHUNK_BYTES = 1 << 20
"""Bulk data goes in pieces of this size, which is where loopback and HTTP/2 are fastest."""

_MOST_REMEMBERED_SCALARS = 64

_MOST_ERROR_TEXT = 2000
"""Characters: an error may quote a program of any size, and a server keeps its latest replies."""

SMALL_BYTES = 1 << 18
"""A payload up to this size travels inside one unary call, a larger one as a stream of chunks."""

Parts = Sequence[memoryview]
"""Payload as it lies in memory: flat byte views, sent one after the other."""


class UnknownSweep(errors.PSError):
    """A program names a sweep that the server has not seen; the client then sends it whole."""


class PayloadBroken(errors.PSError):
    """The payload of a request is shorter or longer than announced, mostly as the sender left."""


class Abandoned(errors.PSError):
    """A program was ended before its time, as nobody waits for it any more."""


class NothingShared(errors.PSError):
    """The server cannot share memory with the client; it did not look at the request."""


class Crowded(errors.PSError):
    """So many requests wait on a server that it takes no more; the client then asks later."""


class TooEarly(errors.PSError):
    """Ranks of a loop are still too far behind for a pull; the client then asks again."""


# --- errors ---------------------------------------------------------------------------------------

_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        errors.PSError,
        errors.ServerLost,
        errors.SessionUnknown,
        errors.BufferLost,
        errors.OutOfBudget,
        errors.AuthenticationError,
        errors.InvalidProgram,
        errors.ProgramCancelled,
        errors.RoundClosed,
        errors.StaleRequest,
        errors.TopicClosed,
        errors.LoopClosed,
        errors.AttemptFenced,
        Crowded,
        TooEarly,
        NothingShared,
        UnknownSweep,
        Abandoned,
        PayloadBroken,
        ValueError,
        IndexError,
        TypeError,
        NotImplementedError,
        MemoryError,
        OverflowError,
    )
}


def encode_error(error: Exception) -> pb.Reply:
    """A reply that makes ``decode_error`` raise the same; unknown classes become ``PSError``."""
    kind, text = type(error).__name__, str(error)
    if len(text) > _MOST_ERROR_TEXT:
        text = text[:_MOST_ERROR_TEXT] + " ..."
    if kind in _KINDS:
        return pb.Reply(error=pb.Error(kind=kind, message=text))
    text = f"the server failed with {kind}: {text}"
    return pb.Reply(error=pb.Error(kind=errors.PSError.__name__, message=text))


def decode_error(error: pb.Error, address: str) -> Exception:
    """The exception that ``error`` describes; failures of the servers also name the server."""
    kind = _KINDS.get(error.kind, errors.PSError)
    where = f" (server {address})" if issubclass(kind, errors.PSError) else ""
    return kind(error.message + where)


# --- sweeps ---------------------------------------------------------------------------------------


def _encode_type(value: ValueType) -> pb.ValueType:
    return pb.ValueType(dtype=value.dtype, row=value.row)


def _decode_type(message: pb.ValueType) -> ValueType:
    return ValueType(message.dtype, tuple(message.row))


def encode_sweep(sweep: Sweep) -> pb.Sweep:
    """The structure of one traversal as a message."""
    return pb.Sweep(
        inputs=[_encode_type(value) for value in sweep.inputs],
        scalars=[_encode_type(value) for value in sweep.scalars],
        steps=[pb.Step(op=s.op, args=s.args, type=_encode_type(s.type)) for s in sweep.steps],
        outputs=sweep.outputs,
        reductions=[pb.Reduction(op=r.op, arg=r.arg) for r in sweep.reductions],
    )


def decode_sweep(message: pb.Sweep) -> Sweep:
    """The inverse of ``encode_sweep``; whether it is legal is for ``program.verify`` to say."""
    return Sweep(
        inputs=tuple(_decode_type(value) for value in message.inputs),
        scalars=tuple(_decode_type(value) for value in message.scalars),
        steps=tuple(Step(s.op, tuple(s.args), _decode_type(s.type)) for s in message.steps),
        outputs=tuple(message.outputs),
        reductions=tuple(Reduction(r.op, r.arg) for r in message.reductions),
    )


def _scalar_format(types: tuple[ValueType, ...]) -> tuple[struct.Struct, tuple[int, ...]]:
    """How scalars travel, and which of them are int32."""
    few = len(types) <= _MOST_REMEMBERED_SCALARS  # else what is remembered would be large
    return _remembered_format(types) if few else _new_format(types)


def _new_format(types: tuple[ValueType, ...]) -> tuple[struct.Struct, tuple[int, ...]]:
    text = "".join("d" if value.dtype.startswith("float") else "q" for value in types)
    narrow = tuple(k for k, value in enumerate(types) if value.dtype == "int32")
    return struct.Struct("<" + text), narrow


_remembered_format = lru_cache(maxsize=4096)(_new_format)


def encode_scalars(types: tuple[ValueType, ...], values: Sequence[Scalar]) -> bytes:
    """Eight bytes per scalar: floats as float64, so NaN and inf pass, the rest as int64.

    Raises ``ValueError`` for a value its type cannot hold, or if there are too many or too few.
    """
    try:
        return _scalar_format(types)[0].pack(*values)
    except (struct.error, OverflowError) as error:
        names = ", ".join(value.dtype for value in types)
        raise ValueError(f"scalars {tuple(values)!r} do not fit ({names}): {error}") from error


def decode_scalars(types: tuple[ValueType, ...], data: bytes) -> tuple[Scalar, ...]:
    """The inverse of ``encode_scalars``."""
    if len(data) != 8 * len(types):
        raise errors.InvalidProgram(
            f"{len(types)} scalars are {8 * len(types)} bytes, got {len(data)}"
        )
    form, narrow = _scalar_format(types)
    values = form.unpack(data)
    for k in narrow:
        if not -(1 << 31) <= values[k] < 1 << 31:
            raise errors.InvalidProgram(f"scalar {values[k]} is no int32")
    return tuple(
        bool(value) if type_.dtype == "bool" else value
        for type_, value in zip(types, values, strict=True)
    )


def encode_call(call: SweepCall, *, full: bool) -> pb.SweepCall:
    """One sweep with what it runs on; its structure goes along only if ``full``."""
    return pb.SweepCall(
        digest=call.sweep.digest,
        sweep=encode_sweep(call.sweep) if full else None,
        length=call.space.length,
        inputs=call.inputs,
        scalars=encode_scalars(call.sweep.scalars, call.scalars),
        outputs=call.outputs,
        donors=call.donors,
    )


def decode_call(message: pb.SweepCall, sweep: Sweep) -> SweepCall:
    """The inverse of ``encode_call``, for a sweep that was looked up by its digest.

    Raises ``InvalidProgram`` if there are more or fewer buffers or scalars than the sweep has.
    """
    if (len(message.inputs), len(message.outputs)) != (len(sweep.inputs), len(sweep.outputs)):
        raise errors.InvalidProgram(
            f"the sweep has {len(sweep.inputs)} inputs and {len(sweep.outputs)} outputs, but the "
            f"call names {len(message.inputs)} and {len(message.outputs)}:\n{sweep}"
        )
    return SweepCall(
        sweep=sweep,
        space=DenseSpace(message.length),
        inputs=tuple(message.inputs),
        scalars=decode_scalars(sweep.scalars, message.scalars),
        outputs=tuple(message.outputs),
        donors=tuple(message.donors),
    )


def dtype_of(name: str) -> np.dtype:
    """The dtype called ``name``; ``TypeError`` if it is not one of ``DTYPES``."""
    if name not in DTYPES:
        raise TypeError(f"dtype {name!r} is not supported; use one of {', '.join(DTYPES)}")
    return np.dtype(name)


# --- chunks ---------------------------------------------------------------------------------------

_CHUNK_TAG = 15 << 3 | 2  # field 15 (`chunk` of Request and of Reply), length-delimited


def byte_view(array: np.ndarray) -> memoryview:
    """The memory of a C-contiguous array as flat bytes, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def chunk_frames(parts: Parts) -> Iterator[bytes]:
    """``parts`` as serialized messages with nothing but a chunk: one copy, and none by protobuf."""
    for part in parts:
        for start in range(0, len(part), CHUNK_BYTES):
            piece = part[start : start + CHUNK_BYTES]
            yield b"".join((_chunk_header(len(piece)), piece))


def chunk_field(parts: Parts) -> bytes:
    """``parts`` as one chunk, to be appended to a serialized message that has none."""
    return b"".join((_chunk_header(sum(map(len, parts))), *parts))


def chunk_of(frame: bytes) -> memoryview:
    """The chunk in a serialized message of ``chunk_frames``, without a copy."""
    size = position = 0
    if frame[:1] == bytes((_CHUNK_TAG,)):
        for position in range(1, min(len(frame), 11)):
            byte = frame[position]
            size |= (byte & 0x7F) << 7 * (position - 1)
            if byte < 0x80:
                break
        if len(frame) == position + 1 + size:
            return memoryview(frame)[position + 1 :]
    raise PayloadBroken("expected a message with nothing but a chunk of payload")


def _chunk_header(size: int) -> bytes:
    header = bytearray((_CHUNK_TAG,))
    while size > 0x7F:
        header.append(size & 0x7F | 0x80)
        size >>= 7
    header.append(size)
    return bytes(header)


def copy_chunks(chunks: Iterable[memoryview], target: memoryview) -> int:
    """Copy ``chunks`` one after the other into ``target``; ``PayloadBroken`` unless they fill it.

    Returns the number of bytes.
    """
    position = 0
    for chunk in chunks:
        end = position + len(chunk)
        if end > len(target):
            raise PayloadBroken(f"more than the announced {len(target)} bytes of payload came")
        target[position:end] = chunk
        position = end
    if position != len(target):
        raise PayloadBroken(f"{position} of {len(target)} bytes of payload came")
    return position
