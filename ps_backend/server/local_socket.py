"""The server's side of the socket for small requests of processes on its host.

A connection has a thread, as a pipe has, so there is room for some, and whoever comes later stays
with gRPC. Nothing is read of who is not of this user, or does not show the token and the admission.
"""

from __future__ import annotations

import errno
import hmac
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from google.protobuf.message import DecodeError

from ps_backend.transport.local_socket import (
    ADMITTED,
    PROOF_BYTES,
    Frames,
    can_be_had,
    is_same_user,
    limit_silence,
    name_of,
    proof_of,
)
from ps_backend.transport.over_grpc import MOST_REQUEST_BYTES
from ps_backend.wire import ps_pb2 as pb

_LOG = logging.getLogger(__name__)

MOST_CONNECTIONS = 128

SILENT_SECONDS = 5.0
"""So long who has connected may take to show who it is, or to go on with a message; so often an
idle connection is looked at."""

_SEND_SECONDS = 30.0
"""So long a client may leave a reply where it is."""

_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Answer = Callable[[bytes, Callable[[], bool]], bytes]
"""The reply to a request; the second says whether its sender still waits. Raises ``DecodeError``"""


class LocalDoor:
    """Takes connections, and answers one request after the other on each. Thread-safe."""

    def __init__(self, token: str | None, answer: Answer) -> None:
        self._answer = answer
        self._name, self._admission = f"distvec-{secrets.token_hex(16)}", secrets.token_bytes(32)
        self._proof = proof_of(token, self._admission)
        self._listener: socket.socket | None = None
        self._connections: set[socket.socket] = set()
        self._ending = threading.Event()
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._connections)

    def start(self) -> None:
        """Begin to listen, where there are such sockets; returns at once."""
        if not can_be_had():
            return
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(name_of(self._name))
            listener.listen(MOST_CONNECTIONS)
        except OSError as error:
            listener.close()
            _LOG.warning("no socket for processes on this host, gRPC serves them: %s", error)
            return
        self._listener = listener
        threading.Thread(target=self._listen, name="distvec-local", daemon=True).start()

    def invite(self, opened: pb.Opened) -> None:
        """Tell who has opened a session how to come here."""
        if self._listener is not None and not self._ending.is_set():
            opened.socket, opened.admission = self._name, self._admission

    def end(self, deadline: float) -> None:
        """Take no more, let what is at work answer until ``deadline`` (``time.monotonic``)."""
        self._ending.set()
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        with self._changed:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)  # its thread reads the end
            self._changed.wait_for(lambda: not self._connections, deadline - time.monotonic())

    def _listen(self) -> None:
        while self._listener is not None:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if self._ending.is_set():
                    return
                if error.errno in _NO_ROOM:
                    self._ending.wait(0.1)
                continue
            if self._has_room_for(connection):
                threading.Thread(
                    target=self._serve, args=[connection], name="distvec-local", daemon=True
                ).start()
            else:
                connection.close()

    def _has_room_for(self, connection: socket.socket) -> bool:
        if not is_same_user(connection):  # whoever can see the socket may connect
            return False
        with self._changed:
            room = len(self._connections) < MOST_CONNECTIONS and not self._ending.is_set()
            if room:
                self._connections.add(connection)
            return room

    def _serve(self, connection: socket.socket) -> None:
        try:
            with suppress(OSError, DecodeError):
                limit_silence(connection, SILENT_SECONDS, _SEND_SECONDS)
                if self._is_let_in(connection):
                    connection.sendall(ADMITTED)
                    self._converse(connection)
        finally:
            connection.close()
            with self._changed:
                self._connections.discard(connection)
                self._changed.notify_all()

    def _is_let_in(self, connection: socket.socket) -> bool:
        proof, until = b"", time.monotonic() + SILENT_SECONDS
        while len(proof) < PROOF_BYTES and time.monotonic() < until:
            piece = connection.recv(PROOF_BYTES - len(proof))
            if not piece:
                return False
            proof += piece
        return hmac.compare_digest(proof, self._proof)

    def _converse(self, connection: socket.socket) -> None:
        frames = Frames(connection, MOST_REQUEST_BYTES)

        def is_there() -> bool:
            if self._ending.is_set():  # what is at work is answered, as far as it gets
                return True
            try:
                return bool(connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
            except BlockingIOError:
                return True
            except OSError:
                return False

        while (data := frames.receive(_end_half_messages)) is not None:
            frames.send(self._answer(data, is_there))


def _end_half_messages(begun: bool) -> None:
    if begun:
        raise TimeoutError(f"the rest of a message did not come in {SILENT_SECONDS:g} s")
