"""Framed connections: messages with bulk data behind them, over Unix sockets and TCP, also by TLS.

They are what gRPC hands out the address of, as it takes several times the time. A server tells who
has shown it the token over gRPC where it listens, and an *admission*; who connects there shows
that it has both before anything else of it is read, and the server shows the same. A Unix socket
has no file: its name is one of the network namespace, and never used again, so a server on another
host, or in another container, is never taken for one on this; only processes of one user speak to
each other so. Over TCP there is TLS where the server has it.

A frame is a head with two lengths, the message, and the data behind it. The data goes from the
memory of arrays into the memory of arrays: nothing here copies it, or cuts it into pieces.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import math
import os
import select
import socket
import ssl
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Protocol, cast

from ps_backend.machine import usable_cores
from ps_backend.wire.protocol import Parts

Silent = Callable[[bool], None]
"""Called whenever nothing could be sent, or came, for the time that was set, with whether a message
is under way; raises if that is too long."""

NUMBER = struct.Struct("<Q")
"""By which a client asks over gRPC about a connection, and which it was told when it was let in."""

_HEAD = struct.Struct("<IQ")
"""Bytes of the message, and of the data behind it."""

_BUFFER_BYTES = 1 << 16
"""What comes is read into a buffer of this size, unless it is known to be more."""

_SOON_SECONDS = 300e-6
"""Who got the last message so soon looks out for the next one for as long, before it sleeps."""

_LATELY_SECONDS = 0.01
"""A question to the system costs more than the rest of taking up a connection."""

_MOST_VECTORS = min(64, os.sysconf("SC_IOV_MAX"))
"""Pieces of memory in one call."""

_TLS_BYTES = 1 << 18
"""So much is encrypted, and then sent with one call. A call for each record of 16 KiB, as sockets
of ``ssl`` have it, sends packets of that size: 4 MiB took three times as long between hosts."""

_ENDED = select.POLLRDHUP | select.POLLHUP | select.POLLERR if hasattr(select, "POLLRDHUP") else 0
_CREDENTIALS = struct.Struct("3i")
_INT = struct.Struct("i")

_looking_out = threading.Lock()
"""Held by the thread that does so: one of a process, or they would take the CPU from each other."""


# --- who may connect, and where -----------------------------------------------------------------


PROOF_BYTES = hashlib.sha256().digest_size
"""Of each of these proofs."""


def proofs_of(token: str | None, admission: bytes) -> tuple[bytes, bytes]:
    """What shows that a client, and a server, have the token and the admission."""
    secret = (token or "").encode()
    client, server = (
        hmac.digest(admission, side + secret, hashlib.sha256) for side in (b"client ", b"server ")
    )
    return client, server


def has_unix_sockets() -> bool:
    """Does this system have Unix sockets without a file?"""
    return sys.platform == "linux"


def unix_address(name: str) -> bytes:
    """The address of such a socket."""
    return b"\0" + name.encode()


def is_same_user(connection: socket.socket) -> bool:
    """Whether the process at the other end is one of this user's, as the system says."""
    given = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(given)
    return bool(user == os.geteuid())


def keep_alive(connection: socket.socket) -> None:
    """Of TCP: send at once what is small, and notice in a minute that the other host is gone."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # as Linux calls them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def shut_down(connection: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    """End a connection for the thread that waits on it."""
    with suppress(OSError):  # it may have ended already
        connection.shutdown(how)


# --- bytes ----------------------------------------------------------------------------------------


class Stream(Protocol):
    """Bytes both ways. Who raises ``OSError`` has lost the connection."""

    @property
    def moved(self) -> float:
        """When bytes went or came last, by ``time.monotonic``."""

    def send(self, parts: Parts, silent: Silent) -> None:
        """Send all bytes of ``parts``."""

    def receive(self, into: memoryview, silent: Silent, begun: bool, whole: bool = False) -> int:
        """Some of the next bytes, as they come; 0 if the other side has ended.

        ``whole``: all of them, unless that takes long.
        """


class PlainStream:
    """From memory to memory: one call into the system moves as much as there is."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        """``seconds`` until silence is told of."""
        self._connection, self.moved = connection, time.monotonic()
        connection.settimeout(None)  # the system waits, and not ``poll`` before each call
        whole = int(seconds)
        limit = struct.pack("ll", whole, int(1e6 * (seconds - whole)))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            connection.setsockopt(socket.SOL_SOCKET, option, limit)

    def send(self, parts: Parts, silent: Silent) -> None:
        """As ``Stream``."""
        rest, given = list(parts), 0
        arrived: int | None = None
        while rest:
            try:
                if len(rest) == 1:
                    count = self._connection.send(rest[0])
                else:
                    count = self._connection.sendmsg(rest[:_MOST_VECTORS])
            except BlockingIOError:
                count = 0
            given, taken = given + count, count > 0
            while rest and count >= len(rest[0]):
                count -= len(rest.pop(0))
            if not rest:
                break
            rest[0] = rest[0][count:]
            # A system takes more once a good part of what it has is gone: on a slow link that takes
            # long. And what it takes need not arrive.
            before, arrived = arrived, given - self._unsent()
            if before is not None and arrived > before:
                self.moved = time.monotonic()
            elif not taken:
                silent(True)
        self.moved = time.monotonic()

    def receive(self, into: memoryview, silent: Silent, begun: bool, whole: bool = False) -> int:
        """As ``Stream``."""
        while True:
            try:
                count = self._connection.recv_into(into, 0, socket.MSG_WAITALL if whole else 0)
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
                    raise ConnectionResetError(
                        "the connection ended before the handshake"
                    ) from None
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

    def send(self, parts: Parts, silent: Silent) -> None:
        """As ``Stream``."""
        for part in parts:
            for low in range(0, len(part), _TLS_BYTES):
                self._tls.write(part[low : low + _TLS_BYTES])
                if self._out.pending >= _TLS_BYTES:
                    self._flush(silent)
        self._flush(silent)

    def receive(self, into: memoryview, silent: Silent, begun: bool, whole: bool = False) -> int:
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
        count = self._plain.receive(self._came, silent, begun)
        self._in.write(self._came[:count])
        return count > 0

    def _flush(self, silent: Silent) -> None:
        if self._out.pending:
            self._plain.send([memoryview(self._out.read())], silent)


# --- messages -------------------------------------------------------------------------------------


@cache
def _processors() -> int:
    """That this process may use; two at least, as others can have it while it looks out."""
    return max(2, usable_cores())


class FramedConnection:
    """One side of a conversation. Whoever raises ``OSError`` here has lost its connection."""

    def __init__(
        self, connection: socket.socket, stream: Stream, most: int, *, looks_out: bool = False
    ) -> None:
        """``stream`` over the ``connection``; ``most``: bytes of a message that comes, apart from
        the data behind it. ``looks_out``: for what comes soon, before it sleeps."""
        self._connection, self._stream, self._most = connection, stream, most
        self._looks_out = looks_out
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._low = self._high = 0
        """The bytes of it that have come, and were not taken yet, lie between."""
        self._waited = math.inf
        """Seconds until the last message came."""
        self._waiting: float | None = time.monotonic()
        self._ended = select.poll()
        self._ended.register(connection, _ENDED)
        self.number = 0
        """The server's for the connection."""
        self.nonces = b""
        """Of both sides, where each connection has proofs of its own."""
        self.way = ""
        """Where it goes, for people."""
        self.close: Callable[[], object] = connection.close
        """Closes the connection, which nobody uses."""

    def shut_down(self) -> None:
        """End the connection for whoever waits on it."""
        shut_down(self._connection)

    def is_there(self) -> bool:
        """Whether the other side has not ended, as far as the system knows; unasked if something
        came lately, since a request can find it gone at any moment all the same."""
        if time.monotonic() - self._stream.moved < _LATELY_SECONDS:
            return True
        return not self._ended.poll(0)

    @property
    def waits(self) -> float:
        """Seconds for which nothing has moved, though this side is not at work."""
        began = self._waiting
        return 0.0 if began is None else time.monotonic() - max(began, self._stream.moved)

    def send_proof(self, proof: bytes, silent: Silent) -> None:
        """Send what is no message."""
        self._stream.send([memoryview(proof)], silent)

    def send(self, message: bytes, parts: Parts, silent: Silent) -> None:
        """Send ``message`` and behind it the bytes of ``parts``."""
        head = memoryview(_HEAD.pack(len(message), sum(map(len, parts))) + message)
        self._waiting = time.monotonic()
        self._stream.send([head, *parts] if parts else [head], silent)

    def receive(self, silent: Silent, at_work: int = 1) -> tuple[bytes, int] | None:
        """The next message, and the bytes of data to be taken behind it; None if there is none, as
        the other side has ended.

        ``at_work``: on so many sides somebody computes what this process waits for. If they need
        all processors nobody looks out, as two servers would share the one that is left.
        """
        began = time.monotonic()
        if self._waiting is None:  # else since the last message was sent
            self._waiting = began
        if self._low == self._high:
            is_soon = self._looks_out and self._waited < _SOON_SECONDS and at_work < _processors()
            count = self._look_out(began + _SOON_SECONDS) if is_soon else -1
            if count < 0:
                count = self._stream.receive(self._buffer, silent, False)
            self._low, self._high = 0, count
            self._waited = time.monotonic() - began
            if not count:
                return None
        if self._high - self._low < _HEAD.size:
            self._fill_head(silent)
        length, size = _HEAD.unpack_from(self._buffer, self._low)
        self._low += _HEAD.size
        if length > self._most:
            raise ConnectionAbortedError(
                f"a message of {length} bytes exceeds the limit of {self._most}"
            )
        if self._high - self._low >= length:  # as a rule
            message = bytes(self._buffer[self._low : self._low + length])
            self._low += length
        else:
            whole = bytearray(length)
            self.take(memoryview(whole), silent)
            message = bytes(whole)
        self._waiting = None  # from now on this side is at work
        return message, size

    def take(self, into: memoryview, silent: Silent) -> None:
        """The next bytes of the data."""
        here = min(len(into), self._high - self._low)
        into[:here] = self._buffer[self._low : self._low + here]
        self._low += here
        if here == len(into):
            return
        self._waiting = time.monotonic()
        while here < len(into):
            count = self._stream.receive(into[here:], silent, True, True)
            if not count:
                raise ConnectionResetError("the other side ended in the middle of a message")
            here += count
        self._waiting = None

    def take_arrived(self, size: int) -> memoryview | None:
        """A copy of so much of the data, if all of it is in the buffer; else None."""
        if self._high - self._low < size:
            return None
        data = bytes(self._buffer[self._low : self._low + size])
        self._low += size
        return memoryview(data)

    def _fill_head(self, silent: Silent) -> None:
        """See that a head is in the buffer, of which some is."""
        rest = bytes(self._buffer[self._low : self._high])
        self._buffer[: len(rest)] = rest
        self._low, self._high = 0, len(rest)
        while self._high < _HEAD.size:
            count = self._stream.receive(self._buffer[self._high :], silent, True)
            if not count:
                raise ConnectionResetError("the other side ended in the middle of a message")
            self._high += count

    def _look_out(self, until: float) -> int:
        """The bytes that come soon; -1 if none do.

        A processor that has gone to sleep takes some 30 us to wake up, in a virtual machine, and so
        both sides of a conversation of short messages would. Others may have it meanwhile.
        """
        if not _looking_out.acquire(blocking=False):
            return -1
        try:
            while time.monotonic() < until:
                with suppress(BlockingIOError):
                    return self._connection.recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
                os.sched_yield()
            return -1
        finally:
            _looking_out.release()
