"""Messages of who knows a key, with somebody on the network path between the two sides."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from ps_backend.client import MessageClient
from tests.fuzz.messages import KEY, Echo
from tests.waiting import PATIENCE, join_all, wait_for

HEAD = struct.Struct("<IQ")
PROVED = {"to the server": (32, 32), "to the client": (32, 40)}
"""Bytes of the nonce and of the proof, before the first message."""

Meddle = Callable[[str, list[bytes]], bytes]
"""What goes on instead of the last of the frames that have come in this direction."""


@contextmanager
def meddled(target: tuple[str, int], meddle: Meddle) -> Iterator[tuple[str, int]]:
    """The address of a proxy that passes on the handshake of one connection, and then meddles."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads = []

    def pass_on(direction: str, source: socket.socket, sink: socket.socket) -> None:
        frames: list[bytes] = []
        with suppress(OSError):
            for size in PROVED[direction]:
                sink.sendall(source.recv(size, socket.MSG_WAITALL))
            while head := source.recv(HEAD.size, socket.MSG_WAITALL):
                frames.append(head + source.recv(HEAD.unpack(head)[0], socket.MSG_WAITALL))
                sink.sendall(meddle(direction, frames))
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def accept() -> None:
        client, _ = listener.accept()
        with client, socket.create_connection(target, PATIENCE) as server:
            for one in (
                threading.Thread(target=pass_on, args=("to the server", client, server)),
                threading.Thread(target=pass_on, args=("to the client", server, client)),
            ):
                one.start()
                threads.append(one)
            join_all(*threads)

    with listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        yield listener.getsockname()
        join_all(accepting)


@pytest.fixture
def server():
    with closing(Echo()) as running:
        yield running


def framed(body: bytes) -> bytes:
    return HEAD.pack(len(body), 0) + body


FORGED = b'{"ask": 7}'

TO_SERVER = {
    "changed": lambda frames: frames[-1].replace(b'"ask": 1', b'"ask": 7'),
    "put in before": lambda frames: framed(FORGED) + frames[-1],
    "put in behind": lambda frames: frames[-1] + framed(FORGED),
    "put in with a guess": lambda frames: frames[-1] + framed(bytes(32) + FORGED),
    "repeated": lambda frames: 2 * frames[-1],
    "the first one again": lambda frames: frames[0],
    "left out": lambda frames: b"" if len(frames) == 1 else frames[-1],
}


@pytest.mark.parametrize("how", TO_SERVER)
def test_a_server_hears_only_what_was_asked_and_once(server, how, caplog):
    def meddle(direction: str, frames: list[bytes]) -> bytes:
        return TO_SERVER[how](frames) if direction == "to the server" else frames[-1]

    asked = [{"ask": 1}, {"ask": 2}, {"ask": 3}]
    with (
        meddled(server.address, meddle) as address,
        closing(MessageClient(address, KEY, PATIENCE)) as client,
    ):
        if how == "left out":  # as by a client that does not wait
            client._messages.send(b'{"ask": 0}', client._silent)
        with pytest.raises(ConnectionError):
            [client.ask(one, PATIENCE) for one in asked]
    wait_for(lambda: not len(server))
    assert server.heard == asked[: len(server.heard)]
    assert "on the way" in caplog.text
    with closing(MessageClient(server.address, KEY, PATIENCE)) as good:
        assert good.ask({"ask": 1}, PATIENCE) == {"heard": len(server.heard)}


TO_CLIENT = {
    "changed": lambda frames, _: frames[-1].replace(b'"heard": 1', b'"heard": 7'),
    "put in": lambda frames, _: framed(b'{"heard": 7}') + frames[-1],
    "the first one again": lambda frames, _: frames[0],
    "the question": lambda _, asked: asked[-1],
    "with data behind it": lambda frames, _: (
        HEAD.pack(len(frames[-1]) - HEAD.size, 9) + frames[-1][HEAD.size :]
    ),
}


@pytest.mark.parametrize("how", TO_CLIENT)
def test_a_client_takes_only_answers_to_what_it_asked(server, how):
    asked: list[bytes] = []

    def meddle(direction: str, frames: list[bytes]) -> bytes:
        if direction == "to the client":
            return TO_CLIENT[how](frames, asked)
        asked.append(frames[-1])
        return frames[-1]

    answers = []
    with (
        meddled(server.address, meddle) as address,
        closing(MessageClient(address, KEY, PATIENCE)) as client,
    ):
        with pytest.raises(ConnectionAbortedError, match=r"on the way|behind"):
            answers.extend(client.ask({"ask": k}, PATIENCE) for k in range(3))
        with pytest.raises(OSError, match="descriptor"):  # it was ended
            client.ask({"ask": 3}, PATIENCE)
    assert answers == [{"heard": k + 1} for k in range(len(answers))]
    wait_for(lambda: not len(server))


def test_what_one_connection_carried_is_of_no_use_on_another(server):
    recorded: list[bytes] = []

    def record(direction: str, frames: list[bytes]) -> bytes:
        if direction == "to the server":
            recorded.append(frames[-1])
        return frames[-1]

    def replay(direction: str, frames: list[bytes]) -> bytes:
        return recorded[0] if direction == "to the server" else frames[-1]

    with (
        meddled(server.address, record) as address,
        closing(MessageClient(address, KEY, PATIENCE)) as client,
    ):
        assert client.ask({"ask": 1}, PATIENCE) == {"heard": 1}
    with (
        meddled(server.address, replay) as address,
        closing(MessageClient(address, KEY, PATIENCE)) as client,
        pytest.raises(ConnectionError),
    ):
        client.ask({"ask": 2}, PATIENCE)
    wait_for(lambda: not len(server))
    assert server.heard == [{"ask": 1}]


def test_a_late_answer_is_not_taken_for_that_of_the_next_question(server):
    go_on = threading.Event()

    def late(direction: str, frames: list[bytes]) -> bytes:
        if direction == "to the client":
            go_on.wait(PATIENCE)
        return frames[-1]

    with (
        meddled(server.address, late) as address,
        closing(MessageClient(address, KEY, PATIENCE)) as client,
    ):
        with pytest.raises(TimeoutError):
            client.ask({"ask": 1}, 0.0)
        go_on.set()
        with pytest.raises(OSError, match="descriptor"):
            client.ask({"ask": 2}, PATIENCE)
