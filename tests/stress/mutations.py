"""Requests that an honest client sends, and what becomes of them when a field or a byte changes."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from ps_backend.client import Change, Client, SharedArray, StoredArray
from ps_backend.in_process import InProcess
from ps_backend.program.combination import Combination, Link
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program, Reduction, Step, Sweep, SweepCall
from ps_backend.program.types import ValueType, array_type
from ps_backend.server.service import Service
from ps_backend.transport import Answer
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.chunks import Parts
from ps_backend.wire.rounds import Total, Winner

_F8, _I8, _B = ValueType("float64"), ValueType("int64"), ValueType("bool")
_SPACE = DenseSpace(5000)
_LONGEST_WAIT = 0.005
_MOST_PLAIN = 1 << 20
"""Longer sweeps of a mutated structure are compiled, a second each: only some are let through."""


class Recorded(NamedTuple):
    """A request and its payload."""

    request: pb.Request
    payload: bytes


class _Recorder(InProcess):
    """Writes down what goes to a service."""

    def __init__(self) -> None:
        super().__init__(Service(memory=1 << 28), "recorded")
        self.seen: list[Recorded] = []

    def call(
        self, request: pb.Request, payload: Parts = (), into: memoryview | None = None
    ) -> Answer:
        copy = pb.Request()
        copy.CopyFrom(request)
        self.seen.append(Recorded(copy, b"".join(payload)))
        return super().call(request, payload, into)


def recorded() -> list[Recorded]:
    """At least one request of every kind, in an order in which all of them succeed."""
    transport = _Recorder()
    with Client([transport]) as client:
        _work(client)
    return transport.seen


def _work(client: Client) -> None:
    values, where = np.linspace(-1, 1, _SPACE.length), np.arange(0, 5000, 7)
    x, y, z, s, i, b = (client.new_id() for _ in range(6))
    client.status()
    client.write(x, _SPACE, values)
    client.write(i, _SPACE, np.arange(5000))
    client.write(b, _SPACE, values > 0)
    client.read(x, array_type(_SPACE, float))
    client.gather(x, array_type(_SPACE, float), where)
    client.run(Program(_calls(x, y, z, i, b)))
    client.run(Program((SweepCall(_DONATING, _SPACE, (y, z), (2.0,), (s,), (y,)),)))
    iota = Sweep((), (), (Step("iota", (), _I8),), (), (Reduction("sum", (0,)),))
    client.run(Program((SweepCall(iota, DenseSpace(100_000), (), (), ()),)))
    client.scatter_add(
        x, t := client.new_id(), array_type(_SPACE, float), where, where * 1.0, donate=False
    )
    client.scatter_add(
        t, client.new_id(), array_type(_SPACE, float), where, where * 1.0, donate=True
    )
    w = SharedArray(client.new_id(), array_type(_SPACE, float))
    client.share([x], [w])
    client.update(w, where, where * 1.0)
    client.pull(w)
    client.pull(w, where)
    client.snapshot([w], [client.new_id()])
    for attempt in range(2):
        client.stage("r", 0, attempt, _SPACE, where, where * 1.0)
        client.stage("r", 1, attempt, _SPACE, None, values, slot=1)
    totals = [
        Total(client.new_id(), array_type(_SPACE, float), [Winner(0, 1)], source=x),
        Total(client.new_id(), array_type(_SPACE, float), [Winner(1, 0)], op="max", slot=1),
    ]
    client.commit_totals("r", totals)
    client._send(
        client._requests.each([0], "reopen", round="r", targets=[total.target for total in totals])
    )
    client.drop_round("r")
    _ask_and_answer(client, x)
    _work_in_a_loop(client, w)
    client.snapshot([w], [client.new_id()], last=True)
    client.free([z, i])
    client._send(client._requests.each([0], "nothing"))
    client._send(client._requests.each([0], "close", session=False))


def _ask_and_answer(client: Client, x: int) -> None:
    mailbox, array = client.mailbox("t"), StoredArray(x, array_type(_SPACE, float))
    mailbox.open()
    asked = mailbox.ask(b"value", array, array._replace(buffer=client.new_id()))
    asked.answers(2, 0.0)
    question = mailbox.question(0, 0.0, (array.type, np.empty(_SPACE.length)))
    assert question == mailbox.question(0, 0.0)
    for key, indices in ((1, None), (2, np.arange(_SPACE.length))):
        change = Change(indices, np.ones(_SPACE.length))
        mailbox.answer(question.number, key, b"answer", _SPACE, change)
    asked.answers(2, 0.0)
    mailbox.close()


def _work_in_a_loop(client: Client, shared: SharedArray) -> None:
    array = shared.describe()
    rows = np.ones(_SPACE.length).tobytes()
    for body, payload in (
        ({"open_loop": pb.OpenLoop(loop="l", ranks=2, staleness=0)}, b""),
        ({"join_loop": pb.JoinLoop(loop="l", rank=0, attempt=1)}, b""),
        ({"join_loop": pb.JoinLoop(loop="l", rank=1, attempt=1, at=0)}, b""),
        ({"pull": pb.Pull(loop="l", attempt=1, array=array, dense=True)}, b""),
        (
            {"tick": pb.Tick(loop="l", attempt=1, pushes=[pb.Push(array=array, dense=True)])},
            rows,
        ),
        ({"exclude_rank": pb.ExcludeRank(loop="l", rank=1, attempt=1)}, b""),
        ({"read_clocks": pb.ReadClocks(loop="l")}, b""),
        ({"close_loop": pb.CloseLoop(loop="l")}, b""),
    ):
        request = client._requests.request()
        request.MergeFrom(pb.Request(sequence=0, **body))
        request.sequence = 10_000 + len(client._transports[0].seen)  # type: ignore[attr-defined]
        client._transports[0].call(request, (memoryview(payload),))


_DONATING = Sweep(
    (_F8, _F8), (_F8,), (Step("multiply", (0, 2), _F8), Step("add", (3, 1), _F8)), (4,), ()
)


def _calls(x: int, y: int, z: int, i: int, b: int) -> tuple[SweepCall, ...]:
    steps = (
        Step("exp", (0,), _F8),
        Step("multiply", (4, 3), _F8),
        Step("where", (2, 5, 0), _F8),
        Step("cast", (1,), _F8),
        Step("add", (6, 7), _F8),
        Step("less", (8, 0), _B),
    )
    ops = ("sum", "argmax", "min")
    sums = (*(Reduction(op, (value,)) for op in ops for value in (8, 1)), Reduction("any", (9,)))
    first = Sweep((_F8, _I8, _B), (_F8,), steps, (6, 8), sums)
    links = (Link("start", 0), Link("add", 1, 2, negative=True), Link("negate"))
    dot = Sweep((_F8, _F8), (_F8,), (Combination(links, _F8),), (), (Reduction("dot", (3, 1)),))
    return (
        SweepCall(first, _SPACE, (x, i, b), (0.5,), (y, z)),
        SweepCall(dot, _SPACE, (y, z), (0.5,), ()),
    )


# --- mutations ------------------------------------------------------------------------------------


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
_UNSIGNED_32 = (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32)


def mutated(recorded: Recorded, rng: random.Random) -> Recorded | None:
    """One field, one byte or the payload changed; None where no message is left."""
    kind = rng.random()
    payload = recorded.payload
    if kind < 0.25:
        request = _by_byte(recorded.request, rng)
        if request is None:
            return None
    else:
        request = pb.Request()
        request.CopyFrom(recorded.request)
        if kind < 0.9 or not payload:
            for _ in range(rng.choice((1, 1, 1, 2, 4))):
                _by_field(request, rng)
        else:
            payload = _by_length(payload, rng)
    return _within_patience(Recorded(request, payload), rng)


def _by_byte(request: pb.Request, rng: random.Random) -> pb.Request | None:
    data = bytearray(request.SerializeToString())
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                data[at] ^= 1 << rng.randrange(8)
            case 2:
                data.insert(at, rng.randrange(256))
            case _:
                del data[at : at + rng.randrange(1, 9)]
        if not data:
            return None
    try:
        return pb.Request.FromString(bytes(data))
    except DecodeError:
        return None


def _by_length(payload: bytes, rng: random.Random) -> bytes:
    match rng.randrange(3):
        case 0:
            return payload[: rng.randrange(len(payload))]
        case 1:
            return payload + bytes(rng.randrange(1, 100))
        case _:
            at = rng.randrange(len(payload))
            return payload[:at] + struct.pack("<q", rng.choice((-1, 1 << 40))) + payload[at + 8 :]


def _by_field(request: pb.Request, rng: random.Random) -> None:
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
            most = (1 << 32) - 1 if field.type in _UNSIGNED_32 else (1 << 64) - 1
            near = (int(now or 0) + 1, max(0, int(now or 0) - 1), rng.getrandbits(20))
            return min(rng.choice((*_INTEGERS, *near)), most)


def _within_patience(recorded: Recorded, rng: random.Random) -> Recorded:
    """A wait is short, and what is compiled seldom: they are legal, and cost this schedule time."""
    request = recorded.request
    for name in ("ask", "await_question", "pull"):
        if request.HasField(name) and getattr(request, name).seconds > _LONGEST_WAIT:
            body = getattr(request, name)
            body.seconds = body.seconds if body.seconds > 1e6 else _LONGEST_WAIT
    for call in request.run.calls if request.HasField("run") else ():
        if call.space.length > _MOST_PLAIN and rng.random() < 0.98:
            call.space.length = rng.randrange(_MOST_PLAIN)
    return recorded
