"""What comes to a server's port and is no good: those who are let in do not notice."""

import os
import resource
import select
import signal
import socket
import struct
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
from ps_backend.processes.certificates import Authority, held_identity, new_key
from ps_backend.processes.launcher import launch_local
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.server.endpoints import authentication, relay_process
from ps_backend.server.endpoints import grpc_server as server_module
from ps_backend.server.endpoints.relay import Relay
from ps_backend.transport import Busy, grpc_transport
from ps_backend.transport.grpc_transport import MOST_REQUEST_BYTES, PEER, SERVICE, TOKEN_KEY
from ps_backend.transport.tls import open_channel, proof_of_token
from tests.fuzz.http2 import ABUSES, abuse
from tests.ps_backend.far_away import far_away
from tests.ps_backend.helpers import TOKEN, dot, put, served
from tests.ps_backend.stranger import Stranger, let_in
from tests.waiting import PATIENCE, has_ended, wait_for

SPACE = DenseSpace(3000)
X = np.random.default_rng(0).standard_normal(SPACE.length)
METHODS = ("Call", "Stream", "Shared")
ALL_METHODS = (*METHODS, *(f"{PEER}{name}" for name in METHODS))
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


def member(address: str, token: str) -> Stranger:
    """Who has the token, and shows it wherever it is asked for."""
    return Stranger(address, ((TOKEN_KEY, token),), token=token)


# --- before gRPC: who does not show that it has the token -----------------------------------------


def test_without_the_token_a_server_does_not_grow(running):
    """Whatever of HTTP/2 comes, gRPC gets none of it: it would keep headers that do not end."""
    before = resident_bytes(running.pids[0])
    for name in ABUSES:
        for listens in (True, False):
            sent = abuse(running.addresses[0], name, (), listens=listens, seconds=5.0)
            assert sent
    for _ in range(2):
        abuse(
            running.addresses[0], "a text without end", (), listens=False, seconds=5.0, most=1 << 28
        )
    assert is_served(running)
    assert resident_bytes(running.pids[0]) - before < 16 << 20


@pytest.mark.parametrize(
    "head",
    [
        "CONNECT distvec HTTP/1.1",
        "CONNECT distvec HTTP/1.1\r\nProxy-Authorization:",
        f"CONNECT distvec HTTP/1.1\r\nProxy-Authorization: {proof_of_token('wrong')}",
        "CONNECT distvec HTTP/1.1\r\nProxy-Authorization: \xff",
        f"CONNECT distvec HTTP/1.1\r\nAuthorization: {proof_of_token(TOKEN)}",
        "PRI * HTTP/2.0",
        "\r\n\r\n",
    ],
)
def test_who_shows_no_proof_is_told_so(head):
    with (
        served() as (server,),
        socket.create_connection(("127.0.0.1", server.port), PATIENCE) as other,
    ):
        other.sendall(f"{head}\r\n\r\n".encode("latin-1"))
        assert other.makefile("rb").read().startswith(b"HTTP/1.1 407 ")


def test_the_proof_may_come_in_pieces_and_other_headers_with_it():
    lines = (
        "CONNECT x:1 HTTP/1.1", "Host: x:1", f"proxy-authorization:{proof_of_token(TOKEN)}", "", ""
    )  # fmt: skip
    with (
        served() as (server,),
        socket.create_connection(("127.0.0.1", server.port), PATIENCE) as other,
    ):
        other.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in "\r\n".join(lines).encode():
            other.sendall(bytes((byte,)))
        assert other.recv(4096).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("sent", [b"", b"C", b"CONNECT distvec HTTP/1.1\r\n", bytes(1024)])
def test_who_never_ends_its_proof_is_sent_away(monkeypatch, sent):
    monkeypatch.setattr(relay_process, "SILENT_SECONDS", 0.1)
    with served() as (server,), ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(let_nothing_be_said(server, sent))
            ends_in_time(connection)
        put(stack.enter_context(Client.connect([server.address], token=TOKEN)), SPACE, X)


def let_nothing_be_said(server, sent: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
    connection.sendall(sent)
    return connection


def test_of_many_strangers_the_oldest_is_sent_away(monkeypatch):
    monkeypatch.setattr(relay_process, "MOST_STRANGERS", 5)
    with served() as (server,), ExitStack() as stack:
        strangers = [stack.enter_context(let_nothing_be_said(server, b"C")) for _ in range(25)]
        for stranger in strangers[:20]:
            ends_in_time(stranger)
        strangers[-1].settimeout(0.0)
        with pytest.raises(BlockingIOError):
            strangers[-1].recv(1)
        assert server_status([server.address], token=TOKEN)[0].sessions == 0


def test_many_from_one_address_send_none_away_from_another(monkeypatch):
    monkeypatch.setattr(relay_process, "MOST_STRANGERS", 5)
    with served() as (server,), ExitStack() as stack:
        slow = socket.create_connection(("127.0.0.1", server.port), PATIENCE, ("127.0.0.2", 0))
        stack.enter_context(slow).sendall(b"CONNECT distvec HTTP/1.1\r\n")
        strangers = [stack.enter_context(let_nothing_be_said(server, b"C")) for _ in range(25)]
        for stranger in strangers[:20]:
            ends_in_time(stranger)
        slow.sendall(f"Proxy-Authorization: {proof_of_token(TOKEN)}\r\n\r\n".encode())
        assert slow.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_the_port_is_held_by_another_process_if_the_first_one_dies(caplog):
    with served() as (server,), far_away([server], near=False) as (client, _):
        x, first = put(client, SPACE, X), server.front._process
        first.kill()
        first.wait()
        wait_for(lambda: server.front._process is not first)
        assert client.read(x, array_type(SPACE, float)).tobytes() == X.tobytes()
        second = server.front._process
    assert second.poll() is not None
    assert "another one begins" in caplog.text


def test_the_process_at_the_port_ends_with_a_server_that_is_killed():
    with launch_local(1, memory=1 << 26) as servers:
        pid, port = servers.pids[0], int(servers.addresses[0].rpartition(":")[2])
        tasks = Path(f"/proc/{pid}/task").glob("*/children")
        (relay,) = (int(one) for file in tasks for one in file.read_text().split())
        assert b"ps_backend.server.endpoints.relay" in Path(f"/proc/{relay}/cmdline").read_bytes()
        os.kill(pid, signal.SIGKILL)
        assert has_ended(relay)
        socket.create_server(("127.0.0.1", port)).close()


def test_strangers_who_use_up_all_files_are_turned_away():
    with served() as (server,), far_away([server], near=False) as (client, _), ExitStack() as stack:
        x, pid = put(client, SPACE, X), server.front._process.pid
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (30, 4096))
        strangers = [stack.enter_context(let_nothing_be_said(server, b"C")) for _ in range(200)]
        ends_in_time(strangers[-1])
        assert client.read(x, array_type(SPACE, float)).tobytes() == X.tobytes()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (4096, 4096))
        assert server_status([server.address], token=TOKEN)[0].sessions == 1
        assert server.front._process.poll() is None


def test_nobody_else_on_the_host_reaches_grpc_itself():
    """Its socket has neither a name in the network namespace nor a file."""
    with served() as (server,):
        sockets = Path("/proc/net/unix").read_text()
        assert f"distvec-{server.port}" not in sockets
        file = Path(server.front._inner)
        assert not file.resolve().exists()
        with socket.socket(socket.AF_UNIX) as own:
            own.connect(str(file))  # this process can


def test_replies_that_are_read_late_come_whole():
    """More than all buffers hold goes through, both ways, as it is taken."""
    space = DenseSpace(2_000_000)
    values = np.random.default_rng(3).normal(size=space.length)
    with served() as (server,), far_away([server]) as (client, (transport,)):
        transport._framed._again = float("inf")  # gRPC moves everything
        threads = ThreadPoolExecutor(4)
        buffers = list(threads.map(lambda _: put(client, space, values), range(4)))
        read = threads.map(lambda x: client.read(x, array_type(space, float)), buffers)
        assert all(one.tobytes() == values.tobytes() for one in read)
        threads.shutdown()
        assert transport.streamed >= 8


# --- within gRPC: who was let in, and says another token, or more than it should ------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("token", ["no token", "a wrong token", "the token"])
def test_half_open_calls_silence_nobody(running, method, token):
    metadata = {
        "no token": (),
        "a wrong token": ((TOKEN_KEY, "wrong"),),
        "the token": ((TOKEN_KEY, running.token),),
    }[token]
    with Client.connect(running.addresses, token=running.token) as before:
        strangers = [
            Stranger(running.addresses[0], metadata, token=running.token) for _ in range(7)
        ]
        for stranger in strangers:
            for _ in range(MANY // len(strangers)):
                stranger.begin(f"/{SERVICE}/{method}")
        assert is_served(running)
        assert before.status()[0].sessions == 1
        for stranger in strangers:
            stranger.close()


@pytest.mark.parametrize("method", ALL_METHODS)
def test_the_bodies_of_strangers_are_not_read(running, method):
    before = resident_bytes(running.pids[0])
    size = 64 << 20
    wrong = ((TOKEN_KEY, "wrong"),)
    strangers = [Stranger(running.addresses[0], wrong, token=running.token) for _ in range(80)]
    with ThreadPoolExecutor(8) as pool:
        taken = list(
            pool.map(
                lambda one: one.announce(one.begin(f"/{SERVICE}/{method}"), size, 0.2), strangers
            )
        )
    assert max(taken) < size  # gRPC's window may become half of it
    assert is_served(running)
    assert resident_bytes(running.pids[0]) - before < 300 << 20
    for stranger in strangers:
        stranger.close()


def test_a_request_that_is_too_large_to_be_one_is_not_read(running):
    stranger = member(running.addresses[0], running.token)
    taken = stranger.announce(stranger.begin(f"/{SERVICE}/Call"), 16 * MOST_REQUEST_BYTES, 0.5)
    assert taken < 8 * MOST_REQUEST_BYTES
    stranger.close()


@pytest.mark.parametrize("secured", [False, True])
def test_those_who_do_not_shake_hands_are_sent_away(monkeypatch, secured):
    authority, (key, request) = Authority(), new_key()
    signed = authority.signer.authority
    identity = held_identity(key, authority.sign(request), signed) if secured else None
    tls = authority.tls if secured else None
    quick = dict(server_module._OPTIONS) | {
        "grpc.server_handshake_timeout_ms": 300,
        "grpc.http2.settings_timeout": 300,
    }
    monkeypatch.setattr(server_module, "_OPTIONS", tuple(quick.items()))
    with served(identity=identity) as (server,), ExitStack() as stack:
        connect = lambda: stack.enter_context(let_in(server.address, TOKEN, PATIENCE))  # noqa: E731
        idle, slow, junk = ([connect() for _ in range(100)] for _ in range(3))
        for one in slow:
            one.sendall(b"PRI * HTTP/2.0\r\n")
        for one in junk:
            one.sendall(bytes(range(256)))
        with Client.connect([server.address], token=TOKEN, timeout=PATIENCE, tls=tls) as client:
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
    monkeypatch.setattr(relay_process, "MOST_CONNECTIONS", 3)
    with served() as (server,), Client.connect([server.address], token=TOKEN) as client:
        with ExitStack() as stack:
            for _ in range(2):
                stack.enter_context(let_in(server.address, TOKEN))
            for _ in range(10):
                with pytest.raises(ConnectionRefusedError, match="503 No room"):
                    let_in(server.address, TOKEN)
            with pytest.raises(ServerLost):
                server_status([server.address], token=TOKEN, timeout=0.0)
            assert client.status()[0].sessions == 1
        assert server_status([server.address], token=TOKEN)[0].sessions == 1


def test_who_leaves_while_it_is_let_in_counts_once(tmp_path):
    """What it sent behind the proof can go nowhere then, either."""
    path = str(tmp_path / "grpc")
    ours, its = socket.socketpair()
    with ExitStack() as stack:
        inner = stack.enter_context(socket.socket(socket.AF_UNIX))
        inner.bind(path)
        inner.listen()
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.enter_context(ours)
        stack.enter_context(its)
        bounds = {"strangers": 4, "seconds": PATIENCE, "connections": 1}
        relay = Relay(listener, path, its, proofs=[], **bounds)
        stack.callback(relay._selector.close)
        stack.callback(os.close, relay._spare)
        listener.setblocking(False)
        leaving = socket.create_connection(listener.getsockname(), PATIENCE)
        relay._accept(0)
        (stranger,) = relay._strangers
        leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        leaving.close()
        wait_for(lambda: select.select([stranger.connection], [], [], PATIENCE)[0])
        stranger.came = b"CONNECT distvec HTTP/1.1\r\n\r\nPRI * HTTP/2.0"
        relay._answer(stranger)
        assert relay._sides == 0


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
    assert allowed >= min(most, 3 * relay_process.MOST_CONNECTIONS)


@pytest.mark.parametrize("method", ["Call", "Stream", "Shared"])
def test_a_call_that_does_not_go_on_is_ended(monkeypatch, method):
    monkeypatch.setattr(authentication, "_LONG_SECONDS", 0.1)
    never = threading.Event()
    with served() as (server,), open_channel(server.address, (), None, TOKEN) as channel:
        call = channel.stream_stream(f"/{SERVICE}/{method}", None, None)
        waiting = iter(lambda: never.wait(PATIENCE), True)
        with pytest.raises(grpc.RpcError) as caught:
            next(call(waiting, metadata=((TOKEN_KEY, TOKEN),), timeout=PATIENCE))
        assert caught.value.code() == grpc.StatusCode.CANCELLED
        never.set()


def test_an_idle_client_connects_again_without_a_word(monkeypatch):
    brief = dict(server_module._OPTIONS) | {"grpc.max_connection_idle_ms": 50}
    monkeypatch.setattr(server_module, "_OPTIONS", tuple(brief.items()))
    with (
        served() as (server,),
        Client.connect([server.address], token=TOKEN, eager=False, retry=0.0) as client,
    ):
        x = put(client, SPACE, X)
        states = []
        seen = threading.Event()

        def note(state):
            states.append(state)
            if state == grpc.ChannelConnectivity.IDLE:
                seen.set()

        client._transports[0]._channel.subscribe(note)
        assert seen.wait(PATIENCE)
        assert client.read(x, array_type(SPACE, float)).tobytes() == X.tobytes()


# --- bounds for those who have the token, too -----------------------------------------------------


def test_a_crowded_server_is_asked_again(monkeypatch):
    monkeypatch.setattr(server_module, "_THREADS", 4)
    monkeypatch.setattr(authentication, "MOST_QUEUED", 2)
    refused = threading.Event()

    def busy(details):
        refused.set()
        return Busy(details)

    monkeypatch.setattr(grpc_transport, "Busy", busy)
    with served() as (server,), Client.connect([server.address], token=TOKEN) as before:
        x = put(before, SPACE, X)
        many = member(server.address, TOKEN)
        for _ in range(8):
            many.begin(f"/{SERVICE}/Call")
        wait_for(lambda: many.left or server._pool.queued >= 2)
        assert not many.left
        server._door._strangers._count(10_000)  # as many strangers wait besides
        assert len(before.run(dot(SPACE, x, x))[0]) == 1, "who goes past gRPC does not notice"
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(
                Client.connect, [server.address], token=TOKEN, timeout=0.0, retry=0.0
            )
            assert refused.wait(PATIENCE)
            assert not coming.done()
            many.close()
            with coming.result(30) as client:
                y = put(client, SPACE, X)
                assert len(client.run(dot(SPACE, y, y))[0]) == 1


def test_strangers_beyond_a_number_wait_for_no_answer(monkeypatch):
    monkeypatch.setattr(authentication, "MOST_QUEUED", -1)  # one at work is too many already
    with served() as (server,), open_channel(server.address, (), None, TOKEN) as channel:
        call = channel.unary_unary(f"/{SERVICE}/Call", None, None)
        with pytest.raises(grpc.RpcError) as caught:
            call(b"", timeout=PATIENCE)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_a_client_with_more_threads_than_calls_may_go_over_its_connection(running):
    with (
        Client.connect(running.addresses, token=running.token, eager=False) as client,
        ThreadPoolExecutor(300) as pool,
    ):
        x = put(client, SPACE, X)
        together = threading.Barrier(300)

        def work(_):
            together.wait(PATIENCE)
            return client.read(x, array_type(SPACE, float)).tobytes() == X.tobytes()

        assert all(pool.map(work, range(300)))


def test_a_connection_carries_so_many_calls(running):
    stranger = member(running.addresses[0], running.token)
    for _ in range(200):
        stranger.begin(f"/{SERVICE}/Call")
    assert stranger.wait_until(lambda: stranger.left or stranger.refused >= 200 - 128, PATIENCE)
    assert is_served(running)
    stranger.close()


def test_who_asks_for_signs_without_end_is_sent_away(running):
    stranger = member(running.addresses[0], running.token)
    stranger.begin(f"/{SERVICE}/Call")
    stranger.ping(1000)
    assert stranger.wait_until(lambda: stranger.left, PATIENCE)
    assert is_served(running)
    stranger.close()


def test_headers_have_a_size(running):
    with open_channel(running.addresses[0], (), None, running.token) as channel:
        call = channel.unary_unary(f"/{SERVICE}/Call", None, None)
        with pytest.raises(grpc.RpcError) as caught:
            call(
                b"",
                metadata=((TOKEN_KEY, running.token), ("more", "x" * 100_000)),
                timeout=PATIENCE,
            )
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert is_served(running)
    with pytest.raises(ValueError, match="at most 4096 characters, got 5000") as refused:
        Client.connect(["127.0.0.1:1"], token="x" * 5000)
    assert "xx" not in str(refused.value)
