"""Servers that do not answer: every request ends in time, and none that is answered is cut off."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from ps_backend.client import Client
from ps_backend.client.server_link import Call
from ps_backend.client.status import server_status
from ps_backend.errors import ServerLost
from ps_backend.processes.launcher import LocalServers, launch_local
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.transport import framed_client, grpc_transport
from ps_backend.transport.timeouts import CLIENT_OPTIONS, completes_handshake
from tests.ps_backend.helpers import TOKEN, dot, put, share
from tests.waiting import PATIENCE

SPACE = DenseSpace(3000)
FLOATS = array_type(SPACE, float)
LARGE = DenseSpace(6_000_000)  # 48 MB: more than sockets and shared memory hold
X = np.random.default_rng(0).standard_normal(SPACE.length)
A_HANG = 60.0
"""So long a stopped server was waited for, and longer, before there were deadlines."""


def ask_for_signs_sooner(monkeypatch, first: float = 0.5, answer: float = 1.5) -> None:
    """Clients that are made from now on: on the same ways, after half a second and not 2.5."""
    told = {"keepalive_time": first, "keepalive_timeout": answer, "http2.ping_timeout": answer}
    quick = {f"grpc.{name}_ms": int(1000 * seconds) for name, seconds in told.items()}
    assert quick.keys() < dict(CLIENT_OPTIONS).keys()
    monkeypatch.setattr(
        grpc_transport, "_OPTIONS", tuple((dict(grpc_transport._OPTIONS) | quick).items())
    )
    monkeypatch.setattr(framed_client, "PING_SECONDS", first)
    monkeypatch.setattr(framed_client, "PING_ANSWER_SECONDS", answer)
    monkeypatch.setattr(grpc_transport, "SHORT_SECONDS", 3.0)


@contextmanager
def stopped(servers: LocalServers) -> Iterator[None]:
    for pid in servers.pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in servers.pids:
            os.kill(pid, signal.SIGCONT)


def requests_of_each_kind(connect, servers) -> dict:
    """What each sends once its servers are stopped; each has a client of its own."""

    def client(*, shared: bool = True) -> Client:
        made = connect()
        if not shared:
            for transport in made._transports:
                transport._shared._free.acquire()
        return made

    small, evaluating, waiting, asking = client(), client(), client(), client()
    pulling, pushing, closing, unawaited = client(), client(), client(), client()
    streaming, other = client(shared=False), client(shared=False)
    x, y = put(evaluating, SPACE, X), put(pulling, LARGE, np.zeros(LARGE.length))
    z, v = put(unawaited, SPACE, X), put(streaming, LARGE, np.zeros(LARGE.length))
    loop, target = waiting.loop("l"), share(waiting, SPACE, X)
    loop.open(2, 0)
    loop.join(0, 1)
    loop.join(1, 1)
    loop.tick(0, 1, 0, {})
    mailbox = asking.mailbox("t")
    mailbox.open()
    token = servers.token

    def run_and_wait():
        unawaited.run(dot(SPACE, z, z), wait=False)
        unawaited.wait()

    def close():
        closing.close()
        raise ServerLost("closing says nothing")

    return {
        "a small request": lambda: small.mailbox("t").open(),
        "an evaluation": lambda: evaluating.run(dot(SPACE, x, x)),
        "an evaluation that nobody waits for at first": run_and_wait,
        "a pull": lambda: pulling.read(y, array_type(LARGE, float)),
        "a pull over streams": lambda: streaming.read(v, array_type(LARGE, float)),
        "a push": lambda: put(pushing, LARGE, np.zeros(LARGE.length)),
        "a push over streams": lambda: put(other, LARGE, np.zeros(LARGE.length)),
        "a loop's pull": lambda: loop.pull(0, 1, 1, target, None),
        "a wait for a question": lambda: mailbox.question(0, 30.0),
        "a status": lambda: server_status(servers.addresses, token=token, timeout=1.0),
        "a client's status": client().status,
        "closing": close,
        "connecting": lambda: Client.connect(servers.addresses, token=token, timeout=1.0),
        "joining": lambda: Client.connect(
            servers.addresses, token=token, timeout=1.0, session=small.secret
        ),
    }


def test_whatever_is_asked_of_stopped_servers_they_are_lost_in_time(monkeypatch):
    """With both stopped the waits do not add up, either."""
    ask_for_signs_sooner(monkeypatch)
    found = {}

    def ask(kind, request):
        try:
            found[kind] = f"{kind} was answered: {request()}"
        except Exception as error:  # noqa: BLE001 - shown below
            found[kind] = error

    with launch_local(2, memory=1 << 28) as servers, ExitStack() as stack:

        def connect():
            return stack.enter_context(
                Client.connect(servers.addresses, token=servers.token, retry=1.0)
            )

        requests = requests_of_each_kind(connect, servers)
        assert all(
            completes_handshake(address, A_HANG, token=servers.token)
            for address in servers.addresses
        )
        with stopped(servers):
            threads = [
                threading.Thread(target=ask, args=one, daemon=True) for one in requests.items()
            ]
            for thread in threads:
                thread.start()
            assert not completes_handshake(servers.addresses[0], 0.5, token=servers.token)
            deadline = time.monotonic() + 0.9 * A_HANG
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
            assert {kind: type(error) for kind, error in found.items()} == dict.fromkeys(
                requests, ServerLost
            )


def test_waits_for_silent_servers_do_not_add_up(monkeypatch):
    """Once one has been given up, all others are waited for at the same time."""
    ask_for_signs_sooner(monkeypatch, 0.2, 0.5)
    result, waits = Call.result, []
    together = threading.Barrier(2)

    def noted(exchange, *, patient):
        if not patient:
            waits.append(together.wait(PATIENCE))  # which breaks where one comes after the other
        return result(exchange, patient=patient)

    monkeypatch.setattr(Call, "result", noted)
    with (
        launch_local(3, memory=1 << 28) as servers,
        Client.connect(servers.addresses, token=servers.token, retry=0.5) as client,
    ):
        space = DenseSpace(1_000_000)  # of all three
        x = put(client, space, np.zeros(space.length))
        with stopped(servers), pytest.raises(ServerLost):
            client.run(dot(space, x, x))
    assert len(waits) == 2


def test_a_server_that_goes_on_within_the_time_does_what_was_asked_once(monkeypatch):
    ask_for_signs_sooner(monkeypatch)
    with (
        launch_local(1, memory=1 << 28) as servers,
        Client.connect(servers.addresses, token=servers.token, retry=A_HANG) as client,
    ):
        x, y = put(client, SPACE, X), client.new_id()
        (link,) = client._fan_out.links
        patience = link.patience

        def go_on():
            os.kill(servers.pids[0], signal.SIGCONT)
            return patience()

        monkeypatch.setattr(link, "patience", go_on)
        with stopped(servers):
            client.scatter_add(x, y, FLOATS, [5], [1.0], donate=True)
        expected = X.copy()
        expected[5] += 1.0
        assert client.read(y, FLOATS).tobytes() == expected.tobytes()


BUSY = f"""
import ctypes, sys
from ps_backend.server.endpoints.grpc_server import Server
from ps_backend.server.service import Service

server = Server(Service(memory=1 << 28), token={TOKEN!r})
handle = server.service.handle

def hold(request, payload):
    if request.WhichOneof("body") == "wait":
        ctypes.PyDLL(None).sleep(3)  # PyDLL: no other thread of Python runs meanwhile
    return handle(request, payload)

server.service.handle = hold
server.start()
print(server.address, flush=True)
sys.stdin.read()
"""


def test_a_server_whose_python_is_busy_is_not_given_up(monkeypatch):
    ask_for_signs_sooner(monkeypatch)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(
        [sys.executable, "-c", BUSY],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        address = process.stdout.readline().strip()
        try:
            with Client.connect([address], token=TOKEN, retry=0.3) as client:
                client.counters.reset()
                client.mailbox("t").open()
                assert client.counters.messages == 1
        finally:
            process.stdin.close()
