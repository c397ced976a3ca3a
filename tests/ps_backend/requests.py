"""Requests as they come from the wire, one by one."""

from __future__ import annotations

from itertools import count

import numpy as np

from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Reduction, Step, Sweep, SweepCall
from ps_backend.program.types import ValueType, array_type
from ps_backend.server.commands.command import Payload, Response
from ps_backend.server.service import Service
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import encode_array, encode_call
from ps_backend.wire.protocol import PROTOCOL, session_name

F8 = ValueType("float64")
I8 = ValueType("int64")
IOTA_SUM = Sweep((), (), (Step("iota", (), I8),), (), (Reduction("sum", (0,)),))
"""``arange(n).sum()``: any length, and no memory."""


def barrier(kind: str, name: str) -> pb.Barrier:
    return pb.Barrier(kind=kind, name=name)


def ask(mailbox: str, number: int, **fields) -> pb.Wait:
    """A question, or the wait for its answers."""
    seconds = fields.pop("seconds", 0.0)
    called = barrier("mailbox", mailbox)
    return pb.Wait(barrier=called, turn=number, seconds=seconds, ask=pb.Ask(**fields))


class Sender:
    """One client of a service, which says what it likes."""

    def __init__(self, service: Service, secret: str = "s", client: str = "c") -> None:
        self.service, self.session, self.client = service, session_name(secret), client
        self._numbers = count(1)
        opening = pb.Open(protocol=PROTOCOL, index=0, servers=1, create=True, secret=secret)
        reply = self.send(open=opening)
        assert not reply.HasField("error"), reply.error.message

    def outcome(self, payload: bytes = b"", **body) -> Response:
        number = next(self._numbers)
        request = pb.Request(
            session=self.session,
            client=self.client,
            sequence=number,
            settled=number,
            payload=len(payload),
            **body,
        )
        chunks = (memoryview(payload),) if payload else ()
        return self.service.handle(request, Payload(len(payload), chunks))

    def send(self, payload: bytes = b"", **body) -> pb.Reply:
        return self.outcome(payload, **body).reply

    def error(self, payload: bytes = b"", **body) -> pb.Error:
        """The error of a request that must not succeed."""
        reply = self.send(payload, **body)
        assert reply.HasField("error"), f"accepted: {body}"
        return reply.error

    def write(self, buffer: int, values: np.ndarray) -> None:
        array = encode_array(0, array_type(DenseSpace(len(values)), values.dtype))
        body = pb.Write(rows=pb.Rows(array=array), target=buffer)
        reply = self.send(values.tobytes(), write=body)
        assert not reply.HasField("error"), reply.error.message

    def read(self, buffer: int, length: int, dtype: str = "float64") -> np.ndarray:
        array = encode_array(buffer, array_type(DenseSpace(length), dtype))
        outcome = self.outcome(read=pb.Read(rows=pb.Rows(array=array)))
        assert not outcome.reply.HasField("error"), outcome.reply.error.message
        return np.frombuffer(b"".join(outcome.parts), dtype)


def run(*calls: SweepCall) -> pb.Run:
    return pb.Run(calls=[encode_call(call, full=True) for call in calls])


def call(sweep: Sweep, length: int, inputs=(), outputs=(), donors=(), scalars=()) -> SweepCall:
    return SweepCall(sweep, DenseSpace(length), inputs, scalars, outputs, donors)
