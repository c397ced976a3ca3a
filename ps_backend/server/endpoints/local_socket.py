"""The server's side of the socket for small requests of processes on its host.

A connection has a thread, as a pipe has, so there is room for some, and whoever comes later stays
with gRPC. Nothing is read of who is not of this user, or does not show the token and the admission.
"""

from __future__ import annotations

import logging
import secrets
import socket
from collections.abc import Callable

from ps_backend.server.endpoints.socket_door import SEND_SECONDS, SILENT_SECONDS, SocketDoor, shows
from ps_backend.transport.grpc_transport import MOST_REQUEST_BYTES
from ps_backend.transport.local_socket import (
    ADMITTED,
    Frames,
    can_be_had,
    is_same_user,
    limit_silence,
    name_of,
    proof_of,
)
from ps_backend.wire import ps_pb2 as pb

_LOG = logging.getLogger(__name__)

MOST_CONNECTIONS = 128

Answer = Callable[[bytes, Callable[[], bool]], bytes]
"""The reply to a request; the second says whether its sender still waits. Raises ``DecodeError``"""


class LocalDoor(SocketDoor):
    """Takes connections, and answers one request after the other on each. Thread-safe."""

    _thread_name = "distvec-local"

    def __init__(self, token: str | None, answer: Answer) -> None:
        super().__init__()
        self._answer = answer
        self._name, self._admission = f"distvec-{secrets.token_hex(16)}", secrets.token_bytes(32)
        self._proof = proof_of(token, self._admission)

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
        self._listen_on(listener)

    def invite(self, opened: pb.Opened) -> None:
        """Tell who has opened a session how to come here."""
        if self.is_open:
            opened.socket, opened.admission = self._name, self._admission

    def _has_room_for(self, connection: socket.socket) -> bool:
        # Whoever can see the socket may connect.
        return len(self._connections) < MOST_CONNECTIONS and is_same_user(connection)

    def _speak(self, connection: socket.socket) -> None:
        limit_silence(connection, SILENT_SECONDS, SEND_SECONDS)
        if shows(connection, self._proof):
            frames = Frames(connection, MOST_REQUEST_BYTES)
            with self._numbered(frames) as number:
                connection.sendall(ADMITTED + number)
                self._converse(frames, connection)

    def _converse(self, frames: Frames, connection: socket.socket) -> None:
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
