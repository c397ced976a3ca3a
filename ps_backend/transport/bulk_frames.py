"""Messages with bulk data over a connection: each a head, the message, and the data behind it.

The data goes from the memory of arrays into the memory of arrays: nothing here copies it, or cuts
it into pieces, and one call into the system moves as much as there is.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from ps_backend.transport.local_socket import limit_silence
from ps_backend.wire.chunks import Parts

_HEAD = struct.Struct("<IQ")
"""Bytes of the message, and of the data behind it."""

_MOST_VECTORS = min(64, os.sysconf("SC_IOV_MAX"))
"""Pieces of memory in one call."""

_TLS_BYTES = 1 << 20
"""In one call, which encrypts them before it sends any."""

Silent = Callable[[bool], None]
"""Called whenever nothing could be sent, or came, for the time that was set, with whether a message
is under way; raises if that is too long."""

_ENDED = select.POLLRDHUP | select.POLLHUP | select.POLLERR if hasattr(select, "POLLRDHUP") else 0


def keep_alive(connection: socket.socket) -> None:
    """Send at once what is small, and notice in a minute that the other host is gone."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # as Linux calls them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class BulkFrames:
    """One side of a conversation. Whoever raises ``OSError`` here has lost its connection."""

    def __init__(self, connection: socket.socket, seconds: float, most: int) -> None:
        """``seconds`` until silence is told of; ``most``: bytes of a message that comes, apart from
        the data behind it."""
        self.connection, self._most = connection, most
        if isinstance(connection, ssl.SSLSocket):  # which cannot wait in the system
            connection.settimeout(seconds)
            self._flags, self._give = 0, self._give_encrypted
        else:
            connection.settimeout(None)
            limit_silence(connection, seconds, seconds)
            self._flags, self._give = socket.MSG_WAITALL, self._give_plain
        self._head = memoryview(bytearray(_HEAD.size))
        self.end: Callable[[], object] = connection.close
        """Closes the connection, which nobody uses."""

    def shut_down(self, how: int = socket.SHUT_RDWR) -> None:
        """End the connection for whoever waits on it."""
        with suppress(OSError):  # it may have ended already
            # Not as TLS would: the thread that waits there would go on reading without it.
            socket.socket.shutdown(self.connection, how)

    def is_there(self) -> bool:
        """Whether the other side has not ended, as far as the system knows."""
        look = select.poll()
        look.register(self.connection, _ENDED)
        return not look.poll(0)

    def send(self, message: bytes, parts: Parts, silent: Silent) -> None:
        """Send ``message`` and behind it the bytes of ``parts``."""
        head = _HEAD.pack(len(message), sum(map(len, parts))) + message
        rest = [memoryview(head), *(part for part in parts if len(part))]
        while rest:
            try:
                count = self._give(rest[:_MOST_VECTORS])
            except (BlockingIOError, TimeoutError):
                silent(True)
                continue
            while rest and count >= len(rest[0]):
                count -= len(rest.pop(0))
            if count:
                rest[0] = rest[0][count:]

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
        return bytes(message), size

    def take(self, into: memoryview, silent: Silent) -> None:
        """The next bytes of the data."""
        self._fill(into, silent, True)

    def _fill(self, into: memoryview, silent: Silent, begun: bool) -> bool:
        """False if the other side has ended before any of it, unless a message has ``begun``."""
        here, end = 0, len(into)
        while here < end:
            try:
                count = self.connection.recv_into(into[here:], 0, self._flags)
            except (BlockingIOError, TimeoutError):
                silent(begun or here > 0)
                continue
            if not count:
                if begun or here:
                    raise ConnectionResetError("the other side ended in the middle of a message")
                return False
            here += count
        return True

    def _give_plain(self, rest: Parts) -> int:
        return self.connection.sendmsg(rest, (), socket.MSG_NOSIGNAL)

    def _give_encrypted(self, rest: Parts) -> int:
        return self.connection.send(rest[0][:_TLS_BYTES])
