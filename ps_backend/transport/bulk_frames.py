"""Messages with bulk data over a connection: each a head, the message, and the data behind it.

The data goes from the memory of arrays into the memory of arrays: nothing here copies it, or cuts
it into pieces.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from ps_backend.transport.streams import Silent, Stream
from ps_backend.wire.chunks import Parts

_HEAD = struct.Struct("<IQ")
"""Bytes of the message, and of the data behind it."""

_ENDED = select.POLLRDHUP | select.POLLHUP | select.POLLERR if hasattr(select, "POLLRDHUP") else 0


def keep_alive(connection: socket.socket) -> None:
    """Send at once what is small, and notice in a minute that the other host is gone."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # as Linux calls them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def shut_down(connection: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    """End a connection for the thread that waits on it."""
    with suppress(OSError):  # it may have ended already
        connection.shutdown(how)


class BulkFrames:
    """One side of a conversation. Whoever raises ``OSError`` here has lost its connection."""

    def __init__(self, connection: socket.socket, stream: Stream, most: int) -> None:
        """``stream`` over the ``connection``; ``most``: bytes of a message that comes, apart from
        the data behind it."""
        self._connection, self._stream, self._most = connection, stream, most
        self._head = memoryview(bytearray(_HEAD.size))
        self._waiting: float | None = time.monotonic()
        self.number = 0
        """The server's for the connection."""
        self.end: Callable[[], object] = connection.close
        """Closes the connection, which nobody uses."""

    def shut_down(self) -> None:
        """End the connection for whoever waits on it."""
        shut_down(self._connection)

    def is_there(self) -> bool:
        """Whether the other side has not ended, as far as the system knows."""
        look = select.poll()
        look.register(self._connection, _ENDED)
        return not look.poll(0)

    @property
    def waits(self) -> float:
        """Seconds for which nothing has moved, though this side is not at work."""
        began = self._waiting
        return 0.0 if began is None else time.monotonic() - max(began, self._stream.moved)

    def give(self, proof: bytes, silent: Silent) -> None:
        """Send what is no message."""
        self._stream.give([memoryview(proof)], silent)

    def send(self, message: bytes, parts: Parts, silent: Silent) -> None:
        """Send ``message`` and behind it the bytes of ``parts``."""
        head = _HEAD.pack(len(message), sum(map(len, parts))) + message
        self._waiting = time.monotonic()
        self._stream.give([memoryview(head), *parts], silent)

    def receive(self, silent: Silent) -> tuple[bytes, int] | None:
        """The next message, and the bytes of data to be taken behind it; None if there is none, as
        the other side has ended."""
        if not self._fill(self._head, silent, False):
            return None
        length, size = _HEAD.unpack(self._head)
        if length > self._most:
            raise ConnectionAbortedError(f"a message of {length} bytes: {self._most} at most")
        message = np.empty(length, np.uint8).data
        self.take(message, silent)
        return bytes(message), size  # from now on this side is at work

    def take(self, into: memoryview, silent: Silent) -> None:
        """The next bytes of the data."""
        self._fill(into, silent, True)

    def _fill(self, into: memoryview, silent: Silent, begun: bool) -> bool:
        """False if the other side has ended before any of it, unless a message has ``begun``."""
        here, end, self._waiting = 0, len(into), time.monotonic()
        while here < end:
            count = self._stream.take(into[here:], silent, begun or here > 0)
            if not count:
                if begun or here:
                    raise ConnectionResetError("the other side ended in the middle of a message")
                return False
            here += count
        self._waiting = None
        return True
