"""Honest requests in which a field or a byte changes, or which another one is grafted on."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from ps_backend.wire import ps_pb2 as pb
from tests.fuzz.recordings import Recorded

_INTEGERS = (0, 1, 2, 3, 7, 255, 1 << 16, 1 << 20, 1 << 31, (1 << 32) - 1, 1 << 53, (1 << 64) - 1)
_FLOATS = (0.0, -1.0, float("nan"), float("inf"), float("-inf"), 1e300, 5e-324)
_TEXTS = (
    "",
    "float64",
    "int32",
    "bool",
    "add",
    "uniform",
    "iota",
    "pow",
    "argmin",
    "\0",
    "x" * 9999,
)
_SIGNED = (FieldDescriptor.TYPE_SINT64,)
_MOST = {
    FieldDescriptor.TYPE_UINT32: (1 << 32) - 1,
    FieldDescriptor.TYPE_FIXED32: (1 << 32) - 1,
    FieldDescriptor.TYPE_SINT64: (1 << 63) - 1,
}


def by_field(recorded: Recorded, rng: random.Random) -> Recorded:
    """Some fields have other values, or are there more often, or not at all."""
    request = pb.Request()
    request.CopyFrom(recorded.request)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        _change_field(request, rng)
    return recorded._replace(request=request)


def by_payload(recorded: Recorded, rng: random.Random) -> Recorded:
    """The payload is cut, longer, or has another number in it; its size is announced as it was."""
    payload = recorded.payload or bytes(8)
    at = rng.randrange(len(payload))
    match rng.randrange(3):
        case 0:
            payload = payload[:at]
        case 1:
            payload += bytes(rng.randrange(1, 100))
        case _:
            payload = (
                payload[:at] + struct.pack("<q", rng.choice((-1, 1 << 40))) + payload[at + 8 :]
            )
    return recorded._replace(payload=payload)


def by_byte(data: bytes, rng: random.Random) -> bytes:
    """Some bytes are others, or gone, or new."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(changed)) if changed else 0
        match rng.randrange(5):
            case 0:
                changed[at : at + 1] = rng.randbytes(1)
            case 1 if changed:
                changed[at] ^= 1 << rng.randrange(8)
            case 2:
                changed.insert(at, rng.randrange(256))
            case 3:
                del changed[at : at + rng.randrange(1, 9)]
            case _:
                del changed[at:]
    return bytes(changed)


def by_splice(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """The beginning of one and the end of another: protobuf merges what comes twice."""
    other = rng.choice(others)
    match rng.randrange(3):
        case 0:
            return data + other
        case 1:
            return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]
        case _:
            at, size = rng.randrange(len(other) + 1), rng.randrange(1, 40)
            to = rng.randrange(len(data) + 1)
            return data[:to] + other[at : at + size] + data[to + size :]


def _change_field(request: pb.Request, rng: random.Random) -> None:
    """Change one field of the body, or of something in it, or rarely of the request itself."""
    body = request.WhichOneof("body")
    places = list(_places(getattr(request, body))) if body else []
    if not places or rng.random() < 0.05:
        places = [
            (request, field) for field in request.DESCRIPTOR.fields if field.name != "session"
        ]
    message, field = rng.choice(places)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        getattr(message, field.name)[rng.choice(_INTEGERS)] = bytes(rng.choice((0, 9, 70_000)))
    elif field.is_repeated:
        _change_list(getattr(message, field.name), field, rng)
    elif field.message_type is not None:
        if rng.random() < 0.5:
            message.ClearField(field.name)
        else:
            getattr(message, field.name).SetInParent()
    else:
        setattr(message, field.name, _value(field, getattr(message, field.name), rng))


def _places(message: Message) -> Iterator[tuple[Any, FieldDescriptor]]:
    """Every field of a message and of those within it."""
    for field in message.DESCRIPTOR.fields:
        yield message, field
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        inner = getattr(message, field.name)
        for one in inner if field.is_repeated else (inner,) * message.HasField(field.name):
            yield from _places(one)


def _change_list(values: Any, field: FieldDescriptor, rng: random.Random) -> None:
    action = rng.randrange(4)
    if values and action == 0:
        del values[rng.randrange(len(values))]
    elif values and action == 1:
        for _ in range(rng.choice((1, 1, 3, 300))):
            one = values[rng.randrange(len(values))]
            values.append(one) if field.message_type is None else values.add().CopyFrom(one)
    elif field.message_type is not None:
        values.add()
    elif values and action == 2:
        values[rng.randrange(len(values))] = _value(field, values[0], rng)
    else:
        values.extend([_value(field, 0, rng)] * rng.choice((1, 1, 2, 1000)))


def _value(field: FieldDescriptor, now: Any, rng: random.Random) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            if field.type == FieldDescriptor.TYPE_BYTES:
                return rng.randbytes(rng.choice((0, 1, 8, 64, 70_000)))
            return rng.choice(_TEXTS)
        case FieldDescriptor.CPPTYPE_DOUBLE:
            return rng.choice(_FLOATS)
        case FieldDescriptor.CPPTYPE_BOOL:
            return not now
        case _:
            most = _MOST.get(field.type, (1 << 64) - 1)
            near = (abs(int(now or 0)) + 1, max(0, int(now or 0) - 1), rng.getrandbits(20))
            value = min(rng.choice((*_INTEGERS, *near)), most)
            return -value if field.type in _SIGNED and rng.random() < 0.5 else value
