"""Framed connections to a server on another host: requests mean what they mean over gRPC."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distvec import connect
from ps_backend.client import Client
from ps_backend.client.status import server_status
from ps_backend.errors import AuthenticationError, OutOfBudget, ServerLost
from ps_backend.processes.certificates import Authority, held_identity, new_key
from ps_backend.processes.launcher import launch_local
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.server.endpoints import framed_server
from ps_backend.server.endpoints.grpc_server import Server
from ps_backend.server.endpoints.tls_identity import FileIdentity
from ps_backend.transport import GrpcTransport, framed_client, tls_of
from ps_backend.transport.framed import FramedConnection, proofs_of
from ps_backend.wire import ps_pb2 as pb
from tests.ps_backend.authorities import TestAuthority
from tests.ps_backend.far_away import (
    FLOATS,
    SPACE,
    FarAway,
    X,
    break_writes,
    connected,
    ends,
    far_away,
    same,
)
from tests.ps_backend.helpers import (
    QUICK,
    REPEATED,
    TOKEN,
    axpy,
    dot,
    put,
    running_a_program,
    served,
)
from tests.waiting import PATIENCE, join_all, wait_for


@pytest.fixture
def server():
    with served() as (running,):
        yield running


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("length", [33_000, 100_000, 3_000_001])
def test_arrays_of_any_length_arrive_and_each_is_one_message(servers, length):
    space, values = DenseSpace(length), np.random.default_rng(0).random(length)
    with served(servers) as running, far_away(running) as (client, transports):
        client.counters.reset()
        x = put(client, space, values)
        assert same(client, x, space, values)
        assert client.counters.messages == 2
        assert client.counters.bytes_sent > values.nbytes
        assert client.counters.bytes_received > values.nbytes
        assert [transport.streamed for transport in transports] == [0] * servers


def test_what_is_sparse_arrives(server):
    with far_away([server]) as (client, (transport,)):
        indices = np.random.default_rng(1).permutation(SPACE.length)
        x = put(client, SPACE, X)
        assert client.gather(x, FLOATS, indices).tobytes() == X[indices].tobytes()
        y = client.new_id()
        client.scatter_add(x, y, FLOATS, indices, X[indices], donate=False)
        assert same(client, y, values=X + X)
        client.stage("r", 0, 0, SPACE, indices, X[indices])
        client.commit("r", [(0, 0)], FLOATS, total := client.new_id())
        assert same(client, total)
        assert transport.streamed == 0
        assert len(server.framed) == 1


def test_servers_fetch_from_each_other_so(monkeypatch):
    ways = []
    send = framed_client.FramedClient.send

    def noted(self, message, *arguments, large=False):
        sent = send(self, message, *arguments, large=large)
        if large:
            body = pb.Request.FromString(message).WhichOneof("body")
            ways.append((body, self.way.split()[0]))
        return sent

    monkeypatch.setattr(framed_client.FramedClient, "send", noted)
    monkeypatch.setattr(framed_client, "has_unix_sockets", lambda: False)
    monkeypatch.setattr("ps_backend.transport.grpc_transport.SharedBulk._take", lambda _: None)
    n = 200_001
    values = np.random.default_rng(0).random(n)
    with served(2) as servers:
        addresses = [server.address for server in servers]
        with connect(addresses, token=TOKEN) as session:
            x = session.array(values)
            assert (x[::-1].numpy() == values[::-1]).all()
    assert ("fetch", "port") in ways
    assert {way for _, way in ways} == {"port"}


@pytest.mark.parametrize("kind", ["in memory", "in files", "of the client, too"])
def test_with_tls_where_the_server_has_it(tmp_path, kind):
    if kind == "in memory":
        authority, (key, request) = Authority(), new_key()
        identity = held_identity(key, authority.sign(request), authority.signer.authority)
        tls, other = authority.tls, Authority().tls
    else:
        signer = TestAuthority(tmp_path, "authority")
        both = kind == "of the client, too"
        identity = FileIdentity(*signer.issue("s"), signer.file, signer.file if both else None)
        own = signer.issue("c") if both else (None, None)
        tls = tls_of(signer.file, *own)
        other = tls_of(TestAuthority(tmp_path, "other").file, *own)
    with served(identity=identity) as (server,), far_away([server], tls=tls) as (client, (one,)):
        assert same(client, put(client, SPACE, X))
        assert one.streamed == 0
        with connected(server) as plain:  # nothing is answered without
            plain.sendall(proofs_of(TOKEN, server.framed._admission)[0])
            with suppress(OSError):
                assert len(plain.recv(1000)) < 32  # that this is no TLS
                assert ends(plain)
        one._framed._tls = other  # as if another server listened there
        one._framed._idle.pop().close()
        assert same(client, put(client, SPACE, X))
        assert one.streamed == 2
        assert "certificate verify failed" in one.bulk_way


# --- where there is no way ------------------------------------------------------------------------


def test_where_the_port_cannot_be_reached_grpc_does_it_and_says_so_once(server, caplog):
    server.framed.end(time.monotonic())
    server.framed._ending.clear()  # it goes on to tell of a port at which nobody is
    with far_away([server]) as (client, (transport,)), caplog.at_level(logging.WARNING):
        assert client.status()[0].bulk == ""
        assert same(client, put(client, SPACE, X))
        assert transport.streamed == 2
        assert client.status()[0].bulk.startswith(f"gRPC (port {server.framed.port} of 127.0.0.1")
    assert len(caplog.records) == 1
    assert "cannot be reached" in caplog.text


def test_a_port_that_was_not_reached_is_tried_again_later(server, monkeypatch):
    monkeypatch.setattr(framed_client, "_FIRST_PAUSE", 0.0)
    port, server.framed.port = server.framed.port, 1
    with far_away([server]) as (client, (transport,)):
        x = put(client, SPACE, X)
        assert transport.streamed == 1
        server.framed.port = port
        assert same(client, x)
        assert transport.streamed == 1
        assert client.status()[0].bulk == f"port {port}"


def test_a_server_without_a_port_serves_by_grpc(monkeypatch):
    def refuse(*_, **__):
        raise OSError("no port is free")

    monkeypatch.setattr(framed_server, "listen", refuse)
    with pytest.raises(OSError, match="choose another with --bulk-port"), served(bulk_port=7):
        pass
    with served() as (server,), far_away([server]) as (client, (transport,)):
        assert same(client, put(client, SPACE, X))
        assert transport.streamed == 2
        assert "no other port" in transport.bulk_way


def test_status_says_who_would_be_reached(server):
    assert server_status([server.address], token=TOKEN)[0].bulk == f"port {server.framed.port}"
    with Client([GrpcTransport(server.address, token=TOKEN)]) as near:
        put(near, SPACE, X)
        assert near.status()[0].bulk == "shared memory"


def test_who_finds_no_place_stays_with_grpc(server):
    server.framed._most = 1
    with far_away([server]) as (one, (first,)), far_away([server]) as (other, (second,)):
        assert same(one, put(one, SPACE, X))
        assert same(other, put(other, SPACE, X))
        assert [first.streamed, second.streamed] == [0, 2]


def test_a_transfer_does_not_wait_for_others(server, monkeypatch):
    handle, count = server.service.handle, framed_client.MOST_CONNECTIONS + 2
    together = threading.Barrier(count)

    def handle_at_once(request, payload):
        if request.WhichOneof("body") == "read":
            together.wait(PATIENCE)
        return handle(request, payload)

    with far_away([server]) as (client, (transport,)):
        x = put(client, SPACE, X)
        monkeypatch.setattr(server.service, "handle", handle_at_once)
        found = []
        threads = [
            threading.Thread(target=lambda: found.append(same(client, x))) for _ in range(count)
        ]
        for thread in threads:
            thread.start()
        join_all(*threads)
        assert found == [True] * count
        assert transport.streamed == 2
        assert len(server.framed) == framed_client.MOST_CONNECTIONS


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before the request", "before the answer"])
def test_what_breaks_is_mended_and_nothing_counts_twice(server, monkeypatch, when):
    with far_away([server]) as (client, (transport,)):
        x = put(client, SPACE, X)
        cut, runs = break_writes(server, monkeypatch, when)
        indices, expected = np.arange(50_000), X.copy()
        expected[:50_000] += 3.0
        for _ in range(3):
            if when == "before the request":
                cut()
            y = client.new_id()
            client.scatter_add(x, y, FLOATS, indices, np.ones(50_000), donate=True)
            x = y
        np.testing.assert_allclose(client.read(x, FLOATS), expected)
        assert len(runs) == (3 if when == "before the request" else 6)
        assert transport.streamed == 0
        wait_for(lambda: len(server.framed) == 1)


def test_a_payload_that_is_not_read_is_no_part_of_the_next_request(server, monkeypatch):
    with far_away([server]) as (client, (transport,)):
        x = put(client, SPACE, X)
        monkeypatch.setattr(server.service.memory, "budget", 1 << 20)
        large = DenseSpace(1 << 20)
        with pytest.raises(OutOfBudget):
            put(client, large, np.zeros(large.length))
        assert same(client, x)
        assert transport.streamed == 0
        assert len(server.framed) == 1


def test_an_interrupted_wait_does_not_shift_the_replies(server, monkeypatch):
    with far_away([server]) as (client, (transport,)):
        x = put(client, SPACE, X)
        message = client._requests.to_all("status")[0].request

        receive, here = FramedConnection.receive, threading.current_thread()

        def interrupted(*given):
            if threading.current_thread() is here:  # not in the server, which also receives
                raise KeyboardInterrupt
            return receive(*given)

        with monkeypatch.context() as patch:
            patch.setattr(FramedConnection, "receive", interrupted)
            with pytest.raises(KeyboardInterrupt):
                transport._framed.send(message.SerializeToString()).receive()
        for _ in range(3):
            assert same(client, x)
        assert transport.streamed == 0


def test_closing_ends_a_transfer_that_another_thread_waits_for(server, monkeypatch):
    handle, begun, go_on = server.service.handle, threading.Event(), threading.Event()

    def slow(request, payload):
        if request.WhichOneof("body") == "read":
            begun.set()
            go_on.wait(PATIENCE)
        return handle(request, payload)

    monkeypatch.setattr(server.service, "handle", slow)
    with far_away([server]) as (client, (transport,)):
        x, failures = put(client, SPACE, X), []

        def read() -> None:
            try:
                client.read(x, FLOATS)
            except Exception as error:  # noqa: BLE001 - to be looked at
                failures.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        assert begun.wait(PATIENCE)
        transport.close()
        join_all(reader)
        go_on.set()
        assert "closed" in str(failures[0])
        client._fan_out.links[0].lost = True  # so that closing does not ask for long


def test_a_killed_server_is_lost():
    with launch_local(1, memory=1 << 28) as servers:
        transport = FarAway(servers.addresses[0], token=servers.token)
        with Client([transport], retry=QUICK) as client:
            x = put(client, SPACE, X)
            assert transport.streamed == 0
            os.kill(servers.pids[0], signal.SIGKILL)
            with pytest.raises(ServerLost):
                client.read(x, FLOATS)


def test_a_stopped_server_is_noticed(monkeypatch):
    with launch_local(1, memory=1 << 28) as servers:
        transport = FarAway(servers.addresses[0], token=servers.token)
        with Client([transport], retry=REPEATED) as client:
            x = put(client, SPACE, X)
            framed = transport._framed
            os.kill(servers.pids[0], signal.SIGSTOP)
            try:
                request = client._requests.to_all("status")[0].request
                with monkeypatch.context() as patch:  # not for those that answer
                    patch.setattr(framed_client, "PING_SECONDS", 0.1)
                    patch.setattr(framed_client, "PING_ANSWER_SECONDS", 0.1)
                    with pytest.raises(framed_client.Unavailable, match="does not respond"):
                        framed.send(request.SerializeToString()).receive()
            finally:
                os.kill(servers.pids[0], signal.SIGCONT)
            assert same(client, x)


def test_a_client_that_nobody_closes_leaves_no_connection(server):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client = Client([FarAway(server.address)])
        put(client, SPACE, X)
        assert len(server.framed) == 1
        del client
        gc.collect()
        wait_for(lambda: len(server.framed) == 0)


# --- small requests -----------------------------------------------------------------------------


SMALL = DenseSpace(3000)
FEW = np.arange(3000.0)


class Counting(GrpcTransport):
    """Counts the small requests that went over gRPC."""

    def __init__(self, address: str, **options) -> None:
        super().__init__(address, token=TOKEN, near=False, **options)
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
        if options.get("eager"):
            client.status()  # over gRPC, while connections are made beside
            wait_for(lambda: all(one._framed._idle for one in transports))
        for transport in transports:
            transport.remote = 0
        yield client, transports


@given(st.integers(1, 3), st.lists(st.booleans(), min_size=1, max_size=6))
def test_small_requests_go_this_way_too_and_each_is_one_message(servers, waits):
    with served(servers) as running, counted(running, eager=True) as (client, transports):
        x, expected = put(client, SMALL, FEW), FEW
        client.counters.reset()
        for wait in waits:
            y = client.new_id()
            client.run(axpy(SMALL, 2.0, x, x, y, frees=[x]), wait=wait)
            x, expected = y, 2.0 * expected + expected
        client.wait()
        assert client.counters.messages == len(waits)
        assert client.read(x, array_type(SMALL, float)).tobytes() == expected.tobytes()
        assert [transport.remote for transport in transports] == [0] * servers


def test_only_who_is_eager_makes_a_connection_for_small_requests(server, monkeypatch):
    with counted([server]) as (client, (transport,)):
        put(client, SMALL, FEW)
        client.status()
        assert transport.remote == 2
        assert len(server.framed) == 0
    with far_away([server]) as (client, (transport,)):
        x = put(client, SPACE, X)
        monkeypatch.setattr(transport, "_by_itself", None)  # there is a connection now
        assert client.gather(x, FLOATS, [1, 2]).tolist() == X[1:3].tolist()
        assert transport.streamed == 0


def test_the_owner_of_a_session_is_eager_and_who_joins_it_is_not(server, monkeypatch):
    monkeypatch.setattr(framed_client, "has_unix_sockets", lambda: False)
    with (
        Client.connect([server.address], token=TOKEN) as owner,
        Client.connect([server.address], token=TOKEN, session=owner.secret) as joined,
    ):
        owner.status()
        joined.status()
        wait_for(lambda: len(server.framed) == 1)
        assert not joined._transports[0]._framed._idle


def test_a_port_that_lets_who_knocks_wait_keeps_no_small_request_waiting(server, monkeypatch):
    """As a firewall does that drops packets: gRPC goes on meanwhile, and alone afterwards."""
    knocked, go_on = threading.Event(), threading.Event()

    def wait(*_):
        knocked.set()
        go_on.wait(PATIENCE)
        raise TimeoutError("timed out")

    monkeypatch.setattr(framed_client.socket, "create_connection", wait)
    with Client([Counting(server.address, eager=True)], retry=REPEATED) as client:
        client.status()
        assert knocked.wait(PATIENCE)
        for _ in range(3):
            x = put(client, SMALL, FEW)
            assert sum(client.run(dot(SMALL, x, x))[0][0]) == FEW @ FEW
        go_on.set()
        (transport,) = client._transports
        wait_for(lambda: "timed out" in transport._framed._reason)
        client.status()
        assert len(server.framed) == 0


def broken(transport: GrpcTransport, how: str):
    """How asking where the server listens goes wrong, while a request goes over gRPC."""
    ask = transport._invitation

    def invite() -> pb.Invitation:
        match how:
            case "closed under it":
                transport.close()
            case "another token":
                transport._metadata = (("authorization", "a guess"),)
            case "no such method":
                transport._invite = transport._channel.unary_unary("/other/Invite", None, None)
            case "no invitation":
                transport._invite = lambda *_, **__: b"\xff"
            case "a bad address":
                transport._framed._address = "no..host:1"
        return ask()

    return invite


@pytest.mark.parametrize(
    "how", ["closed under it", "another token", "no such method", "no invitation", "a bad address"]
)
def test_a_connection_that_cannot_be_made_aside_leaves_requests_to_grpc(server, how, monkeypatch):
    unhandled: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", unhandled.append)
    transport = GrpcTransport(server.address, token=TOKEN, near=False, eager=True)
    with closing(transport):
        transport._framed._invite = broken(transport, how)
        assert transport._framed.send(b"") is None  # and one is made aside
        join_all(*(one for one in threading.enumerate() if one.name == "distvec-connect"))
        assert not unhandled
        assert not transport._framed._idle
        if how in ("no such method", "no invitation", "a bad address"):
            status = transport.call(pb.Request(status=pb.StatusQuery()))
            assert status.reply.HasField("status")


def test_a_wrong_token_is_an_error_of_the_request_alone(server, monkeypatch):
    unhandled: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", unhandled.append)
    with closing(GrpcTransport(server.address, token="a guess", near=False, eager=True)) as wrong:
        with pytest.raises(AuthenticationError, match="the token is wrong"):
            wrong.call(pb.Request(status=pb.StatusQuery()))
        join_all(*(one for one in threading.enumerate() if one.name == "distvec-connect"))
    assert not unhandled


def test_where_no_thread_can_be_started_grpc_does_it(server, monkeypatch):
    """As at the end of a process, or where there are too many."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with closing(GrpcTransport(server.address, token=TOKEN, near=False, eager=True)) as transport:
        transport._framed.send(b"")
        join_all(*(one for one in threading.enumerate() if one.name == "distvec-connect"))
        transport._framed._drop_idle()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            assert transport._framed.send(b"") is None


def test_nobody_waits_for_the_program_of_another(server):
    with counted([server], eager=True) as (client, (transport,)):
        x = put(client, SMALL, FEW)
        with running_a_program(server, client, dot(SMALL, x, x)):
            assert client.status()[0].buffers == 1
            assert transport.remote == 1
        client.status()
        assert transport.remote == 1
