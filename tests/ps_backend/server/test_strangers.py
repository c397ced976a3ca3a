"""What comes to a server's port and is no good: those who are let in do not notice."""

import resource
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc
import numpy as np
import pytest

from ps_backend.client import Client
from ps_backend.client.status import server_status
from ps_backend.errors import ServerLost
from ps_backend.processes.launcher import launch_local
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.server import door
from ps_backend.server import grpc_server as server_module
from ps_backend.transport.over_grpc import MOST_REQUEST_BYTES, SERVICE, TOKEN_KEY
from tests.ps_backend.helpers import TOKEN, dot, put, served
from tests.ps_backend.stranger import Stranger

SPACE = DenseSpace(3000)
X = np.random.default_rng(0).standard_normal(SPACE.length)
METHODS = ("Call", "Pipe", "Stream", "Shared")
MANY = 700
"""More calls than a server has threads would need, before it looked at tokens first."""


@pytest.fixture(scope="module")
def running():
    with launch_local(1, memory=512 << 20) as servers:
        yield servers


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def is_served(servers) -> bool:
    """Whether a client that comes now gets its work done, without a repeat."""
    with Client.connect(servers.addresses, token=servers.token, timeout=0.0, retry=0.0) as client:
        x = put(client, SPACE, X)
        (partials,) = client.run(dot(SPACE, x, x))
        return len(partials[0]) > 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("token", ["no token", "a wrong token", "the token"])
def test_half_open_calls_silence_nobody(running, method, token):
    metadata = {
        "no token": (),
        "a wrong token": ((TOKEN_KEY, "wrong"),),
        "the token": ((TOKEN_KEY, running.token),),
    }[token]
    with Client.connect(running.addresses, token=running.token) as before:
        strangers = [Stranger(running.addresses[0], metadata) for _ in range(7)]
        for stranger in strangers:
            for _ in range(MANY // len(strangers)):
                stranger.begin(f"/{SERVICE}/{method}")
        assert is_served(running)
        assert before.status()[0].sessions == 1
        for stranger in strangers:
            stranger.close()


@pytest.mark.parametrize("method", METHODS)
def test_the_bodies_of_strangers_are_not_read(running, method):
    before = resident_bytes(running.pids[0])
    size = 64 << 20
    strangers = [Stranger(running.addresses[0], ((TOKEN_KEY, "wrong"),)) for _ in range(80)]
    with ThreadPoolExecutor(8) as pool:
        taken = list(
            pool.map(
                lambda one: one.announce(one.begin(f"/{SERVICE}/{method}"), size, 0.2), strangers
            )
        )
    assert max(taken) < size / 2
    assert is_served(running)
    assert resident_bytes(running.pids[0]) - before < 300 << 20
    for stranger in strangers:
        stranger.close()


def test_a_request_that_is_too_large_to_be_one_is_not_read(running):
    stranger = Stranger(running.addresses[0], ((TOKEN_KEY, running.token),))
    taken = stranger.announce(stranger.begin(f"/{SERVICE}/Call"), 16 * MOST_REQUEST_BYTES, 0.5)
    assert taken < 8 * MOST_REQUEST_BYTES
    stranger.close()


def test_those_who_do_not_shake_hands_are_sent_away(monkeypatch):
    quick = dict(server_module._OPTIONS) | {
        "grpc.server_handshake_timeout_ms": 300,
        "grpc.http2.settings_timeout": 300,
    }
    monkeypatch.setattr(server_module, "_OPTIONS", tuple(quick.items()))
    with served() as (server,), ExitStack() as stack:
        connect = lambda: stack.enter_context(  # noqa: E731
            socket.create_connection(("127.0.0.1", server.port), timeout=20)
        )
        idle, slow, junk = ([connect() for _ in range(100)] for _ in range(3))
        for one in slow:
            one.sendall(b"PRI * HTTP/2.0\r\n")
        for one in junk:
            one.sendall(bytes(range(256)))
        with Client.connect([server.address], token=TOKEN, timeout=0.0) as client:
            put(client, SPACE, X)
        for one in (*idle, *slow, *junk):
            ends_in_time(one)


def ends_in_time(connection: socket.socket) -> None:
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass


def test_no_more_connections_than_a_server_has_room_for(monkeypatch):
    few = dict(server_module._OPTIONS) | {"grpc.max_allowed_incoming_connections": 3}
    monkeypatch.setattr(server_module, "_OPTIONS", tuple(few.items()))
    with served() as (server,), Client.connect([server.address], token=TOKEN) as client:
        with ExitStack() as stack:
            strangers = [
                stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 20))
                for _ in range(10)
            ]
            for one in strangers[2:]:
                ends_in_time(one)
            with pytest.raises(ServerLost):
                server_status([server.address], token=TOKEN, timeout=0.0)
            assert client.status()[0].sessions == 1
        assert server_status([server.address], token=TOKEN)[0].sessions == 1


def test_a_server_may_have_as_many_connections_as_it_lets_in():
    """Not only as many as the open files that a process has by default."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[0], 1024), before[1]))
    try:
        with launch_local(1, memory=1 << 26) as servers:
            allowed, most = resource.prlimit(servers.pids[0], resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert most == before[1]
    assert allowed >= min(most, 2 * door._MOST_CONNECTIONS)


@pytest.mark.parametrize("method", ["Call", "Stream", "Shared"])
def test_a_call_that_does_not_go_on_is_ended(monkeypatch, method):
    monkeypatch.setattr(door, "_LONG_SECONDS", 0.1)
    never = threading.Event()
    with served() as (server,), grpc.insecure_channel(server.address) as channel:
        call = channel.stream_stream(f"/{SERVICE}/{method}", None, None)
        waiting = iter(lambda: never.wait(60), True)
        with pytest.raises(grpc.RpcError) as caught:
            next(call(waiting, metadata=((TOKEN_KEY, TOKEN),), timeout=30))
        assert caught.value.code() == grpc.StatusCode.CANCELLED
        never.set()


def test_an_idle_client_connects_again_without_a_word(monkeypatch):
    brief = dict(server_module._OPTIONS) | {"grpc.max_connection_idle_ms": 50}
    monkeypatch.setattr(server_module, "_OPTIONS", tuple(brief.items()))
    with (
        served() as (server,),
        Client.connect([server.address], token=TOKEN, pipe=False, retry=0.0) as client,
    ):
        x = put(client, SPACE, X)
        states = []
        seen = threading.Event()

        def note(state):
            states.append(state)
            if state == grpc.ChannelConnectivity.IDLE:
                seen.set()

        client._transports[0]._channel.subscribe(note)
        assert seen.wait(20)
        assert client.read(x, array_type(SPACE, float)).tobytes() == X.tobytes()
