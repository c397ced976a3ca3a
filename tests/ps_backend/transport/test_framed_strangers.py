"""Strangers at the port for framed connections learn nothing, and keep nobody out."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import ExitStack, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_backend.server.endpoints import framed_server
from ps_backend.transport.framed import proofs_of
from ps_backend.transport.grpc_transport import MOST_REQUEST_BYTES
from ps_backend.wire import ps_pb2 as pb
from tests.ps_backend.far_away import SPACE, X, connected, ends, far_away, same
from tests.ps_backend.helpers import TOKEN, put, served
from tests.waiting import PATIENCE, join_all, wait_for


@pytest.fixture
def server():
    with served() as (running,):
        yield running


def framed(request: pb.Request, size: int) -> bytes:
    data = request.SerializeToString()
    return struct.pack("<IQ", len(data), size) + data


@pytest.mark.parametrize("what", ["a wrong token", "no token", "another admission", "garbage"])
def test_strangers_are_sent_away_before_anything_is_read(server, monkeypatch, what):
    asked = []
    monkeypatch.setattr(server.service, "handle", lambda *given: asked.append(given))
    proof = {
        "a wrong token": proofs_of("wrong", server.framed._admission)[0],
        "no token": proofs_of(None, server.framed._admission)[0],
        "another admission": proofs_of(TOKEN, bytes(32))[0],
        "garbage": bytes(range(32)),
    }[what]
    with connected(server) as stranger:
        stranger.sendall(proof + framed(pb.Request(status={}), 0))
        assert ends(stranger)
    assert not asked


def test_who_is_not_the_server_gets_nothing(server):
    """Whoever listens there instead is sent a proof that is of no use elsewhere, and no more."""
    with ExitStack() as stack:
        other = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        server.framed.port = other.getsockname()[1]
        client, (one,) = stack.enter_context(far_away([server]))
        came = []

        def pretend() -> None:
            connection, _ = other.accept()
            with connection:
                connection.settimeout(PATIENCE)
                connection.sendall(bytes(32))
                while data := connection.recv(1 << 16):
                    came.append(data)

        thread = threading.Thread(target=pretend)
        thread.start()
        x = put(client, SPACE, X)
        join_all(thread)
        assert sum(map(len, came)) == 32
        assert "another process listens" in one.bulk_way
        assert same(client, x)


@given(st.data())
def test_garbage_ends_a_connection_and_no_other(one_server, data):
    server, client, x = one_server
    garbage = data.draw(st.binary(min_size=1, max_size=200))
    size = data.draw(st.sampled_from((0, 1, 1 << 40, (1 << 64) - 1)))
    with connected(server, admitted=True) as known:
        known.sendall(data.draw(st.sampled_from((b"", struct.pack("<IQ", len(garbage), size)))))
        with suppress(OSError):  # it may have heard enough
            known.sendall(garbage)
            known.shutdown(socket.SHUT_WR)
        while not ends(known):  # what looks like a request may be answered with an error
            pass
    assert same(client, x)


@pytest.fixture(scope="module")
def one_server():
    with served() as (server,), far_away([server]) as (client, _):
        yield server, client, put(client, SPACE, X)


def test_those_who_stop_in_the_middle_are_sent_away(server, monkeypatch):
    monkeypatch.setattr(framed_server, "SILENT_SECONDS", 0.2)
    with far_away([server]) as (client, (transport,)):
        x = put(client, SPACE, X)
        with connected(server) as silent, connected(server) as half:
            half.sendall(bytes(7))
            assert ends(silent)
            assert ends(half)
        write = client._requests.to_all("nothing")[0].request
        write.payload = 8 * SPACE.length
        for begun in (bytes(3), bytes(11), framed(write, write.payload) + bytes(1000)):
            with connected(server, admitted=True) as known:
                known.sendall(begun)
                assert ends(known)
        assert same(client, x)  # idle for longer than that, and still there
        assert transport.streamed == 0
        wait_for(lambda: len(server.framed) == 1)


@pytest.mark.parametrize(
    "what",
    [
        struct.pack("<IQ", MOST_REQUEST_BYTES + 1, 0) + bytes(100),
        b"\xff" * 100,
        struct.pack("<IQ", 50, 0) + b"\xff" * 50,
        framed(pb.Request(status={}, payload=5), 6),
    ],
)
def test_what_is_no_request_ends_the_connection(server, what):
    with connected(server, admitted=True) as known:
        known.sendall(what)
        assert ends(known)


def test_strangers_who_say_nothing_keep_nobody_out(server):
    with ExitStack() as stack:
        first = stack.enter_context(connected(server))
        for _ in range(framed_server.MOST_STRANGERS):
            stack.enter_context(connected(server))
        assert ends(first)
        with far_away([server]) as (client, (transport,)):
            assert same(client, put(client, SPACE, X))
            assert transport.streamed == 0
        assert len(server.framed._strangers) <= framed_server.MOST_STRANGERS
