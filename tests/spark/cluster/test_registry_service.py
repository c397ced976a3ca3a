"""The registry's port: proofs, strangers, and silence."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from contextlib import ExitStack, suppress

import pytest

from distvec.spark.cluster.registry import SERVE, Claim, RemoteDirectory
from ps_backend.client import MessageClient, ask_once
from ps_backend.errors import AuthenticationError, ServerLost
from ps_backend.server.endpoints.framed_server import MOST_STRANGERS
from ps_backend.transport import Location
from ps_backend.transport.framed import PlainStream
from ps_backend.transport.messages import NONCE_BYTES
from tests.spark.cluster.registries import KEY, service
from tests.waiting import PATIENCE, join_all, wait_for


def test_a_directory_elsewhere_asks_the_registry():
    with service(1) as (registry, listening):
        directory = RemoteDirectory(listening.address, KEY)
        assert directory.locate(0) is None
        registry.claim(Claim(0, 7, "a:1", 5), 1)
        assert directory.locate(0) == Location("a:1", 0)
        registry.stop("because")
        with pytest.raises(ServerLost, match="because"):
            directory.locate(0)
    assert directory.locate(0) is None


def test_another_key_is_refused_by_both_sides():
    with service(1) as (registry, listening):
        with pytest.raises(ConnectionError, match="ended"):
            ask_once(
                listening.address, "another key", {"claim": {"server": 0, "attempt": 1}}, PATIENCE
            )
        assert registry.owned == 0
        assert ask_once(listening.address, KEY, {"locate": 0}, PATIENCE) == {}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=pretend, args=[listener])
        thread.start()
        with pytest.raises(AuthenticationError, match="has another key"):
            ask_once(listener.getsockname(), KEY, {"locate": 0}, PATIENCE)
        join_all(thread)


def pretend(listener: socket.socket) -> None:
    """Lets in whoever comes, without the key."""
    connection, _ = listener.accept()
    with connection, suppress(ConnectionError):
        connection.sendall(bytes(NONCE_BYTES + 1000))
        while connection.recv(1000):
            pass


@pytest.mark.parametrize("junk", [b"", b"\n", b"GET / HTTP/1.1\r\n\r\n", b"x" * 100_000, b"\xff\n"])
def test_strangers_change_nothing(junk):
    with service(1) as (registry, listening):
        with socket.create_connection(listening.address, PATIENCE) as stranger:
            stranger.sendall(junk)
        assert ask_once(listening.address, KEY, {"locate": 0}, PATIENCE) == {}
        assert registry.owned == 0


def test_what_was_recorded_lets_nobody_in(monkeypatch):
    """All that a client sent, with its proof, once more."""
    sent, send = [], PlainStream.send

    def tapped(self, parts, silent):
        sent.extend(bytes(part) for part in parts)
        send(self, parts, silent)

    with service(1) as (registry, listening):
        claim = {"claim": {"server": 0, "attempt": 1}}
        with monkeypatch.context() as patch:
            patch.setattr(PlainStream, "send", tapped)
            client = MessageClient(listening.address, KEY, PATIENCE)
            recorded = list(sent)
            message = json.dumps(claim | {"claim": {"server": 0, "attempt": 2}}).encode()
            assert client.ask(claim, PATIENCE) == {"state": SERVE, "life": 1}
            client.close()
        wait_for(lambda: not registry._owners[0].connected)
        nonce, _, proof = (one for one in recorded if len(one) == NONCE_BYTES)
        with socket.create_connection(listening.address, PATIENCE) as raw:
            raw.sendall(nonce + proof + struct.pack("<IQ", len(message), 0) + message)
            came = b""
            with suppress(ConnectionResetError):
                while piece := raw.recv(1000):
                    came += piece
            assert len(came) <= NONCE_BYTES
        assert registry._owners[0].claim.attempt == 1


def test_silent_strangers_are_few_and_hold_up_nobody():
    with service(1) as (_, listening), ExitStack() as stack:
        for _ in range(3 * MOST_STRANGERS):
            stack.enter_context(socket.create_connection(listening.address, PATIENCE))
        assert ask_once(listening.address, KEY, {"locate": 0}, PATIENCE) == {}
        assert len(listening._strangers) <= MOST_STRANGERS
        wait_for(lambda: len(listening) <= MOST_STRANGERS + 1)  # the threads of others have ended
        assert ask_once(listening.address, KEY, {"locate": 0}, PATIENCE) == {}


def test_a_stranger_who_sends_byte_by_byte_has_no_more_time_than_another(monkeypatch):
    monkeypatch.setattr("ps_backend.server.endpoints.framed_server.SILENT_SECONDS", 0.2)
    with (
        service(1) as (_, listening),
        socket.create_connection(listening.address, 0.02) as slow,
        suppress(ConnectionError),
    ):
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            with suppress(TimeoutError):
                slow.sendall(b"x")
                if not slow.recv(100):
                    return
        raise AssertionError("it was let be")
