"""Mutated requests, against a service and against a server process: nobody else may notice."""

from __future__ import annotations

import logging
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from ps_backend.client import Client
from ps_backend.errors import PSError
from ps_backend.in_process import InProcess
from ps_backend.processes.launcher import launch_local
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.server.commands.command import Payload
from ps_backend.server.service import Service
from ps_backend.transport import OverGrpc, Unavailable
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.membership import session_name
from tests.stress.mutations import Recorded, mutated, recorded
from tests.stress.row import Row

REQUESTS = 200_000
OVER_GRPC = 0.1
"""This part of them goes to a server process, the others to a service in this one."""
MEMORY = 64 << 20
MARGIN = 96 << 20
"""Resident memory that a process may take besides its budget: compiled kernels, caches, gRPC."""
PATIENCE_SECONDS = 1.0
"""After so long the sender of a request is gone."""
SLOW_SECONDS = 20.0
"""More than that for one request, or for the good client's, counts as a failure."""
_EACH = 5
_LOOK_EVERY = 500

Send = Callable[[pb.Request, bytes], pb.Reply | None]


def run(scale: float) -> list[Row]:
    """The two rows: failures are what nobody expected, said in the detail."""
    count = int(REQUESTS * scale)
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("DISTVEC_CACHE")
        os.environ["DISTVEC_CACHE"] = folder  # of kernels that nobody needs again
        try:
            over_grpc = max(1, int(count * OVER_GRPC))
            return [_in_process(count - over_grpc), _over_grpc(over_grpc)]
        finally:
            if before is None:
                del os.environ["DISTVEC_CACHE"]
            else:
                os.environ["DISTVEC_CACHE"] = before


class _Watch(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(repr(record.exc_info[1]) if record.exc_info else record.getMessage())


class _Good:
    """A client that does its work meanwhile, and looks whether it is as it should be."""

    def __init__(self, client: Client) -> None:
        self._client, self._space = client, DenseSpace(10_000)
        self._values = np.random.default_rng(1).normal(size=10_000)
        self._x = client.new_id()
        client.write(self._x, self._space, self._values)
        self.slowest = 0.0

    def looks(self) -> Iterator[str]:
        """What is wrong."""
        began = time.perf_counter()
        got = self._client.read(self._x, array_type(self._space, float))
        if got.tobytes() != self._values.tobytes():
            yield "the good client's array has changed"
        self._client.write(y := self._client.new_id(), self._space, got)
        self._client.free([y])
        seconds = time.perf_counter() - began
        self.slowest = max(self.slowest, seconds)
        if seconds > SLOW_SECONDS:
            yield f"the good client waited {seconds:.1f} s"


def _in_process(count: int) -> Row:
    service = Service(memory=MEMORY)
    watch = _Watch()
    logging.getLogger("ps_backend.server.service").addHandler(watch)

    def send(request: pb.Request, payload: bytes) -> pb.Reply:
        deadline = time.monotonic() + PATIENCE_SECONDS
        wanted = Payload(
            request.payload,
            (memoryview(payload),) if payload else (),
            lambda: time.monotonic() < deadline,
        )
        return service.handle(request, wanted).reply

    def looks() -> Iterator[str]:
        yield from good.looks()
        yield from (f"unexpected: {said}" for said in watch.said)
        watch.said.clear()
        if service.memory.used > MEMORY + (4 << 20):
            yield f"{service.memory.used} bytes in use"

    try:
        with Client([InProcess(service, "stressed")]) as client:
            good = _Good(client)
            failures, slowest = _send_all(count, send, looks)
    finally:
        logging.getLogger("ps_backend.server.service").removeHandler(watch)
    for session in service.sessions.all():  # some are of other servers than we can say
        session.close()
    if service.memory.used:
        failures.append(f"{service.memory.used} bytes are left when all sessions are closed")
    return _row("mutated requests to a service", count, failures, slowest, good)


def _over_grpc(count: int) -> Row:
    with launch_local(1, memory=MEMORY) as servers:
        transport = OverGrpc(servers.addresses[0], token=servers.token, pipe=True)

        def send(request: pb.Request, payload: bytes) -> pb.Reply | None:
            try:
                return transport.call(request, (memoryview(payload),) if payload else ()).reply
            except (Unavailable, PSError):
                return None  # what the good client sees counts

        resident = _resident(servers.pids[0])

        def looks() -> Iterator[str]:
            yield from good.looks()
            grown = _resident(servers.pids[0]) - resident
            if grown > MEMORY + MARGIN:
                yield f"the process has grown by {grown >> 20} MiB"
            if "a request failed" in (wrote := servers._processes[0].log_tail()):
                yield f"unexpected: {wrote[-200:]}"

        with Client.connect(servers.addresses, token=servers.token) as client:
            good = _Good(client)
            failures, slowest = _send_all(count, send, looks)
        grown = (_resident(servers.pids[0]) - resident) >> 20
        transport.close()
    row = _row("mutated requests to a server process", count, failures, slowest, good)
    return row._replace(detail=f"{grown} MiB grown; {row.detail}")


def _row(what: str, count: int, failures: list[str], slowest: float, good: _Good) -> Row:
    told = "; ".join(list(dict.fromkeys(failures))[:3])
    detail = f"slowest {slowest:.2f} s, good client {good.slowest:.2f} s"
    return Row(what, count, len(failures), f"{told}; {detail}" if told else detail)


def _send_all(
    count: int, send: Send, looks: Callable[[], Iterator[str]]
) -> tuple[list[str], float]:
    """Session after session: each recorded request comes after some mutations of it."""
    rng, templates = random.Random(count), recorded()
    failures: list[str] = []
    slowest, sent, number = 0.0, 0, 0
    for name in _names():
        with _closed(name, templates[0].request, send):
            for template in templates:
                for _ in range(_EACH):
                    one = mutated(template, rng)
                    number += 1
                    if one is not None:
                        slowest = max(slowest, _send_one(one, name, number, send))
                    sent += 1
                    if sent % _LOOK_EVERY == 0:
                        failures += looks()
                    if sent == count:
                        return [*failures, *looks()], slowest
                number += 1
                slowest = max(slowest, _send_one(template, name, number, send))
                if slowest > SLOW_SECONDS:
                    failures.append(f"a request took {slowest:.1f} s")
    raise AssertionError("sessions never end")


def _send_one(one: Recorded, name: str, number: int, send: Send) -> float:
    request = pb.Request()
    request.CopyFrom(one.request)
    request.session = session_name(name)
    if request.HasField("open") and request.open.secret:
        request.open.secret = name
    if request.sequence:
        request.sequence, request.settled = number, number
    if not request.payload or request.payload < 1 << 20:
        request.payload = len(one.payload)
    began = time.perf_counter()
    send(request, one.payload)
    return time.perf_counter() - began


def _names() -> Iterator[str]:
    number = 0
    while True:
        yield f"stranger {number}"
        number += 1


@contextmanager
def _closed(secret: str, member: pb.Request, send: Send) -> Iterator[None]:
    """Close the session in the end, as its first client or, if that has left, as a new one."""
    try:
        yield
    finally:
        name = session_name(secret)
        opening = pb.Open()
        opening.CopyFrom(member.open)
        opening.secret = secret
        send(pb.Request(session=name, client="last", key=member.key, open=opening), b"")
        ending = pb.Close(session=True)
        send(pb.Request(session=name, client="last", key=member.key, close=ending), b"")


def _resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * 4096
