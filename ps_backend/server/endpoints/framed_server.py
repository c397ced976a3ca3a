"""The server's side of framed connections: a Unix socket, and a TCP port beside that of gRPC.

A connection has a thread, and nothing waits for another one: who finds no room stays with gRPC.
Nothing but a proof is read of who has not shown that it has the token and the admission.
"""

from __future__ import annotations

import hmac
import logging
import math
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from google.protobuf.message import DecodeError

from ps_backend.server.commands.command import Payload, Response
from ps_backend.server.endpoints.relay import NO_ROOM
from ps_backend.server.endpoints.tokens import Tokens
from ps_backend.transport.framed import (
    NUMBER,
    PROOF_BYTES,
    FramedConnection,
    PlainStream,
    Silent,
    Stream,
    TlsStream,
    has_unix_sockets,
    is_same_user,
    keep_alive,
    proofs_of,
    shut_down,
    unix_address,
)
from ps_backend.transport.grpc_transport import MOST_REQUEST_BYTES
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import PayloadBroken

_LOG = logging.getLogger(__name__)

MOST_CONNECTIONS = 512
"""Of clients and other servers that have been let in."""

MOST_STRANGERS = 64
"""Who have not shown yet who they are; of more the oldest is sent away."""

SILENT_SECONDS = 5.0
"""So long who has connected may take to show who it is, or to go on with a message."""

SEND_SECONDS = 30.0
"""So long a client may leave a reply where it is, as it waits for that of another server."""

_LOOK_SECONDS = 1.0
"""What moves is noted so often, for clients that ask, who wait for longer."""

_IDLE_SECONDS = 600.0
"""A connection without requests for so long is ended: its client may have gone without a word."""

_FIRST_BYTES = 1 << 16
"""Of a payload: so much comes before memory is taken for all of it."""

Respond = Callable[[pb.Request, Payload], Response]

Context = Callable[[], ssl.SSLContext]
"""The certificate of now."""


class FramedServer:
    """Takes connections, and answers one request after the other on each. Thread-safe."""

    def __init__(
        self,
        respond: Respond,
        tokens: Tokens,
        context: Context | None,
        *,
        most: int | None = None,
    ) -> None:
        """``context`` None: nothing is encrypted. ``most`` are let in, or MOST_CONNECTIONS."""
        self._respond, self._context, self._most = respond, context, most
        self._admission = secrets.token_bytes(32)
        self._tokens = tokens
        self._listeners: list[socket.socket] = []
        self._connections: dict[socket.socket, str | None] = {}
        """With the token that was shown, once it was."""
        self._strangers: dict[socket.socket, float] = {}
        """Since when they are there, oldest first."""
        self._numbered: dict[int, FramedConnection] = {}
        self._ending, self._changed = threading.Event(), threading.Condition()
        self.port, self.socket_name = 0, ""

    def bind(self, host: str, port: int) -> None:
        """Take a port; ``OSError`` if it cannot be had.

        With 0 any free one, and none where there is none, or no TLS of sockets: then there is gRPC.
        """
        try:
            if self._context is not None:
                self._context()
            listener = listen(host, port, MOST_STRANGERS)
        except OSError as error:
            if port:
                raise OSError(
                    f"cannot listen for bulk data on port {port} of {host}: {error}; choose "
                    "another with --bulk-port, or --bulk-port 0 to let the system choose"
                ) from None
            _LOG.warning("no port beside that of gRPC, which moves all: %s", error)
            return
        self.port = listener.getsockname()[1]
        self._listeners.append(listener)

    def start(self, *, unix: bool = True) -> None:
        """Begin to take connections, also at a Unix socket; returns at once."""
        if unix and has_unix_sockets():
            self._bind_unix(f"distvec-{secrets.token_hex(16)}")
        for listener in self._listeners:
            self._in_thread(self._accept, listener)

    def invitation(self) -> pb.Invitation:
        """How who has shown the token over gRPC may come here."""
        if self._ending.is_set():
            return pb.Invitation()
        return pb.Invitation(port=self.port, socket=self.socket_name, admission=self._admission)

    def waits(self, number: int) -> float:
        """How long our end of a connection has waited for the other one to go on: seconds, 0 while
        a request is at work, infinite if there is no such connection."""
        found = self._numbered.get(number)
        return math.inf if found is None else found.waits

    def renew(self) -> None:
        """End the connections of those whose token is no longer accepted."""
        with self._changed:
            for connection, token in self._connections.items():
                if token is not None and token not in self._tokens:
                    shut_down(connection)  # its thread reads the end

    def send_away_strangers(self) -> None:
        """Who has not shown in time who it is; to be called about once a second."""
        with self._changed:
            for connection, since in self._strangers.items():
                if time.monotonic() - since > SILENT_SECONDS:
                    shut_down(connection)  # its thread reads the end

    def end(self, deadline: float) -> None:
        """Take no more, let what is at work answer until ``deadline`` (``time.monotonic``)."""
        self._ending.set()
        for listener in self._listeners:
            shut_down(listener)
            listener.close()
        with self._changed:
            for connection in self._connections:
                shut_down(connection, socket.SHUT_RD)  # its thread reads the end
            self._changed.wait_for(lambda: not self._connections, deadline - time.monotonic())

    def __len__(self) -> int:
        return len(self._connections)

    def _bind_unix(self, name: str) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(unix_address(name))
            listener.listen(MOST_STRANGERS)
        except OSError as error:
            listener.close()
            _LOG.warning("no socket for processes on this host: %s", error)
            return
        self.socket_name = name
        self._listeners.append(listener)

    def _in_thread(self, work: Callable[[socket.socket], None], connection: socket.socket) -> None:
        threading.Thread(target=work, args=[connection], name="distvec-framed", daemon=True).start()

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
            if self._admits(connection):
                self._in_thread(self._serve, connection)
            else:
                connection.close()

    def _admits(self, connection: socket.socket) -> bool:
        """Whether who has connected is heard at all."""
        # Whoever can see a Unix socket may connect.
        if connection.family == socket.AF_UNIX and not is_same_user(connection):
            return False
        with self._changed:
            if self._ending.is_set():
                return False
            if len(self._strangers) >= MOST_STRANGERS:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                shut_down(oldest)
            self._strangers[connection] = time.monotonic()
            self._connections[connection] = None
            return True

    def _serve(self, connection: socket.socket) -> None:
        try:
            framed, own_proof = self._let_in(connection)
            if framed is not None:
                with self._numbering(framed) as number:
                    framed.send_proof(own_proof + number, _wait)
                    self._converse(framed)
        except (OSError, ValueError, DecodeError) as error:
            _LOG.debug("a connection was ended: %s", error)
        finally:
            with self._changed:
                self._strangers.pop(connection, None)
                self._connections.pop(connection, None)
                self._changed.notify_all()
            connection.close()

    def _admission_to(self, framed: FramedConnection) -> bytes:
        """What proofs are made of, besides a token."""
        return self._admission

    def _let_in(self, connection: socket.socket) -> tuple[FramedConnection | None, bytes]:
        """None for a stranger, and if there is no room; and what is shown to who is let in."""
        plain, is_near = PlainStream(connection, _LOOK_SECONDS), connection.family == socket.AF_UNIX
        stream: Stream = plain
        if not is_near:
            keep_alive(connection)
            if self._context is not None:
                stream = TlsStream(plain, self._context(), _wait)
        framed = FramedConnection(connection, stream, MOST_REQUEST_BYTES, looks_out=is_near)
        admission, shown = self._admission_to(framed), bytearray(PROOF_BYTES)
        framed.take(memoryview(shown), _wait)
        with self._changed:
            own_proof = b""
            for token in tuple(self._tokens) or (None,):
                proof, own = proofs_of(token, admission)
                if hmac.compare_digest(shown, proof):
                    own_proof, self._connections[connection] = own, token
            self._strangers.pop(connection, None)
            room = len(self._connections) - len(self._strangers) <= (self._most or MOST_CONNECTIONS)
        return (framed if own_proof and room else None), own_proof

    @contextmanager
    def _numbering(self, framed: FramedConnection) -> Iterator[bytes]:
        """Gives a number, by which who speaks over it asks ``waits``, as it is sent."""
        number = secrets.randbits(8 * NUMBER.size)
        self._numbered[number] = framed
        try:
            yield NUMBER.pack(number)
        finally:
            del self._numbered[number]

    def _converse(self, framed: FramedConnection) -> None:
        def is_there() -> bool:  # what is at work is answered, as far as it gets
            return self._ending.is_set() or framed.is_there()

        silent, left_lying = _patience(framed, SILENT_SECONDS), _patience(framed, SEND_SECONDS)
        while (came := framed.receive(silent)) is not None:
            message, size = came
            request = pb.Request.FromString(message)
            announced = 0 if request.HasField("segment") else request.payload
            if announced != size:
                raise ConnectionAbortedError(f"got {size} of {announced} announced bytes")
            here = framed.take_arrived(size)
            if here is not None:  # as a rule, of small requests
                response = self._respond(request, Payload(size, (here,), is_there))
            else:
                payload = _Arriving(framed, size, silent, is_there)
                response = self._respond(request, payload)
                if not payload.leave_out_the_rest():
                    return
            framed.send(response.reply.SerializeToString(), response.parts, left_lying)
            del response  # and what it keeps, while there is no other request


class _Arriving(Payload):
    """A payload that comes straight into the memory that it is meant for."""

    def __init__(
        self, framed: FramedConnection, size: int, silent: Silent, wanted: Callable[[], bool]
    ) -> None:
        super().__init__(size, (), wanted)
        self._framed, self._left, self._silent = framed, size, silent
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
            self._framed.take(into, self._silent)
        except OSError:
            raise PayloadBroken("the sender left before all of its payload had come") from None
        self._left -= len(into)


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """A socket that listens at the first address of ``host``, of version 4 of the protocol if there
    is one. Raises ``OSError``."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, target = min(addresses, key=lambda one: one[0] != socket.AF_INET)
    both = family == socket.AF_INET6 and target[0] == "::" and socket.has_dualstack_ipv6()
    return socket.create_server(target[:2], family=family, backlog=backlog, dualstack_ipv6=both)


def _wait(_: bool) -> None:
    """Strangers are sent away in time."""


def _patience(framed: FramedConnection, seconds: float) -> Silent:
    """Ends a connection of which half a message was seen for ``seconds``, or none for long."""

    def silent(begun: bool) -> None:
        if framed.waits > (seconds if begun else _IDLE_SECONDS):
            raise TimeoutError(f"the connection was idle for {framed.waits:.0f} s")

    return silent
