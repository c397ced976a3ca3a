"""Requests that nobody ever sent: from the descriptors of the messages, and from none at all."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from ps_backend.program import ops, row_ops
from ps_backend.program.collectives import TABLE as MOVEMENTS
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.types import DTYPES
from ps_backend.wire import ps_pb2 as pb
from tests.fuzz.recordings import recordings

Words = Mapping[str, Sequence[Any]]
"""By the full name of a field what honest requests have there: ids, names, lengths, ops."""

_BODIES = [field.name for field in pb.Request.DESCRIPTOR.oneofs_by_name["body"].fields]
_NUMBERS = (0, 1, 2, 3, 7, 255, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 53, (1 << 63) - 1, 1 << 63)
_FLOATS = (0.0, -0.0, -1.0, math.nan, math.inf, -math.inf, 1e300, 5e-324)
_TEXTS = ("", "\0", "x" * 600, "é" * 300, "../../etc", "%s%n", "\U0010ffff")
_DEEPEST = 6


def words() -> Words:
    """What the recordings say, and the names of the tables."""
    found: dict[str, set[Any]] = {}
    for recorded in {id(one): one for some in recordings() for one in some}.values():
        _collect(recorded.request, found)
    steps = {*ops.TABLE, *row_ops.TABLE, "combine"}
    found.setdefault("distvec.ps.Step.op", set()).update(steps)
    found.setdefault("distvec.ps.Reduction.op", set()).update(REDUCERS)
    found.setdefault("distvec.ps.MovementCall.kind", set()).update(MOVEMENTS)
    for name in ("ValueType", "Array"):
        found.setdefault(f"distvec.ps.{name}.dtype", set()).update(DTYPES)
    buffers = found["distvec.ps.Array.buffer"] | {0}
    for name in ("SweepCall.inputs", "SweepCall.outputs", "SweepCall.donors", "View.index"):
        buffers |= found.setdefault(f"distvec.ps.{name}", set())
        found[f"distvec.ps.{name}"] = buffers
    return {name: sorted(values, key=repr) for name, values in found.items()}


def _collect(message: Message, found: dict[str, set[Any]]) -> None:
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        for one in value if field.is_repeated else (value,):
            if field.message_type is not None:
                _collect(one, found)
            else:
                found.setdefault(field.full_name, set()).add(one)


def made(rng: random.Random, words: Words) -> pb.Request:
    """A request whose body has fields of the right types, with values that may mean something."""
    request = pb.Request()
    body = getattr(request, rng.choice(_BODIES))
    body.SetInParent()
    _fill(body, rng, words, 0)
    request.frees.extend(
        rng.choice(words["distvec.ps.Array.buffer"]) for _ in range(rng.random() < 0.02)
    )
    return request


def _fill(message: Message, rng: random.Random, words: Words, depth: int) -> None:
    descriptor: Descriptor = message.DESCRIPTOR
    often = rng.choice((0.5, 0.8, 0.95))
    for field in descriptor.fields:
        if rng.random() > often:
            continue
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            continue
        if field.is_repeated:
            values = getattr(message, field.name)
            for _ in range(_count(rng, depth)):
                if inner is None:
                    values.append(_value(field, rng, words))
                else:
                    _fill(values.add(), rng, words, depth + 1)
        elif inner is None:
            setattr(message, field.name, _value(field, rng, words))
        elif depth < _DEEPEST:
            one = getattr(message, field.name)
            one.SetInParent()
            _fill(one, rng, words, depth + 1)


def _count(rng: random.Random, depth: int) -> int:
    most = 200 if depth < 2 else 20
    return rng.choice((0, 1, 1, 1, 2, 3)) if rng.random() < 0.99 else rng.randrange(most)


def _value(field: FieldDescriptor, rng: random.Random, words: Words) -> Any:
    known = words.get(field.full_name)
    if known and rng.random() < 0.85:
        return rng.choice(known)
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return rng.randbytes(rng.choice((0, 1, 8, 24, 4097)))
        case FieldDescriptor.CPPTYPE_STRING:
            return rng.choice(_TEXTS)
        case FieldDescriptor.CPPTYPE_DOUBLE:
            return rng.choice(_FLOATS)
        case FieldDescriptor.CPPTYPE_BOOL:
            return rng.random() < 0.5
        case FieldDescriptor.CPPTYPE_INT32 | FieldDescriptor.CPPTYPE_INT64:
            return rng.choice((-1, -(1 << 63), *(n for n in _NUMBERS if n < 1 << 63)))
        case FieldDescriptor.CPPTYPE_UINT32:
            return rng.choice([n for n in _NUMBERS if n < 1 << 32])
        case _:
            return rng.choice((*_NUMBERS, rng.getrandbits(64), rng.getrandbits(12)))


# --- below protobuf -------------------------------------------------------------------------------


def raw(rng: random.Random) -> bytes:
    """Bytes."""
    return rng.randbytes(rng.choice((0, 1, 2, 9, 100, 3000)))


def odd(data: bytes, rng: random.Random) -> bytes:
    """A request with what no encoder writes, but a wire may bring."""
    number = rng.choice((1, 2, 7, 14, 15, 19, 20, 43, 60, 5000, (1 << 29) - 1))
    match rng.randrange(8):
        case 0:  # a field that nobody knows
            return data + _varint(5000 << 3 | 2) + _varint(9) + rng.randbytes(9)
        case 1:  # a second body
            other = rng.choice([8, 9, 13, 19, 23, 31, 46])
            return data + _varint(other << 3 | 2) + b"\0"
        case 2:  # a group that does not end, or an end without one
            return data + _varint(number << 3 | rng.choice((3, 4, 6, 7)))
        case 3:  # a length beyond all bytes
            size = rng.choice((1 << 20, 1 << 31, (1 << 63) - 1, (1 << 64) - 1))
            return data + _varint(number << 3 | 2) + _varint(size) + b"abc"
        case 4:  # a number that never ends
            return data + _varint(number << 3) + b"\xff" * rng.choice((9, 10, 11, 200))
        case 5:  # a text that is none
            text = rng.choice((b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"a\xf5"))
            return data + _varint(rng.choice((1, 2)) << 3 | 2) + _varint(len(text)) + text
        case 6:  # deeper than parsers go
            inner = b""
            for _ in range(rng.choice((50, 99, 101, 2000))):
                inner = _varint(number << 3 | 2) + _varint(len(inner)) + inner
            return data + inner
        case _:  # very many of what takes no room
            tag = rng.choice((7, 8, 22)) << 3 | 2
            one = rng.choice((b"\x0a\0", b"\x1a\0", b"\x22\0"))  # empty calls, movements
            many = one * rng.choice((100, 5000))
            return data + _varint(tag) + _varint(len(many)) + many


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))
