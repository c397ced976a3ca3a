"""A Unix socket for small requests to a server on the same host, much quicker than gRPC.

A server tells who opens a session where its socket is, and hands out an *admission*; who connects
shows that it has this and the token before anything else of it is read. The socket is no file: its
name is one of the network namespace, and never used again, so a server on another host, or in
another container, is never taken for one on this. Only processes of one user speak to each other
so. Whatever goes wrong here, gRPC remains.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import socket
import struct
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache

from ps_backend.transport.base import Unavailable
from ps_backend.transport.timeouts import (
    NUMBER,
    PING_ANSWER_SECONDS,
    PING_SECONDS,
    Look,
    check_silence,
)
from ps_backend.wire import ps_pb2 as pb

ADMITTED = b"\1"
"""What the server says to a proof that is right, and behind it the connection's number; it ends the
connection if it is not."""

_USUAL_BYTES = 1 << 16
"""A buffer of this size stays; larger messages get one of their own."""

_SOON_SECONDS = 300e-6
"""Who got the last message so soon looks out for the next one for as long, before it sleeps."""

_looking_out = threading.Lock()
"""Held by the thread that does so: one of a process, or they would take the CPU from each other."""

_expected: deque[None] = deque()
"""One for each reply that this process waits for. (Appending takes no lock.)"""

_LENGTH = struct.Struct("<I")
_CREDENTIALS = struct.Struct("3i")


def can_be_had() -> bool:
    """Does this system have such sockets?"""
    return sys.platform == "linux"


def name_of(text: str) -> bytes:
    """The address of a socket without a file."""
    return b"\0" + text.encode()


def proof_of(token: str | None, key: bytes) -> bytes:
    """What shows that a client has the token and the admission ``key``."""
    return hmac.digest(key, (token or "").encode(), hashlib.sha256)


def is_same_user(connection: socket.socket) -> bool:
    """Whether the process at the other end is one of this user's, as the system says."""
    given = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(given)
    return bool(user == os.geteuid())


def limit_silence(connection: socket.socket, receive: float, send: float) -> None:
    """Let calls raise ``BlockingIOError`` after so many seconds. (Without ``poll`` before each.)"""
    for option, seconds in ((socket.SO_RCVTIMEO, receive), (socket.SO_SNDTIMEO, send)):
        whole = int(seconds)
        value = struct.pack("ll", whole, int(1e6 * (seconds - whole)))
        connection.setsockopt(socket.SOL_SOCKET, option, value)


@cache
def _processors() -> int:
    """That this process may use; two at least, as others can have it while it looks out."""
    return max(2, len(os.sched_getaffinity(0)))


class Frames:
    """Messages over a connection, each behind its length, both ways."""

    def __init__(self, connection: socket.socket, most: int) -> None:
        """No message that comes may have more than ``most`` bytes."""
        self.connection, self._most = connection, most
        self._usual = memoryview(bytearray(_USUAL_BYTES))
        self._waited = math.inf
        """Seconds until the last message came."""
        self._waiting: float | None = time.perf_counter()  # since the last message was sent
        self.number = 0
        """The server's for the connection."""

    @property
    def waits(self) -> float:
        """Seconds for which nothing has moved, though this side is not at work."""
        began = self._waiting
        return 0.0 if began is None else time.perf_counter() - began

    def send(self, data: bytes) -> None:
        """Send one. Raises ``OSError``."""
        self._waiting = time.perf_counter()
        self.connection.sendall(_LENGTH.pack(len(data)) + data)

    def receive(self, silent: Callable[[bool], None], at_work: int = 1) -> bytes | None:
        """The next one; None if the other side has ended.

        ``at_work``: on so many sides somebody computes what this process waits for. If they need
        all processors nobody looks out, as two servers would share the one that is left.
        ``silent`` is called whenever nothing came for the time that was set, with whether a message
        has begun; it raises if that is too long. Raises ``OSError``, also for what is no message.
        """
        view, began = self._usual, time.perf_counter()
        is_soon = self._waited < _SOON_SECONDS and at_work < _processors()
        here = self._at_once(began) if is_soon else -1
        if here < 0:
            here = self._some(view, silent, False)
        self._waited = time.perf_counter() - began
        if not here:
            return None
        while here < _LENGTH.size:
            here += self._more(view[here:], silent)
        (size,) = _LENGTH.unpack_from(view)
        if size > self._most:
            raise ConnectionAbortedError(f"a message of {size} bytes: {self._most} at most")
        end = _LENGTH.size + size
        if end > len(view):
            view = memoryview(bytearray(end))
            view[:here] = self._usual[:here]
        while here < end:
            here += self._more(view[here:], silent)
        if here > end:  # each waits for the answer to the one before
            raise ConnectionAbortedError("more than one message came at once")
        self._waiting = None
        return bytes(view[_LENGTH.size : end])

    def _at_once(self, began: float) -> int:
        """The bytes that come soon; -1 if none do.

        A processor that has gone to sleep takes some 30 us to wake up, in a virtual machine, and so
        both sides of a conversation of short messages would. Others may have it meanwhile.
        """
        if not _looking_out.acquire(blocking=False):
            return -1
        try:
            while time.perf_counter() < began + _SOON_SECONDS:
                with suppress(BlockingIOError):
                    return self.connection.recv_into(self._usual, 0, socket.MSG_DONTWAIT)
                os.sched_yield()
            return -1
        finally:
            _looking_out.release()

    def _some(self, view: memoryview, silent: Callable[[bool], None], begun: bool) -> int:
        while True:
            try:
                return self.connection.recv_into(view)
            except BlockingIOError:
                silent(begun)

    def _more(self, view: memoryview, silent: Callable[[bool], None]) -> int:
        count = self._some(view, silent, True)
        if not count:
            raise ConnectionResetError("the other side ended in the middle of a message")
        self._waiting = time.perf_counter()
        return count


class LocalSocket:
    """The client's side: requests and replies in turn, over one connection.

    A request goes this way only if nobody waits for a reply there, so none waits for another one;
    after a failure none does until ``mend``, which is for when the server has answered otherwise.
    Thread-safe.
    """

    def __init__(self, token: str | None, look: Look, most: int) -> None:
        """``most``: bytes of a reply."""
        self._token, self._look, self._most = token, look, most
        self._free = threading.Lock()
        self._invitation: tuple[str, bytes] | None = None
        self._frames: Frames | None = None
        self._end: Callable[[], object] = lambda: None
        """Closes the connection."""
        self._broken, self._closed = False, False
        self._pid = os.getpid()
        self._until: float | None = None

    def accept(self, opened: pb.Opened) -> None:
        """What the server has said about its socket."""
        if opened.socket and can_be_had() and (opened.socket, opened.admission) != self._invitation:
            with self._free:
                self._drop()
                self._invitation, self._broken = (opened.socket, opened.admission), False

    def mend(self) -> None:
        """The server has answered over gRPC: from now on this way is tried again."""
        self._broken = False

    def send(self, data: bytes) -> bool:
        """Send, if this way can be gone now; whether it was sent. ``receive`` must follow."""
        if self._invitation is None or self._broken or not self._free.acquire(blocking=False):
            return False
        try:
            frames = self._frames or self._connect()
            if frames is not None:
                frames.send(data)
                _expected.append(None)
                return True
            self._free.release()
        except OSError:
            self._give_up()
        except BaseException:
            self._give_up()
            raise
        return False

    def receive(self, seconds: float | None = None) -> bytes:
        """Wait for the reply, so many ``seconds`` at most. Raises ``Unavailable``."""
        self._until = None if seconds is None else time.monotonic() + seconds
        try:
            frames = self._frames
            data = None if frames is None else frames.receive(self._silent, len(_expected))
            if data is None:
                who = "connection was closed" if self._closed else "server ended the connection"
                raise ConnectionResetError(f"the {who}")
        except OSError as error:
            self._give_up()
            raise error if isinstance(error, Unavailable) else Unavailable(str(error)) from None
        except BaseException:  # also Ctrl-C: the next request must not get this reply
            self._give_up()
            raise
        finally:
            _expected.pop()
        self._free.release()
        return data

    def close(self) -> None:
        """End the connection, and whoever waits on it. Idempotent."""
        self._closed = self._broken = True
        frames = self._frames
        if frames is not None and os.getpid() == self._pid:  # else it is that of a parent
            with suppress(OSError):  # it may have ended already
                frames.connection.shutdown(socket.SHUT_RDWR)
        if self._free.acquire(blocking=False):
            self._drop()
            self._free.release()

    def _connect(self) -> Frames | None:
        """A new connection; None if the server is not to be reached so, now or ever."""
        if self._invitation is None or self._closed:
            return None
        name, key = self._invitation
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            limit_silence(connection, PING_SECONDS, PING_SECONDS)
            connection.connect(name_of(name))
            if is_same_user(connection):
                connection.sendall(proof_of(self._token, key))
                told = connection.recv(len(ADMITTED) + NUMBER.size, socket.MSG_WAITALL)
                if told.startswith(ADMITTED) and len(told) == len(ADMITTED) + NUMBER.size:
                    self._frames = Frames(connection, self._most)
                    (self._frames.number,) = NUMBER.unpack_from(told, len(ADMITTED))
                    # Also where nobody closes the client, as quietly as a channel of gRPC ends.
                    self._end = weakref.finalize(self, connection.close)
                    return self._frames
        except BlockingIOError:  # it may be stopped: that gRPC will see
            connection.close()
            raise
        except OSError:
            pass
        except BaseException:
            connection.close()
            raise
        connection.close()
        self._invitation = None  # it is on another host, of another user, full, or gone
        return None

    def _silent(self, begun: bool) -> None:
        """Nothing came for ``PING_SECONDS``."""
        if self._until is not None and time.monotonic() >= self._until:
            raise Unavailable("the server did not answer in time")
        if (frames := self._frames) is not None:
            check_silence(
                self._look, frames.number, frames.waits, PING_SECONDS, PING_ANSWER_SECONDS
            )

    def _give_up(self) -> None:
        self._broken = True
        self._drop()
        self._free.release()

    def _drop(self) -> None:
        if self._frames is not None:
            self._frames = None
            self._end()
