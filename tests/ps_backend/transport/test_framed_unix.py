"""Framed connections of processes on one host: requests mean what they mean over gRPC."""

from __future__ import annotations

import gc
import os
import signal
import socket
import struct
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_backend.client import Client
from ps_backend.errors import ServerLost
from ps_backend.processes.certificates import Authority, held_identity, new_key
from ps_backend.processes.launcher import launch_local
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.server.endpoints import framed_server
from ps_backend.server.endpoints.grpc_server import Server
from ps_backend.transport import GrpcTransport, framed, framed_client
from ps_backend.transport.framed import FramedConnection, PlainStream, proofs_of
from ps_backend.transport.grpc_transport import MOST_REQUEST_BYTES
from ps_backend.wire import ps_pb2 as pb
from tests.ps_backend.far_away import break_writes, connected, ends
from tests.ps_backend.helpers import REPEATED, TOKEN, axpy, dot, put, running_a_program, served
from tests.waiting import FOR_EVER, PATIENCE, join_all, wait_for

SPACE = DenseSpace(3000)
FLOATS = array_type(SPACE, float)
X = np.arange(3000.0)


class Counting(GrpcTransport):
    """Counts the small requests that went over gRPC."""

    def __init__(self, address: str, **options) -> None:
        super().__init__(address, token=TOKEN, **options)
        self.remote = 0

    def _by_itself(self, data, deadline=None):
        self.remote += 1
        return super()._by_itself(data, deadline)

    def _from_call(self, call):
        self.remote += 1
        return super()._from_call(call)


@contextmanager
def counted(servers: list[Server], **options) -> Iterator[tuple[Client, list[Counting]]]:
    transports = [Counting(server.address, **options) for server in servers]
    with Client(transports, retry=REPEATED) as client:
        for transport in transports:
            transport.remote = 0
        yield client, transports


@given(st.integers(1, 3), st.lists(st.booleans(), min_size=1, max_size=6))
def test_all_small_requests_go_this_way_and_each_is_one_message(servers, waits):
    with served(servers) as running, counted(running) as (client, transports):
        x, expected = put(client, SPACE, X), X
        client.counters.reset()
        for wait in waits:
            y = client.new_id()
            client.run(axpy(SPACE, 2.0, x, x, y, frees=[x]), wait=wait)
            x, expected = y, 2.0 * expected + expected
        client.wait()
        assert client.counters.messages == len(waits)
        assert client.read(x, FLOATS).tobytes() == expected.tobytes()
        assert [transport.remote for transport in transports] == [0] * servers


@pytest.mark.parametrize("length", [1, 8_000, 30_000, 300_000, 3_000_000])
def test_arrays_of_any_length_arrive(length):
    """In the message, through shared memory that a message speaks of, and in pieces."""
    space, values = DenseSpace(length), np.random.default_rng(0).random(length)
    with served() as (server,), counted([server]) as (client, (transport,)):
        client.status()
        x = put(client, space, values)
        assert client.read(x, array_type(space, float)).tobytes() == values.tobytes()
        assert transport.remote == 0
        assert len(server.framed) == 1


def test_with_tls_too_as_who_comes_was_let_in_by_it():
    authority, (key, request) = Authority(), new_key()
    identity = held_identity(key, authority.sign(request), authority.signer.authority)
    with (
        served(identity=identity) as (server,),
        counted([server], tls=authority.tls) as (client, (transport,)),
    ):
        assert sum(client.run(dot(SPACE, *[put(client, SPACE, X)] * 2))[0][0]) == X @ X
        assert transport.remote == 0


def test_beyond_those_there_is_room_for_clients_stay_with_grpc():
    with served() as (server,), ExitStack() as stack:
        server.framed._most = 2
        found = [stack.enter_context(counted([server])) for _ in range(4)]
        for client, _ in found:
            client.counters.reset()
            for _ in range(3):
                client.status()
            assert client.counters.messages == 3
        assert [transport.remote for _, (transport,) in found] == [0, 0, 3, 3]
        found[0][0].close()
        wait_for(lambda: len(server.framed) == 1)
        with counted([server]) as (client, (transport,)):
            client.status()
            assert transport.remote == 0


@pytest.mark.parametrize("where", ["on another host", "of another user", "without such sockets"])
def test_where_there_is_no_way_grpc_does_it(monkeypatch, where):
    with served() as (server,):
        if where == "on another host":
            server.framed.socket_name += "-elsewhere"
        elif where == "of another user":
            monkeypatch.setattr(framed.os, "geteuid", lambda: -1)
        else:
            monkeypatch.setattr(framed_client, "has_unix_sockets", lambda: False)
        with counted([server]) as (client, (transport,)):
            client.counters.reset()
            x = put(client, SPACE, X)
            assert sum(client.run(dot(SPACE, x, x))[0][0]) == X @ X
            assert client.counters.messages == transport.remote == 2
            wait_for(lambda: len(server.framed) == 0)


def test_nobody_waits_for_the_program_of_another():
    with served() as (server,), counted([server]) as (client, (transport,)):
        x = put(client, SPACE, X)
        with running_a_program(server, client, dot(SPACE, x, x)):
            assert client.status()[0].buffers == 1
            assert transport.remote == 1
        client.status()
        assert transport.remote == 1


# --- faults -------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before the request", "before the answer"])
def test_what_breaks_is_mended_and_nothing_runs_twice(monkeypatch, when):
    with served() as (server,), counted([server]) as (client, _):
        x = put(client, SPACE, X)
        cut, runs = break_writes(server, monkeypatch, when)
        for _ in range(3):
            if when == "before the request":
                cut()
            y = client.new_id()
            client.scatter_add(x, y, FLOATS, [1], [1.0], donate=True)
            x = y
        assert client.read(x, FLOATS)[1] == X[1] + 3.0
        assert len(runs) == (3 if when == "before the request" else 6)
        client.status()  # over gRPC, after which the socket is tried again
        client.status()
        wait_for(lambda: len(server.framed) == 1)
        assert not framed_client._expected, "what was lost on the way is waited for no more"


def test_an_interrupted_wait_does_not_shift_the_replies(monkeypatch):
    with served() as (server,), counted([server]) as (client, (transport,)):
        x = put(client, SPACE, X)
        pending = transport.start(client._requests.to_all("status")[0].request)

        def interrupted(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            (connection,) = transport._framed._busy
            patch.setattr(connection, "receive", interrupted)
            with pytest.raises(KeyboardInterrupt):
                pending.result()
        for _ in range(3):
            assert sum(client.run(dot(SPACE, x, x))[0][0]) == X @ X
        assert transport.remote == 0


def test_a_child_that_closes_what_it_inherits_leaves_its_parent_alone():
    with served() as (server,), counted([server]) as (client, (transport,)):
        client.status()
        transport._framed._pid += 1  # as in a child, whose descriptors are copies
        (connection,) = transport._framed._idle
        kept = os.dup(connection._connection.fileno())
        transport._framed.close()
        with closing(socket.socket(fileno=kept)) as still, pytest.raises(BlockingIOError):
            still.recv(1, socket.MSG_DONTWAIT)
        wait_for(lambda: len(server.framed) == 0)


def test_a_client_that_nobody_closes_leaves_no_connection():
    with served() as (server,), warnings.catch_warnings():
        warnings.simplefilter("error")
        client = Client([GrpcTransport(server.address, token=TOKEN)])
        client.status()
        assert len(server.framed) == 1
        del client
        gc.collect()
        wait_for(lambda: len(server.framed) == 0)


def test_a_killed_server_is_lost():
    with (
        launch_local(1, memory=1 << 26) as servers,
        Client.connect(servers.addresses, token=servers.token, retry=0.5) as client,
    ):
        put(client, SPACE, X)
        os.kill(servers.pids[0], signal.SIGKILL)
        with pytest.raises(ServerLost):
            put(client, SPACE, X)


def test_a_server_stops_at_once_after_it_has_answered_what_it_runs(monkeypatch):
    with served() as (server,), counted([server]) as (client, _), counted([server]) as (idle, _):
        idle.status()
        handle = server.service.handle
        stopper = threading.Thread(target=server.stop, args=[FOR_EVER])

        def stop_first(request, payload):
            stopper.start()
            assert server.framed._ending.wait(PATIENCE)
            return handle(request, payload)

        monkeypatch.setattr(server.service, "handle", stop_first)
        assert client.status()[0].sessions == 2
        join_all(stopper)
        assert len(server.framed) == 0
        for one in (client, idle):
            one._fan_out.links[0].lost = True  # so that closing does not ask for long


# --- strangers ----------------------------------------------------------------------------------


def status_request() -> bytes:
    data = pb.Request(status={}).SerializeToString()
    return struct.pack("<IQ", len(data), 0) + data


@pytest.mark.parametrize("what", ["a wrong token", "no token", "another admission", "garbage"])
def test_strangers_are_sent_away_before_anything_is_read(monkeypatch, what):
    with served() as (server,):
        asked = []
        monkeypatch.setattr(server.service, "handle", lambda *given: asked.append(given))
        proof = {
            "a wrong token": proofs_of("wrong", server.framed._admission)[0],
            "no token": proofs_of(None, server.framed._admission)[0],
            "another admission": proofs_of(TOKEN, bytes(32))[0],
            "garbage": bytes(range(32)),
        }[what]
        with connected(server, unix=True) as stranger:
            stranger.sendall(proof + status_request())
            assert ends(stranger)
        assert not asked


def test_those_who_stop_in_the_middle_are_sent_away(monkeypatch):
    monkeypatch.setattr(framed_server, "SILENT_SECONDS", 0.2)
    with served() as (server,), counted([server]) as (client, (transport,)):
        client.status()
        with connected(server, unix=True) as silent, connected(server, unix=True) as half:
            half.sendall(bytes(7))
            assert ends(silent)
            assert ends(half)
        for begun in (
            status_request()[:2],
            status_request()[:-1],
            struct.pack("<IQ", 1 << 16, 0) + bytes(1 << 15),
        ):
            with connected(server, admitted=True, unix=True) as known:
                known.sendall(begun)
                assert ends(known)
        client.status()  # idle for longer than that, and still there
        assert transport.remote == 0
        wait_for(lambda: len(server.framed) == 1)


@pytest.mark.parametrize(
    "what",
    [
        struct.pack("<IQ", MOST_REQUEST_BYTES + 1, 0) + bytes(100),
        b"\xff" * 100,
        struct.pack("<IQ", 50, 0) + b"\xff" * 50,
    ],
)
def test_what_is_no_request_ends_the_connection_and_no_other(what):
    with served() as (server,), counted([server]) as (client, (transport,)):
        with connected(server, admitted=True, unix=True) as known:
            known.sendall(what)
            assert ends(known)
        client.status()
        assert transport.remote == 0
        wait_for(lambda: len(server.framed) == 1)


def test_many_who_do_not_say_who_they_are_keep_nobody_waiting():
    with served() as (server,), ExitStack() as stack:
        for _ in range(framed_server.MOST_STRANGERS + 50):
            stack.enter_context(connected(server, unix=True))
        with counted([server]) as (client, _):
            client.counters.reset()
            x = put(client, SPACE, X)
            assert sum(client.run(dot(SPACE, x, x))[0][0]) == X @ X
            assert client.counters.messages == 2
            # Threads of those that were sent away end when they are scheduled.
            wait_for(lambda: len(server.framed) <= framed_server.MOST_STRANGERS + 1)
    wait_for(lambda: len(server.framed) == 0)


def test_who_was_answered_soon_looks_out_for_the_next_message():
    """Then it need not wake up; and who hears nothing soon sleeps, as anybody does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with closing(ours), closing(theirs):
        one, other = looking_out(ours, 0.05), looking_out(theirs, 0.05)
        silences = []

        def silent(begun: bool) -> None:
            silences.append(begun)
            other.send(b"late", (), silent)

        for text in (b"one", b"two", b"three"):
            other.send(text, (), silent)
            assert one.receive(silent) == (text, 0)
        assert not silences
        assert one.receive(silent) == (b"late", 0)
        assert silences == [False]
        other.send(b"again", (), silent)
        assert one.receive(silent) == (b"again", 0)
        assert framed._looking_out.acquire(blocking=False), "nobody looks out any more"
        framed._looking_out.release()
        theirs.close()
        assert one.receive(silent) is None


def looking_out(connection: socket.socket, seconds: float) -> FramedConnection:
    return FramedConnection(connection, PlainStream(connection, seconds), 100, looks_out=True)


class Watched(socket.socket):
    """Counts how often it is asked for what may not be there yet."""

    looks = 0

    def recv_into(self, buffer, nbytes=0, flags=0):
        self.looks += bool(flags & socket.MSG_DONTWAIT)
        return super().recv_into(buffer, nbytes, flags)


def test_nobody_looks_out_while_all_processors_are_needed():
    """A client would keep one of two servers from the only processor that is left for both."""
    half, theirs = socket.socketpair(socket.AF_UNIX)
    with closing(Watched(fileno=half.detach())) as ours, closing(theirs):
        one, other = looking_out(ours, 5.0), looking_out(theirs, 5.0)
        for at_work, looks in ((1, 0), (1, 1), (10**6, 1), (1, 2)):
            other.send(b"soon", (), lambda begun: None)
            assert one.receive(lambda begun: None, at_work) == (b"soon", 0)
            assert ours.looks == looks
