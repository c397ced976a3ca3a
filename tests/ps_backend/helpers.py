"""Programs, faults and processes that several test modules need."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from unittest import mock

import hypothesis.strategies as st
import numpy as np

from ps_backend.client import Client, SharedArray
from ps_backend.client.server_link import RetryPolicy
from ps_backend.in_process import InProcess, in_process_transports
from ps_backend.processes.cli import main
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program, Reduction, Step, Sweep, SweepCall
from ps_backend.program.types import ValueType, array_type
from ps_backend.server.commands.command import Payload, Response
from ps_backend.server.endpoints.grpc_server import Server
from ps_backend.server.service import Service
from ps_backend.transport import Answer, Transport, Unavailable
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import Parts
from tests.waiting import PATIENCE, join_all

TOKEN = "a token for tests"
QUICK = RetryPolicy(total=0.5, first=0.001, longest=0.01)
"""For servers that stay silent: the error comes soon."""

REPEATED = RetryPolicy(total=PATIENCE, first=0.001, longest=0.01)
"""For messages that get through in the end, however busy the machine is."""

F8 = ValueType("float64")

AXPY = Sweep((F8, F8), (F8,), (Step("multiply", (0, 2), F8), Step("add", (3, 1), F8)), (4,), ())
"""``a * x + y``: inputs x, y; scalar a."""

DOT = Sweep((F8, F8), (), (), (), (Reduction("dot", (0, 1)),))


def axpy(space: DenseSpace, a: float, x: int, y: int, out: int, frees=()) -> Program:
    return Program((SweepCall(AXPY, space, (x, y), (a,), (out,)),), tuple(frees))


def dot(space: DenseSpace, x: int, y: int) -> Program:
    return Program((SweepCall(DOT, space, (x, y), (), ()),))


def put(client: Client, space: DenseSpace, values) -> int:
    number = client.new_id()
    client.write(number, space, np.asarray(values))
    return number


def share(client: Client, space: DenseSpace, values) -> SharedArray:
    """A shared array that begins with ``values``."""
    given = np.asarray(values)
    source = put(client, space, given)
    array = SharedArray(client.new_id(), array_type(space, given.dtype, given.shape[1:]))
    client.share([source], [array])
    client.free([source])
    return array


def impatient(client: Client) -> None:
    """It asks servers that do not answer for half a second, not for as long as users would."""
    for link in client._fan_out.links:
        link._retry = QUICK


def in_process(servers: int, memory: int = 1 << 30) -> list[InProcess]:
    return in_process_transports(servers, memory=memory)


@contextmanager
def served(count: int = 1, token: str | None = TOKEN, **options) -> Iterator[list[Server]]:
    """gRPC servers in this process."""
    servers = [Server(Service(memory=1 << 30), token=token, **options) for _ in range(count)]
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.stop(0)


class Faulty:
    """A transport that loses requests or replies, as ``plan`` says for each call."""

    def __init__(
        self, inner: Transport, plan: Callable[[pb.Request], str] = lambda _: "ok"
    ) -> None:
        self.inner, self.plan = inner, plan
        self.requests: list[pb.Request] = []

    @property
    def address(self) -> str:
        return self.inner.address

    @property
    def bulk_way(self) -> str:
        return self.inner.bulk_way

    @property
    def is_replaced(self):
        return self.inner.is_replaced

    @property
    def generation(self) -> int:
        return self.inner.generation

    def begin_anew(self, generation: int) -> bool:
        return self.inner.begin_anew(generation)

    def call(self, request: pb.Request, payload: Parts = (), into=None) -> Answer:
        self.requests.append(pb.Request.FromString(request.SerializeToString()))
        fault = self.plan(request)
        if fault == "lose request":
            raise Unavailable("the request was lost")
        answer = self.inner.call(request, payload, into)
        if fault == "lose reply":
            raise Unavailable("the reply was lost")
        return answer

    def start(self, request: pb.Request, payload: Parts = (), into=None) -> Future[Answer]:
        future: Future[Answer] = Future()
        try:
            future.set_result(self.call(request, payload, into))
        except Unavailable as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        self.inner.close()


FAULTS = st.lists(st.sampled_from(["ok", "lose request", "lose reply"]), min_size=8)


def losing(servers: int, faults: list[str]) -> list[Faulty]:
    """Transports of so many servers, whose next requests with a number meet ``faults``."""
    left = list(faults)
    return [
        Faulty(inner, lambda request: left.pop() if left and request.sequence else "ok")
        for inner in in_process(servers)
    ]


@contextmanager
def running_a_program(server: Server, client: Client, program: Program) -> Iterator[None]:
    """Within it ``server`` is at work on ``program`` for ``client``, and ends after it."""
    held, release, handle = threading.Event(), threading.Event(), server.service.handle

    def hold(request: pb.Request, payload: Payload) -> Response:
        if request.WhichOneof("body") == "run":
            held.set()
            assert release.wait(PATIENCE)
        return handle(request, payload)

    runner = threading.Thread(target=client.run, args=[program])
    with mock.patch.object(server.service, "handle", hold):
        runner.start()
        try:
            assert held.wait(PATIENCE)
            yield
        finally:
            release.set()
            join_all(runner)


def run_main(*arguments: str) -> int:
    """Run the command, and put back the signal handlers that it sets."""
    assert threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        return main(arguments)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
