"""Bulk data of processes that share no memory goes over sockets, and means what it means anyway."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import time
import warnings
from contextlib import suppress

import numpy as np
import pytest

from distvec import connect
from ps_backend.client import Client
from ps_backend.client.status import server_status
from ps_backend.errors import OutOfBudget, ServerLost
from ps_backend.processes.certificates import Authority, held_identity, new_key
from ps_backend.processes.launcher import launch_local
from ps_backend.program.spaces import DenseSpace
from ps_backend.server.endpoints import bulk_door
from ps_backend.server.endpoints.tls_identity import FileIdentity
from ps_backend.transport import GrpcTransport, bulk_sockets, tls_of
from ps_backend.transport.bulk_frames import BulkFrames, shut_down
from tests.ps_backend.authorities import TestAuthority
from tests.ps_backend.far_away import (
    FLOATS,
    SPACE,
    FarAway,
    X,
    connected,
    ends,
    far_away,
    same,
)
from tests.ps_backend.helpers import QUICK, REPEATED, TOKEN, put, served
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
        assert len(server.bulk) == 1


def test_servers_fetch_from_each_other_so(monkeypatch):
    ways = []
    transfer = bulk_sockets.BulkSockets.transfer

    def noted(self, request, *arguments):
        answer = transfer(self, request, *arguments)
        ways.append((request.WhichOneof("body"), self.way.split()[0]))
        return answer

    monkeypatch.setattr(bulk_sockets.BulkSockets, "transfer", noted)
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
            plain.sendall(bulk_sockets.proofs_of(TOKEN, server.bulk._admission)[0])
            with suppress(OSError):
                assert len(plain.recv(1000)) < 32  # that this is no TLS
                assert ends(plain)
        one._sockets._tls = other  # as if another server listened there
        one._sockets._idle.pop().end()
        one._sockets._made = 0
        assert same(client, put(client, SPACE, X))
        assert one.streamed == 2
        assert "certificate verify failed" in one.bulk_way


# --- where there is no way ------------------------------------------------------------------------


def test_where_the_port_cannot_be_reached_grpc_does_it_and_says_so_once(server, caplog):
    server.bulk.end(time.monotonic())
    server.bulk._ending.clear()  # it goes on to tell of a port at which nobody is
    with far_away([server]) as (client, (transport,)), caplog.at_level(logging.WARNING):
        assert client.status()[0].bulk == ""
        assert same(client, put(client, SPACE, X))
        assert transport.streamed == 2
        assert client.status()[0].bulk.startswith(f"gRPC (port {server.bulk.port} of 127.0.0.1")
    assert len(caplog.records) == 1
    assert "cannot be reached" in caplog.text


def test_a_port_that_was_not_reached_is_tried_again_later(server, monkeypatch):
    monkeypatch.setattr(bulk_sockets, "_FIRST_PAUSE", 0.0)
    with far_away([server]) as (client, (transport,)):
        transport._sockets._pause, port, server.bulk.port = 0.0, server.bulk.port, 1
        x = put(client, SPACE, X)
        assert transport.streamed == 1
        server.bulk.port = port
        assert same(client, x)
        assert transport.streamed == 1
        assert client.status()[0].bulk == f"port {port}"


def test_a_server_without_a_port_serves_by_grpc(monkeypatch):
    def refuse(*_, **__):
        raise OSError("no port is free")

    monkeypatch.setattr(bulk_door, "listen", refuse)
    with pytest.raises(OSError, match="choose another with --bulk-port"), served(bulk_port=7):
        pass
    with served() as (server,), far_away([server]) as (client, (transport,)):
        assert same(client, put(client, SPACE, X))
        assert transport.streamed == 2
        assert "no other port" in transport.bulk_way


def test_status_says_who_would_be_reached(server):
    assert server_status([server.address], token=TOKEN)[0].bulk == f"port {server.bulk.port}"
    with Client([GrpcTransport(server.address, token=TOKEN)]) as near:
        put(near, SPACE, X)
        assert near.status()[0].bulk == "shared memory"


def test_who_finds_no_place_stays_with_grpc(server, monkeypatch):
    monkeypatch.setattr(bulk_door, "MOST_CONNECTIONS", 1)
    with far_away([server]) as (one, (first,)), far_away([server]) as (other, (second,)):
        assert same(one, put(one, SPACE, X))
        assert same(other, put(other, SPACE, X))
        assert [first.streamed, second.streamed] == [0, 2]


def test_a_transfer_does_not_wait_for_others(server, monkeypatch):
    handle, count = server.service.handle, bulk_sockets.MOST_SOCKETS + 2
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
        assert len(server.bulk) == bulk_sockets.MOST_SOCKETS


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before the request", "before the answer"])
def test_what_breaks_is_mended_and_nothing_counts_twice(server, monkeypatch, when):
    with far_away([server]) as (client, (transport,)):
        x, handle, runs = put(client, SPACE, X), server.service.handle, []

        def cut() -> None:
            for connection in [*server.bulk._connections]:  # those that end go out meanwhile
                shut_down(connection)

        def handle_and_cut(request, payload):
            response = handle(request, payload)
            if request.WhichOneof("body") == "write":
                runs.append(request.sequence)
                if when == "before the answer" and len(runs) % 2:
                    cut()
            return response

        monkeypatch.setattr(server.service, "handle", handle_and_cut)
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
        wait_for(lambda: len(server.bulk) == 1)


def test_a_payload_that_is_not_read_is_no_part_of_the_next_request(server, monkeypatch):
    with far_away([server]) as (client, (transport,)):
        x = put(client, SPACE, X)
        monkeypatch.setattr(server.service.memory, "budget", 1 << 20)
        large = DenseSpace(1 << 20)
        with pytest.raises(OutOfBudget):
            put(client, large, np.zeros(large.length))
        assert same(client, x)
        assert transport.streamed == 0
        assert len(server.bulk) == 1


def test_an_interrupted_wait_does_not_shift_the_replies(server, monkeypatch):
    with far_away([server]) as (client, (transport,)):
        x = put(client, SPACE, X)
        message = client._requests.to_all("status")[0].request

        receive, here = BulkFrames.receive, threading.current_thread()

        def interrupted(*given):
            if threading.current_thread() is here:  # not in the server, which also receives
                raise KeyboardInterrupt
            return receive(*given)

        with monkeypatch.context() as patch:
            patch.setattr(BulkFrames, "receive", interrupted)
            with pytest.raises(KeyboardInterrupt):
                transport._sockets.transfer(message, (), None, 1 << 20)
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
            sockets = transport._sockets
            os.kill(servers.pids[0], signal.SIGSTOP)
            try:
                request = client._requests.to_all("status")[0].request
                with monkeypatch.context() as patch:  # not for those that answer
                    patch.setattr(bulk_sockets, "PING_SECONDS", 0.1)
                    patch.setattr(bulk_sockets, "PING_ANSWER_SECONDS", 0.1)
                    with pytest.raises(bulk_sockets.Unavailable, match="no sign of life"):
                        sockets.transfer(request, (), None, 1 << 20)
            finally:
                os.kill(servers.pids[0], signal.SIGCONT)
            assert same(client, x)


def test_a_client_that_nobody_closes_leaves_no_connection(server):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client = Client([FarAway(server.address)])
        put(client, SPACE, X)
        assert len(server.bulk) == 1
        del client
        gc.collect()
        wait_for(lambda: len(server.bulk) == 0)
