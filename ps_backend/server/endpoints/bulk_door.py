"""The server's side of the sockets for bulk data between hosts.

A connection has a thread, and nothing waits for another one: who finds no room stays with gRPC.
Nothing but a proof is read of who has not shown that it has the token and the admission.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import socket
import ssl
import time
from collections.abc import Callable

from ps_backend.server.commands.command import Payload
from ps_backend.server.endpoints.socket_door import SILENT_SECONDS, SocketDoor, listen
from ps_backend.server.service import Service
from ps_backend.transport.bulk_frames import BulkFrames, keep_alive, shut_down
from ps_backend.transport.bulk_sockets import proofs_of
from ps_backend.transport.grpc_transport import MOST_REQUEST_BYTES
from ps_backend.transport.streams import PlainStream, Silent, Stream, TlsStream
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.errors import PayloadBroken

_LOG = logging.getLogger(__name__)

MOST_CONNECTIONS = 512
"""Of clients and other servers that have been let in."""

MOST_STRANGERS = 64
"""Who have not shown yet who they are; of more the oldest is sent away."""

_LOOK_SECONDS = 1.0
"""What moves is noted so often, for clients that ask, who wait for longer."""

_IDLE_SECONDS = 600.0
"""A connection without requests for so long is ended: its client may have gone without a word."""

_FIRST_BYTES = 1 << 16
"""Of a payload: so much comes before memory is taken for all of it."""

Context = Callable[[], ssl.SSLContext]
"""The certificate of now."""


class BulkDoor(SocketDoor):
    """Takes connections, and answers one request after the other on each. Thread-safe."""

    _thread_name = "distvec-bulk"

    def __init__(self, service: Service, token: str | None, context: Context | None) -> None:
        """``context`` None: nothing is encrypted."""
        super().__init__()
        self._service, self._context = service, context
        self._admission = secrets.token_bytes(32)
        self._proof, self._own_proof = proofs_of(token, self._admission)
        self._strangers: dict[socket.socket, float] = {}
        """Since when they are there, oldest first."""
        self.port = 0

    def bind(self, host: str, port: int) -> None:
        """Take a port; ``OSError`` if it cannot be had.

        With 0 any free one, and none where there is none, or no TLS of sockets: then there is gRPC.
        """
        try:
            if self._context is not None:
                self._context()
            self._listener = listen(host, port, MOST_STRANGERS)
        except OSError as error:
            if port:
                raise OSError(
                    f"cannot listen for bulk data on port {port} of {host}: {error}; choose "
                    "another with --bulk-port, or --bulk-port 0 to let the system choose"
                ) from None
            _LOG.warning("no port for bulk data, gRPC moves it: %s", error)
            return
        self.port = self._listener.getsockname()[1]

    def start(self) -> None:
        """Begin to take connections; returns at once."""
        if self._listener is not None:
            self._listen_on(self._listener)

    def invite(self) -> pb.Invitation:
        """How who has shown the token over gRPC may come here."""
        if not self.is_open:
            return pb.Invitation()
        return pb.Invitation(port=self.port, admission=self._admission)

    def send_away_strangers(self) -> None:
        """Who has not shown in time who it is; to be called about once a second."""
        with self._changed:
            for connection, since in self._strangers.items():
                if time.monotonic() - since > SILENT_SECONDS:
                    shut_down(connection)  # its thread reads the end

    def _has_room_for(self, connection: socket.socket) -> bool:
        if len(self._strangers) >= MOST_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            shut_down(oldest)
        self._strangers[connection] = time.monotonic()
        return True

    def _speak(self, connection: socket.socket) -> None:
        try:
            frames = self._known(connection)
        finally:
            with self._changed:
                self._strangers.pop(connection, None)
                room = len(self._connections) - len(self._strangers) <= MOST_CONNECTIONS
        if frames is not None and room:
            with self._numbered(frames) as number:
                frames.give(self._own_proof + number, _patience(frames))
                self._converse(frames)

    def _known(self, connection: socket.socket) -> BulkFrames | None:
        keep_alive(connection)
        plain = PlainStream(connection, _LOOK_SECONDS)
        stream: Stream = plain
        if self._context is not None:
            stream = TlsStream(plain, self._context(), _wait)
        frames = BulkFrames(connection, stream, MOST_REQUEST_BYTES)
        proof = bytearray(len(self._proof))
        frames.take(memoryview(proof), _wait)
        return frames if hmac.compare_digest(proof, self._proof) else None

    def _converse(self, frames: BulkFrames) -> None:
        def is_there() -> bool:  # what is at work is answered, as far as it gets
            return self._ending.is_set() or frames.is_there()

        silent = _patience(frames)
        while (came := frames.receive(silent)) is not None:
            message, size = came
            request = pb.Request.FromString(message)
            if request.payload != size:
                raise ConnectionAbortedError(f"{size} bytes came, {request.payload} announced")
            payload = _Arriving(frames, size, is_there)
            response = self._service.handle(request, payload)
            if not payload.leave_out_the_rest():
                return
            frames.send(response.reply.SerializeToString(), response.parts, silent)
            del response  # and what it keeps, while there is no other request


class _Arriving(Payload):
    """A payload that comes straight into the memory that it is meant for."""

    def __init__(self, frames: BulkFrames, size: int, wanted: Callable[[], bool]) -> None:
        super().__init__(size, (), wanted)
        self._frames, self._left, self._silent = frames, size, _patience(frames)
        self._first = memoryview(b"")

    def expect(self, size: int) -> None:
        """As ``Payload``."""
        if self.size != size:
            raise PayloadBroken(f"{self.size} bytes of payload announced, {size} expected")
        self._first = memoryview(bytearray(min(self._left, _FIRST_BYTES)))
        self._take(self._first)

    def into(self, target: memoryview) -> None:
        """As ``Payload``."""
        if len(target) != self.size or len(self._first) + self._left != self.size:
            raise PayloadBroken(f"{self.size} bytes of payload are not for {len(target)}")
        begun = len(self._first)
        target[:begun] = self._first
        self._take(target[begun:])

    def leave_out_the_rest(self) -> bool:
        """Of a request that did not need it; False if it does not come."""
        try:
            while self._left:
                self._take(memoryview(bytearray(min(self._left, _FIRST_BYTES))))
        except PayloadBroken:
            return False
        return True

    def _take(self, into: memoryview) -> None:
        try:
            self._frames.take(into, self._silent)
        except OSError:
            raise PayloadBroken("the sender left before all of its payload had come") from None
        self._left -= len(into)


def _wait(_: bool) -> None:
    """Strangers are sent away in time."""


def _patience(frames: BulkFrames) -> Silent:
    """Ends a connection of which half a message has come, or on which there was none for long."""

    def silent(begun: bool) -> None:
        if frames.waits > (SILENT_SECONDS if begun else _IDLE_SECONDS):
            raise TimeoutError(f"nothing went on for {frames.waits:.0f} s")

    return silent
