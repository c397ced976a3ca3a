"""A client of HTTP/2 that keeps to its rules, and begins more than it ends."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress

from ps_backend.transport.tls import proof_of_token
from tests.waiting import PATIENCE

_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_FRAME = 16_384


def let_in(address: str, token: str | None, timeout: float = PATIENCE) -> socket.socket:
    """A connection to gRPC, by who shows the proof, or tries."""
    host, port = address.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout)
    proof = "" if token is None else f"Proxy-Authorization: {proof_of_token(token)}\r\n"
    try:
        connection.sendall(f"CONNECT distvec HTTP/1.1\r\n{proof}\r\n".encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            if not (piece := connection.recv(1)):
                raise ConnectionResetError("sent away without an answer")
            answer += piece
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise ConnectionRefusedError(answer.decode())
    except BaseException:
        connection.close()
        raise
    return connection


def certificate_shown(address: str, token: str) -> str:
    """That of the server, to who connects now; PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(let_in(address, token)) as connection:
        return ssl.DER_cert_to_PEM_cert(connection.getpeercert(binary_form=True))


class Stranger:
    """One connection to a gRPC server, by hand: gRPC's own clients end what they begin."""

    def __init__(self, address: str, metadata=(), *, token: str) -> None:
        """``token``: whose proof leads it to gRPC; its calls say what is in ``metadata``."""
        self._socket = let_in(address, token)
        self._socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, b""))
        self._metadata = tuple(metadata)
        self._next = 1
        self._window, self._initial = 65_535, 65_535
        self._streams: dict[int, int] = {}
        self._ended: dict[int, bool] = defaultdict(bool)
        self._changed = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def begin(self, path: str) -> int:
        """The headers of a call and no more; returns the number of its stream."""
        pairs = (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "stranger"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *self._metadata,
        )
        stream, self._next = self._next, self._next + 2
        with self._changed:
            self._streams[stream] = self._initial
            block = b"".join(b"\0" + _text(name) + _text(value) for name, value in pairs)
            self._socket.sendall(_frame(_HEADERS, 4, stream, block))
        return stream

    def announce(self, stream: int, size: int, patience: float) -> int:
        """A message of so many bytes, but for the last; as far as the server takes it.

        Ends when it has taken nothing for ``patience`` seconds. Returns the bytes that were sent.
        """
        data = struct.pack(">BI", 0, size)
        sent, left = 0, size + len(data) - 1
        while left:
            with self._changed:
                if not self._changed.wait_for(
                    lambda: self._ended[stream] or min(self._window, self._streams[stream]) > 0,
                    patience,
                ):
                    return sent
                if self._ended[stream]:
                    return sent
                room = min(left, self._window, self._streams[stream], _FRAME)
                piece = (data if not sent else b"").ljust(room, b"\0")[:room]
                self._window -= room
                self._streams[stream] -= room
            self._socket.sendall(_frame(_DATA, 0, stream, piece))
            sent, left = sent + room, left - room
        return sent

    def ping(self, count: int) -> None:
        """Ask for so many signs at once."""
        self._socket.sendall(_frame(_PING, 0, 0, bytes(8)) * count)

    def wait_until(self, happened: Callable[[], bool], seconds: float) -> bool:
        """Whether it happens in that time."""
        with self._changed:
            return self._changed.wait_for(happened, seconds)

    @property
    def left(self) -> bool:
        """Whether the connection has ended."""
        return self._ended[0]

    @property
    def refused(self) -> int:
        """How many calls have ended, with whatever answer."""
        return sum(self._ended.values())

    def close(self) -> None:
        """Leave."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _listen(self) -> None:
        try:
            with self._socket.makefile("rb") as file:
                while len(head := file.read(9)) == 9:
                    size, kind, flags, stream = struct.unpack(">IBBI", b"\0" + head)
                    self._hear(kind, flags, stream, file.read(size))
        except (OSError, ValueError):
            pass
        with self._changed:
            self._ended = defaultdict(lambda: True)
            self._changed.notify_all()

    def _hear(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        with self._changed:
            if kind == _SETTINGS and not flags:
                for name, value in struct.iter_unpack(">HI", body):
                    if name == 4:
                        for number in self._streams:
                            self._streams[number] += value - self._initial
                        self._initial = value
                self._socket.sendall(_frame(_SETTINGS, 1, 0, b""))
            elif kind == _PING and not flags:
                self._socket.sendall(_frame(_PING, 1, 0, body))
            elif kind == _WINDOW:
                (more,) = struct.unpack(">I", body)
                if stream:
                    self._streams[stream] += more
                else:
                    self._window += more
            elif kind == _RESET or (kind == _HEADERS and flags & 1):
                self._ended[stream] = True
            elif kind == _GOAWAY:
                self._ended = defaultdict(lambda: True)
            self._changed.notify_all()


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def _text(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data  # below 127 bytes, and not compressed
