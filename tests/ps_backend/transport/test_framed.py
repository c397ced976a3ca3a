"""Messages with bulk data, plain and by TLS, over pairs of sockets."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_backend.processes.certificates import Authority, held_identity, new_key
from ps_backend.transport.framed import FramedConnection, PlainStream, TlsStream
from ps_backend.transport.tls import SERVER_NAME, client_context
from tests.waiting import join_all

MOST = 50


@cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a client and of a server that it believes."""
    authority, (key, request) = Authority(), new_key()
    identity = held_identity(key, authority.sign(request), authority.signer.authority)
    return client_context(authority.tls), identity.context()


def patient(_: bool) -> None:
    pass


@contextmanager
def conversation(
    *, tls: bool, seconds: float = 20.0
) -> Iterator[tuple[FramedConnection, FramedConnection, socket.socket]]:
    """Both sides, and the socket of the first."""
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        one, other = PlainStream(ours, seconds), PlainStream(theirs, seconds)
        if tls:
            client, server = contexts()
            with ThreadPoolExecutor() as pool:
                answering = pool.submit(TlsStream, other, server, patient)
                one = TlsStream(one, client, patient, server=SERVER_NAME)
                other = answering.result()
        yield FramedConnection(ours, one, MOST), FramedConnection(theirs, other, MOST), ours


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=MOST), st.lists(st.integers(0, 600_000), max_size=4), st.booleans()
        ),
        max_size=3,
    ),
    st.booleans(),
    st.booleans(),
)
def test_what_is_sent_is_what_comes(messages, tls, slowly):
    """In whatever pieces it is sent and taken, and however often nobody is ready."""
    with conversation(tls=tls, seconds=0.002 if slowly else 20.0) as (sender, receiver, ours):

        def send() -> None:
            for message, sizes, _ in messages:
                parts = [memoryview(bytes([k + 1]) * size) for k, size in enumerate(sizes)]
                sender.send(message, parts, patient)

        thread = threading.Thread(target=send)
        thread.start()
        for message, sizes, whole in messages:
            if slowly:
                threading.Event().wait(0.005)
            came, size = receiver.receive(patient)
            assert (came, size) == (message, sum(sizes))
            into, step = memoryview(bytearray(size)), max(1, size if whole else 100_001)
            for low in range(0, size, step):
                receiver.take(into[low : low + step], patient)
            assert into == b"".join(bytes([k + 1]) * size for k, size in enumerate(sizes))
        join_all(thread)
        ours.shutdown(socket.SHUT_WR)
        assert receiver.receive(patient) is None


@pytest.mark.parametrize("tls", [False, True])
def test_many_parts_go_at_once(tls):
    with conversation(tls=tls) as (sender, receiver, _):
        sender.send(b"m", [memoryview(bytes([k])) for k in range(200)] + [memoryview(b"")], patient)
        assert receiver.receive(patient) == (b"m", 200)
        receiver.take(into := memoryview(bytearray(200)), patient)
        assert into == bytes(range(200))


@pytest.mark.parametrize("count", [1, 11, 12, 40])
def test_an_end_in_the_middle_is_an_error(count):
    with conversation(tls=False) as (_, receiver, ours):
        ours.sendall((struct.pack("<IQ", 30, 100) + bytes(30))[:count])
        ours.close()
        with pytest.raises(ConnectionResetError, match="in the middle"):
            receiver.receive(patient)


def test_what_is_too_long_is_not_waited_for():
    with conversation(tls=False) as (sender, receiver, _):
        sender.send(bytes(MOST + 1), (), patient)
        with pytest.raises(ConnectionAbortedError, match="51 bytes exceeds the limit of 50"):
            receiver.receive(patient)


@pytest.mark.parametrize("tls", [False, True])
def test_silence_is_told_of_and_may_end_it(tls):
    with conversation(tls=tls, seconds=0.01) as (sender, receiver, _):
        told = []

        def three_times(begun: bool) -> None:
            told.append(begun)
            if len(told) == 3:
                raise TimeoutError("that is too long")

        with pytest.raises(TimeoutError, match="too long"):
            receiver.receive(three_times)
        assert told == [False] * 3
        told.clear()
        with pytest.raises(TimeoutError, match="too long"):
            sender.send(b"", [memoryview(bytes(1 << 23))], three_times)
        assert told == [True] * 3


@pytest.mark.parametrize("what", [b"no record of TLS at all", b""])
def test_who_does_not_shake_hands_is_not_spoken_to(what):
    ours, theirs = socket.socketpair()
    with closing(theirs):
        with closing(ours):
            ours.sendall(what)
        with pytest.raises(OSError, match=r"hands|SSL"):
            TlsStream(PlainStream(theirs, 20.0), contexts()[1], patient)


def test_what_was_changed_on_the_way_ends_the_conversation():
    with conversation(tls=True) as (_, receiver, ours):
        ours.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
        with pytest.raises(ssl.SSLError):
            receiver.receive(patient)


def test_silence_counts_from_the_request_on_and_not_from_when_somebody_listens():
    """Who waits for two servers, one after the other, does not wait for twice as long."""
    with conversation(tls=False, seconds=0.01) as (sender, _, _ours):
        sender.send(b"m", (), patient)
        threading.Event().wait(0.05)
        seen = []

        def silent(_: bool) -> None:
            seen.append(sender.waits)
            raise TimeoutError("that is too long")

        with pytest.raises(TimeoutError, match="too long"):
            sender.receive(silent)
        assert seen[0] >= 0.05
