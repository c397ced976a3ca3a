"""Bytes over a connection, plain or by TLS, in as few and as large pieces as there can be."""

from __future__ import annotations

import fcntl
import os
import socket
import ssl
import struct
import sys
import termios
import time
from collections.abc import Callable
from typing import Protocol, cast

from ps_backend.transport.local_socket import limit_silence
from ps_backend.wire.chunks import Parts

Silent = Callable[[bool], None]
"""Called whenever nothing could be sent, or came, for the time that was set, with whether a message
is under way; raises if that is too long."""

_MOST_VECTORS = min(64, os.sysconf("SC_IOV_MAX"))
"""Pieces of memory in one call."""

_INT = struct.Struct("i")

_TLS_BYTES = 1 << 18
"""So much is encrypted, and then sent with one call. A call for each record of 16 KiB, as sockets
of ``ssl`` have it, sends packets of that size: 4 MiB took three times as long between hosts."""


class Stream(Protocol):
    """Who raises ``OSError`` has lost the connection."""

    @property
    def moved(self) -> float:
        """When bytes went or came last, by ``time.monotonic``."""

    def give(self, parts: Parts, silent: Silent) -> None:
        """Send all bytes of ``parts``."""

    def take(self, into: memoryview, silent: Silent, begun: bool) -> int:
        """Some of the next bytes, as they come; 0 if the other side has ended."""


class PlainStream:
    """From memory to memory: one call into the system moves as much as there is."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        """``seconds`` until silence is told of."""
        self._connection, self.moved = connection, time.monotonic()
        connection.settimeout(None)  # the system waits, and not ``poll`` before each call
        limit_silence(connection, seconds, seconds)

    def give(self, parts: Parts, silent: Silent) -> None:
        """As ``Stream``."""
        rest, given = [part for part in parts if len(part)], 0
        arrived = -self._unsent()
        while rest:
            try:
                count = self._connection.sendmsg(rest[:_MOST_VECTORS])
            except BlockingIOError:
                count = 0
            given += count
            # A system takes more once a good part of what it has is gone: on a slow link that takes
            # long. And what it takes need not arrive.
            before, arrived = arrived, given - self._unsent()
            if arrived > before:
                self.moved = time.monotonic()
            elif not count:
                silent(True)
            while rest and count >= len(rest[0]):
                count -= len(rest.pop(0))
            if count:
                rest[0] = rest[0][count:]

    def take(
        self, into: memoryview, silent: Silent, begun: bool, flags: int = socket.MSG_WAITALL
    ) -> int:
        """As ``Stream``; all of them unless that takes long."""
        while True:
            try:
                count = self._connection.recv_into(into, 0, flags)
            except BlockingIOError:
                silent(begun)
            else:
                self.moved = time.monotonic()
                return count

    def _unsent(self) -> int:
        """Bytes that have not arrived at the other side's system; 0 where ours does not tell."""
        if sys.platform != "linux":
            return 0
        told = fcntl.ioctl(self._connection, termios.TIOCOUTQ, bytes(_INT.size))
        return int(_INT.unpack(told)[0])


class TlsStream:
    """The same, encrypted."""

    def __init__(
        self,
        plain: PlainStream,
        context: ssl.SSLContext,
        silent: Silent,
        *,
        server: str | None = None,
    ) -> None:
        """Shake hands; ``server``: whom the client expects, None on the server's side.

        Raises ``OSError``, as for a certificate that is not believed.
        """
        self._plain = plain
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._came = memoryview(bytearray(_TLS_BYTES))
        self._tls = context.wrap_bio(
            self._in, self._out, server_side=server is None, server_hostname=server
        )
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush(silent)
                if not self._more(silent, True):
                    raise ConnectionResetError("it ended before hands were shaken") from None
            except ssl.SSLError:
                self._flush(silent)  # the other side is told why
                raise
            else:
                self._flush(silent)
                return

    @property
    def moved(self) -> float:
        """As ``Stream``."""
        return self._plain.moved

    def give(self, parts: Parts, silent: Silent) -> None:
        """As ``Stream``."""
        for part in parts:
            for low in range(0, len(part), _TLS_BYTES):
                self._tls.write(part[low : low + _TLS_BYTES])
                if self._out.pending >= _TLS_BYTES:
                    self._flush(silent)
        self._flush(silent)

    def take(self, into: memoryview, silent: Silent, begun: bool) -> int:
        """As ``Stream``; a record at most."""
        while True:
            try:
                return cast(int, self._tls.read(len(into), into))
            except ssl.SSLWantReadError:
                if not self._more(silent, begun):
                    return 0
            except ssl.SSLZeroReturnError:
                return 0

    def _more(self, silent: Silent, begun: bool) -> bool:
        count = self._plain.take(self._came, silent, begun, 0)
        self._in.write(self._came[:count])
        return count > 0

    def _flush(self, silent: Silent) -> None:
        if self._out.pending:
            self._plain.give([memoryview(self._out.read())], silent)
