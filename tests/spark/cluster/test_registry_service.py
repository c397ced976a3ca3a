"""The registry's socket: signatures, strangers, and silence."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, suppress

import pytest

from distvec.spark.cluster.registry import SERVE, Claim
from distvec.spark.cluster.registry_service import RemoteDirectory
from distvec.spark.cluster.signed_lines import SignedLines, ask_once
from distvec.spark.cluster.signed_service import _MOST_UNKNOWN
from ps_backend.errors import AuthenticationError, ServerLost
from ps_backend.transport import Location
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
        with pytest.raises(ConnectionError, match="left"):
            ask_once(
                listening.address, "another key", {"claim": {"server": 0, "attempt": 1}}, PATIENCE
            )
        assert registry.owned == 0
        assert ask_once(listening.address, KEY, {"locate": 0}, PATIENCE) == {}
    left, right = socket.socketpair()
    ends = []
    thread = threading.Thread(target=lambda: ends.append(SignedLines(left, KEY, asks=False)))
    thread.start()
    asker = SignedLines(right, "another key", asks=True)
    join_all(thread)
    ends[0].send({"over": "a lie"})
    with pytest.raises(AuthenticationError, match="wrong signature"):
        asker.receive()
    ends[0].close()
    asker.close()


@pytest.mark.parametrize("junk", [b"", b"\n", b"GET / HTTP/1.1\r\n\r\n", b"x" * 100_000, b"\xff\n"])
def test_strangers_change_nothing(junk):
    with service(1) as (registry, listening):
        with socket.create_connection(listening.address, PATIENCE) as stranger:
            stranger.sendall(junk)
        assert ask_once(listening.address, KEY, {"locate": 0}, PATIENCE) == {}
        assert registry.owned == 0


def test_a_recorded_line_cannot_be_sent_again():
    with (
        service(1) as (registry, listening),
        socket.create_connection(listening.address, PATIENCE) as raw,
    ):
        lines = SignedLines(raw, KEY, asks=True)
        sent = []
        lines._connection = Tap(sent)
        lines.send({"claim": {"server": 0, "attempt": 1}})
        lines._connection = raw
        raw.sendall(sent[0])
        assert lines.receive() == {"state": SERVE, "life": 1}
        raw.sendall(sent[0])
        with pytest.raises(OSError, match="left"):
            lines.receive()
        assert registry.owned == 1


class Tap:
    """A connection that keeps what is sent."""

    def __init__(self, sent: list[bytes]) -> None:
        self.sendall = sent.append

    def settimeout(self, _: float | None) -> None:
        pass


def handlers() -> set[threading.Thread]:
    """The threads of all services here, one a connection."""
    return {one for one in threading.enumerate() if "process_request_thread" in one.name}


def test_silent_strangers_are_few_and_hold_up_nobody():
    others = handlers()
    with service(1) as (_, listening), ExitStack() as stack:
        for _ in range(3 * _MOST_UNKNOWN):
            stack.enter_context(socket.create_connection(listening.address, PATIENCE))
        assert ask_once(listening.address, KEY, {"locate": 0}, PATIENCE) == {}
        assert len(listening._server.connections) <= _MOST_UNKNOWN + 1
        wait_for(lambda: len(handlers() - others) <= _MOST_UNKNOWN + 1)  # those sent away end
        assert ask_once(listening.address, KEY, {"locate": 0}, PATIENCE) == {}


def test_a_line_that_comes_byte_by_byte_has_no_more_time_than_another():
    left, right = socket.socketpair()
    over = threading.Event()

    def drip():
        with suppress(OSError):
            while not over.wait(0.02):
                right.sendall(b"x")

    dripping = threading.Thread(target=drip)
    dripping.start()
    left.settimeout(0.2)
    with left, right:
        try:
            with pytest.raises(TimeoutError):
                SignedLines(left, KEY, asks=False)
        finally:
            over.set()
            join_all(dripping)
