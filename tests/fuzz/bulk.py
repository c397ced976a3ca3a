"""The same messages over framed connections: frames that lie, break off, or come from strangers.

A ``Target`` whose requests go over TCP to the doors of its servers, so that all that must hold of
an answer, and of what became of a request, is held to here, too.
"""

from __future__ import annotations

import random
import socket
import time
from contextlib import suppress

import numpy as np

from ps_backend.server.endpoints.framed_server import FramedServer
from ps_backend.server.endpoints.tokens import Tokens
from ps_backend.transport.framed import _HEAD, NUMBER, FramedConnection, PlainStream, proofs_of
from ps_backend.transport.grpc_transport import MOST_REQUEST_BYTES
from ps_backend.wire import ps_pb2 as pb
from tests.fuzz.recordings import Recorded
from tests.fuzz.target import Target, Watch

TOKEN = "the token of these tests"
_SILENCE = 0.5
"""After so many seconds without an answer the sender leaves."""
_GONE_SECONDS = 10.0
"""So long a door may take to notice that it has."""
_STRANGE_EACH = 15
"""Messages before each stranger."""


class BulkTarget(Target):
    """Send to it, and hear what is wrong."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch)
        self.doors = [
            FramedServer(service.handle, Tokens(TOKEN), None) for service in self.services
        ]
        self._frames: list[FramedConnection | None] = [None] * len(self.doors)
        self._rng = random.Random(1)
        self._sent = 0
        for door in self.doors:
            door.bind("127.0.0.1", 0)
            door.start()

    def answer(self, one: Recorded) -> tuple[pb.Reply | None, int]:
        """As of ``Target``, by a connection that is kept as long as it is good."""
        self._sent += 1
        if self._sent % _STRANGE_EACH == 0:
            strange(self.doors[one.server], self._rng)
        frames = self._frames[one.server] or known(self.doors[one.server])
        self._frames[one.server] = None
        size = self._size(one)
        data = one.request.SerializeToString()
        with suppress(OSError):
            frames._stream.send(
                [memoryview(_HEAD.pack(len(data), size) + data), memoryview(one.payload)], leave
            )
            if size != len(one.payload):
                frames._connection.shutdown(socket.SHUT_WR)
            came = frames.receive(leave)
            if came is not None:
                reply, rest = pb.Reply.FromString(came[0]), memoryview(bytearray(came[1]))
                frames.take(rest, leave)
                if size == len(one.payload):
                    self._frames[one.server] = frames
                else:
                    self._leave(one.server, frames)
                return reply, len(rest)
        self._leave(one.server, frames)
        return None, 0

    def send_bytes(self, data: bytes) -> list[str]:
        """As a message: the server ends the connection, without an answer."""
        server = len(data) % len(self.doors)
        frames, came = self._frames[server] or known(self.doors[server]), None
        self._frames[server] = None
        with suppress(ConnectionError):
            frames.send(data, [], leave)
            came = frames.receive(leave)
        self._leave(server, frames)
        return [] if came is None else ["what is no message was answered"]

    def _size(self, one: Recorded) -> int:
        """What is announced in front of the message: what it says itself, or what comes."""
        honest = one.request.payload == len(one.payload)
        return len(one.payload) if honest or self._rng.random() < 0.5 else one.request.payload

    def _leave(self, server: int, frames: FramedConnection) -> None:
        frames.shut_down()
        frames.close()
        gone(self.doors[server])

    def close(self) -> list[str]:
        """As of ``Target``; nobody may be left at the doors."""
        wrong = []
        for door, frames in zip(self.doors, self._frames, strict=True):
            if frames is not None:
                frames.close()
            if not gone(door):
                wrong.append(f"{len(door)} connections are left at the port for bulk data")
            door.end(time.monotonic())
        return [*wrong, *super().close()]


def gone(door: FramedServer) -> bool:
    """Whether nobody is connected any more, soon."""
    with door._changed:
        return door._changed.wait_for(lambda: not door._connections, _GONE_SECONDS)


def connected(door: FramedServer) -> tuple[socket.socket, FramedConnection]:
    """A connection on which nothing was said yet."""
    connection = socket.create_connection(("127.0.0.1", door.port), _GONE_SECONDS)
    return connection, FramedConnection(
        connection, PlainStream(connection, _SILENCE), MOST_REQUEST_BYTES
    )


def known(door: FramedServer) -> FramedConnection:
    """A connection of who has the token and the admission."""
    _, frames = connected(door)
    ours, theirs = proofs_of(TOKEN, door.invitation().admission)
    frames.send_proof(ours, leave)
    told = bytearray(len(theirs) + NUMBER.size)
    frames.take(memoryview(told), leave)
    if told[: len(theirs)] != theirs:
        raise ConnectionRefusedError("another proof")
    return frames


def strange(door: FramedServer, rng: random.Random) -> None:
    """Somebody without the token, or with it and frames that are none."""
    connection, frames = connected(door)
    ours, _ = proofs_of(TOKEN, door.invitation().admission)
    wrong, _ = proofs_of("another token", door.invitation().admission)
    status = pb.Request(status=pb.StatusQuery()).SerializeToString()
    say = rng.choice(
        (
            b"",
            ours[: rng.randrange(len(ours))],
            wrong + _HEAD.pack(len(status), 0) + status,
            rng.randbytes(rng.choice((1, 31, 32, 33, 70_000))),
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 3,
            ours + _HEAD.pack(0, 0)[: rng.randrange(_HEAD.size)],
            ours + _HEAD.pack(rng.choice((1 << 31, (1 << 32) - 1)), 0) + status,
            ours + _HEAD.pack(len(status), (1 << 64) - 1) + status,
            ours + _HEAD.pack(len(status), 9) + status,
            ours + _HEAD.pack(9, 0) + rng.randbytes(9),
            ours + _HEAD.pack(0, 0),
            ours + 3 * (_HEAD.pack(len(status), 0) + status),
        )
    )
    with suppress(OSError):
        connection.sendall(say)
        if rng.random() < 0.5:
            connection.shutdown(socket.SHUT_WR)
            np.frombuffer(connection.recv(4096), np.uint8)
    frames.close()


def leave(_: bool) -> None:
    """Nothing came for a while."""
    raise TimeoutError("no answer")
