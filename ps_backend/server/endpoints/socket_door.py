"""Takes the connections of a listening socket, each with a thread of its own."""

from __future__ import annotations

import hmac
import logging
import math
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from google.protobuf.message import DecodeError

from ps_backend.server.endpoints.relay import NO_ROOM
from ps_backend.transport.bulk_frames import shut_down
from ps_backend.transport.timeouts import NUMBER

_LOG = logging.getLogger(__name__)

SILENT_SECONDS = 5.0
"""So long who has connected may take to show who it is, or to go on with a message; so often an
idle connection is looked at."""

SEND_SECONDS = 30.0
"""So long a client may leave a reply where it is."""


class Waiter(Protocol):
    """One side of a conversation."""

    @property
    def waits(self) -> float:
        """Seconds for which nothing has moved, though this side is not at work."""


class SocketDoor:
    """What the doors have in common. Thread-safe."""

    _thread_name = "distvec-door"

    def __init__(self) -> None:
        self._listener: socket.socket | None = None
        self._connections: dict[socket.socket, None] = {}
        """Oldest first."""
        self._numbered_frames: dict[int, Waiter] = {}
        self._ending = threading.Event()
        self._changed = threading.Condition()

    @contextmanager
    def _numbered(self, frames: Waiter) -> Iterator[bytes]:
        """Gives a number, by which who speaks over ``frames`` asks ``waits``, as it is sent."""
        number = secrets.randbits(8 * NUMBER.size)
        self._numbered_frames[number] = frames
        try:
            yield NUMBER.pack(number)
        finally:
            del self._numbered_frames[number]

    def waits(self, number: int) -> float:
        """How long our end of a connection has waited for the other one to go on: seconds, 0 while
        a request is at work, infinite if there is no such connection."""
        found = self._numbered_frames.get(number)
        return math.inf if found is None else found.waits

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def is_open(self) -> bool:
        """Does it take connections?"""
        return self._listener is not None and not self._ending.is_set()

    def end(self, deadline: float) -> None:
        """Take no more, let what is at work answer until ``deadline`` (``time.monotonic``)."""
        self._ending.set()
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        with self._changed:
            for connection in self._connections:
                shut_down(connection, socket.SHUT_RD)  # its thread reads the end
            self._changed.wait_for(lambda: not self._connections, deadline - time.monotonic())

    def _listen_on(self, listener: socket.socket) -> None:
        self._listener = listener
        threading.Thread(
            target=self._accept, args=[listener], name=self._thread_name, daemon=True
        ).start()

    def _has_room_for(self, connection: socket.socket) -> bool:
        """Whether who has connected is heard at all."""
        raise NotImplementedError

    def _speak(self, connection: socket.socket) -> None:
        """See who it is, and answer it until it leaves.

        ``OSError``, ``ValueError`` and ``DecodeError`` end the connection.
        """
        raise NotImplementedError

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError as error:
                if self._ending.is_set():
                    return
                if error.errno in NO_ROOM:
                    self._ending.wait(0.1)
                continue
            if self._takes(connection):
                threading.Thread(
                    target=self._serve, args=[connection], name=self._thread_name, daemon=True
                ).start()
            else:
                connection.close()

    def _takes(self, connection: socket.socket) -> bool:
        with self._changed:
            taken = not self._ending.is_set() and self._has_room_for(connection)
            if taken:
                self._connections[connection] = None
            return taken

    def _serve(self, connection: socket.socket) -> None:
        try:
            try:
                self._speak(connection)
            except (OSError, ValueError, DecodeError) as error:
                _LOG.debug("a connection was ended: %s", error)
        finally:
            with self._changed:
                self._connections.pop(connection, None)
                self._changed.notify_all()
            connection.close()


def shows(connection: socket.socket, proof: bytes) -> bool:
    """Whether the first of what comes is ``proof``."""
    came, until = b"", time.monotonic() + SILENT_SECONDS
    while len(came) < len(proof) and time.monotonic() < until:
        piece = connection.recv(len(proof) - len(came))
        if not piece:
            return False
        came += piece
    return hmac.compare_digest(came, proof)


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """A socket that listens at the first address of ``host``, of version 4 of the protocol if there
    is one. Raises ``OSError``."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, target = min(addresses, key=lambda one: one[0] != socket.AF_INET)
    both = family == socket.AF_INET6 and target[0] == "::" and socket.has_dualstack_ipv6()
    return socket.create_server(target[:2], family=family, backlog=backlog, dualstack_ipv6=both)
