"""The process in front of gRPC's port: who shows that it has the token is let through to gRPC.

gRPC itself reads HTTP/2 of anybody, and keeps what comes of headers until they end, which a
stranger need not ever do. Here a stranger may send a kilobyte within seconds, and nothing of it
reaches gRPC. It is a process of its own, so strangers cost the server's Python no time, and pings
reach gRPC, which answers them, while that is busy. It needs the standard library alone, to start in
an instant, holds no secret but the proofs that it compares with, and ends when the server does.
"""

from __future__ import annotations

import errno
import os
import selectors
import signal
import socket
import sys
import time
from _operator import _compare_digest
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

_HEAD_END = b"\r\n\r\n"
_MOST_HEAD = 1024
_BUFFER_BYTES = 1 << 18
"""Moved with one call, and kept of a connection whose other side is slow."""

_MOST_COMMAND = 4096
_MOST_ACCEPTED = 32
"""In a row, before those are heard that are there."""

CLOSE, RENEW = b"\1", b"\2"
"""Commands of the server: take no more connections; and let in by the proofs of the line behind.
Each is answered by a byte."""

NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Of ``accept``: another connection cannot be opened now."""

_COME_IN = b"HTTP/1.1 200 OK\r\n\r\n"
_NO_PROOF = b"HTTP/1.1 407 The token is missing or wrong\r\nContent-Length: 0\r\n\r\n"
_FULL = b"HTTP/1.1 503 No room for another connection\r\nContent-Length: 0\r\n\r\n"

Act = Callable[[int], None]
"""What is done when something can be read or written, as the mask says."""


class _Stranger:
    """Who has connected, and not shown yet who it is."""

    __slots__ = ("address", "came", "connection", "since")

    def __init__(self, connection: socket.socket, address: str) -> None:
        self.connection, self.address = connection, address
        self.since, self.came = time.monotonic(), b""


class _Side:
    """One of the two connections of who was let in: what it sends goes to the ``other``."""

    __slots__ = ("closed", "connection", "ended", "other", "unsent", "watched")

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.other, self.unsent = connection, self, b""
        self.ended = self.closed = False
        self.watched = 0


class Relay:
    """Everything that happens on the port, in one thread."""

    def __init__(
        self,
        listener: socket.socket,
        inner: str,
        control: socket.socket,
        *,
        proofs: Sequence[bytes],
        strangers: int,
        seconds: float,
        connections: int,
    ) -> None:
        """``inner``: the path of gRPC's socket. ``proofs``: one must be shown, if there are any.

        ``strangers``: so many may be there at once, each for so many ``seconds``. Of more, the
        oldest of the address that most come from is sent away, so others than it do not notice.
        ``connections``: of those who were let in.
        """
        self._listener, self._inner, self._control = listener, inner, control
        self._proofs, self._seconds = proofs, seconds
        self._most_strangers, self._most_sides = strangers, 2 * connections
        self._strangers: dict[_Stranger, None] = {}
        self._from: dict[str, dict[_Stranger, None]] = {}
        """The same by where they come from. All of them oldest first."""
        self._sides = 0
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._selector = selectors.DefaultSelector()
        self._spare = os.open(os.devnull, os.O_RDONLY)
        """Given up where no other file may be opened, to send newcomers away."""
        self._serving, self._command = True, b""

    def run(self) -> None:
        """Until the server closes its end of ``control``, as it does when it ends, however."""
        self._watch_for_reading(self._listener, self._accept)
        self._watch_for_reading(self._control, self._obey)
        self._control.send(b"\1")
        while self._serving:
            for key, mask in self._selector.select(self._patience()):
                act: Act = key.data
                act(mask)
            self._send_away_the_slow()

    def _watch_for_reading(self, connection: socket.socket, act: Act) -> None:
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ, act)

    def _obey(self, _: int) -> None:
        """Do as the server says; when it has ended, stop."""
        try:
            piece = self._control.recv(_MOST_COMMAND)
        except OSError:
            piece = b""
        self._serving = bool(piece)
        self._command += piece
        while self._serving and self._command:
            command, rest = self._command[:1], self._command[1:]
            if command == RENEW:
                proofs, end, rest = rest.partition(b"\n")
                if not end:
                    return  # the rest is on its way
                self._proofs = proofs.split()
            elif self._listener.fileno() >= 0:
                self._selector.unregister(self._listener)
                self._listener.close()
            self._command = rest
            self._control.send(b"\1")

    # --- strangers ---

    def _accept(self, _: int) -> None:
        for _ in range(_MOST_ACCEPTED):
            if self._listener.fileno() < 0:
                return
            try:
                connection, (address, *_rest) = self._listener.accept()
            except OSError as error:
                if error.errno in NO_ROOM:
                    self._turn_one_away()
                return
            if len(self._strangers) >= self._most_strangers:
                most = max(self._from.values(), key=len)
                self._close(next(iter(most)))
            stranger = _Stranger(connection, address)
            self._strangers[stranger] = None
            self._from.setdefault(address, {})[stranger] = None
            self._watch_for_reading(connection, partial(self._hear, stranger))

    def _turn_one_away(self) -> None:
        """No file can be opened: who waits would be heard of again and again."""
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        with suppress(OSError):
            self._listener.accept()[0].close()
        try:
            self._spare = os.open(os.devnull, os.O_RDONLY)
        except OSError:  # the system's files are used up: others go on while this one rests
            time.sleep(0.01)

    def _hear(self, stranger: _Stranger, _: int) -> None:
        if stranger not in self._strangers:  # sent away a moment ago
            return
        try:
            piece = stranger.connection.recv(_MOST_HEAD - len(stranger.came))
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        stranger.came += piece
        if _HEAD_END in stranger.came:
            self._answer(stranger)
        elif not piece or len(stranger.came) >= _MOST_HEAD:
            self._close(stranger)

    def _answer(self, stranger: _Stranger) -> None:
        head, _, rest = stranger.came.partition(_HEAD_END)
        shown = _proof_in(head)
        if self._proofs and not any(_compare_digest(shown, one) for one in self._proofs):
            self._close(stranger, _NO_PROOF)
            return
        inner = self._open_inner()
        if inner is None:
            self._close(stranger, _FULL)
            return
        self._forget(stranger)
        outer, inside = _Side(stranger.connection), _Side(inner)
        outer.other, inside.other = inside, outer
        outer.unsent, inside.unsent = _COME_IN, rest
        self._sides += 2
        for side in (outer, inside):
            self._send_rest(side)

    def _open_inner(self) -> socket.socket | None:
        if self._sides >= self._most_sides:
            return None
        inner = None
        try:
            inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            inner.setblocking(False)
            inner.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _BUFFER_BYTES)
            inner.connect(self._inner)
        except OSError:
            if inner is not None:
                inner.close()
            return None
        return inner

    def _forget(self, stranger: _Stranger) -> None:
        self._selector.unregister(stranger.connection)
        del self._strangers[stranger]
        from_there = self._from[stranger.address]
        del from_there[stranger]
        if not from_there:
            del self._from[stranger.address]

    def _close(self, stranger: _Stranger, answer: bytes = b"") -> None:
        self._forget(stranger)
        if answer:
            with suppress(OSError):
                stranger.connection.send(answer)
        stranger.connection.close()

    def _patience(self) -> float | None:
        if not self._strangers:
            return None
        oldest = next(iter(self._strangers))
        return max(0.0, oldest.since + self._seconds - time.monotonic())

    def _send_away_the_slow(self) -> None:
        since = time.monotonic() - self._seconds
        while self._strangers and (oldest := next(iter(self._strangers))).since <= since:
            self._close(oldest)

    # --- those who were let in ---

    def _move(self, side: _Side, mask: int) -> None:
        if mask & selectors.EVENT_WRITE and not side.closed:
            self._send_rest(side)
        if mask & selectors.EVENT_READ and not side.closed:
            self._pass_on(side)

    def _pass_on(self, side: _Side) -> None:
        try:
            count = side.connection.recv_into(self._buffer)
        except BlockingIOError:
            return
        except OSError:
            self._part(side)
            return
        if count:
            self._send(side.other, self._buffer[:count])
        else:
            side.ended = True
            self._look(side)

    def _send_rest(self, side: _Side) -> None:
        rest, side.unsent = side.unsent, b""
        self._send(side, memoryview(rest))

    def _send(self, side: _Side, data: memoryview) -> None:
        sent = 0
        if data:
            try:
                sent = side.connection.send(data)
            except BlockingIOError:
                pass
            except OSError:
                self._part(side)
                return
        if sent < len(data):
            side.unsent = bytes(data[sent:])
        self._look(side)
        self._look(side.other)

    def _look(self, side: _Side) -> None:
        """Watch for what can go on: nothing more is read than the other side has taken."""
        if side.closed:
            return
        if side.ended and not side.other.unsent:
            self._part(side)
            return
        reading = not (side.ended or side.other.unsent)
        wanted = selectors.EVENT_READ * reading | selectors.EVENT_WRITE * bool(side.unsent)
        if wanted == side.watched:
            return
        if not side.watched:
            self._selector.register(side.connection, wanted, partial(self._move, side))
        elif wanted:
            key = self._selector.get_key(side.connection)
            self._selector.modify(side.connection, wanted, key.data)
        else:
            self._selector.unregister(side.connection)
        side.watched = wanted

    def _part(self, side: _Side) -> None:
        if side.closed:  # what was to be sent after that has nowhere to go
            return
        for one in (side, side.other):
            if one.watched:
                self._selector.unregister(one.connection)
            one.connection.close()
            one.closed, one.watched = True, 0
        self._sides -= 2


def _proof_in(head: bytes) -> bytes:
    """That of the request, which is one for a proxy; empty if there is none."""
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"proxy-authorization":
            return value.strip()
    return b""


def main() -> None:
    """Run with what ``relay_process`` gives: files and bounds as arguments, then the proofs."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the server says when it is over
    listener, inner, strangers, seconds, connections = sys.argv[1:]
    control, proofs = socket.socket(fileno=0), b""
    while not proofs.endswith(b"\n"):
        piece = control.recv(_MOST_COMMAND)
        if not piece:
            return
        proofs += piece
    Relay(
        socket.socket(fileno=int(listener)),
        inner,
        control,
        proofs=proofs.split(),
        strangers=int(strangers),
        seconds=float(seconds),
        connections=int(connections),
    ).run()
    os._exit(0)  # the system closes the connections, and there is nothing else
