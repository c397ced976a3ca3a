"""Sockets of our own for bulk data between hosts, which takes gRPC twice the time.

A server listens on one more port, which it tells, with an *admission*, to whoever asks for it over
gRPC. Who connects there, with TLS where the server has it, shows that it has the admission and the
token before anything else of it is read, and the server shows the same. Requests mean what they
mean over gRPC, which remains for whatever cannot come this way.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable

from ps_backend.transport.base import Answer, Forgotten, Unavailable
from ps_backend.transport.bulk_frames import BulkFrames, keep_alive
from ps_backend.transport.streams import PlainStream, Stream, TlsStream
from ps_backend.transport.timeouts import (
    NUMBER,
    PING_ANSWER_SECONDS,
    PING_SECONDS,
    Look,
    check_silence,
)
from ps_backend.transport.tls import Tls, client_context
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.chunks import Parts
from ps_backend.wire.errors import PayloadBroken

_LOG = logging.getLogger(__name__)

MOST_SOCKETS = 4
"""To one server: so many transfers go at once, and further ones over gRPC."""

_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 3600.0
"""Seconds until a port is tried again that could not be reached."""


def proofs_of(token: str | None, admission: bytes) -> tuple[bytes, bytes]:
    """What shows that a client, and a server, have the token and the admission."""
    secret = (token or "").encode()
    client, server = (
        hmac.digest(admission, side + secret, hashlib.sha256) for side in (b"client ", b"server ")
    )
    return client, server


def host_of(address: str) -> str:
    """The host in ``host:port`` or ``[host]:port``."""
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]")


class BulkSockets:
    """The client's side: some connections to one server, each for one transfer at a time.

    Each is made when it is needed. Thread-safe.
    """

    def __init__(
        self,
        address: str,
        token: str | None,
        tls: Tls | None,
        invite: Callable[[], pb.Invitation],
        look: Look,
        most: int,
    ) -> None:
        """``invite`` asks the server for its port, and raises ``Unavailable`` if it is silent.

        ``most``: bytes of a reply, without the data behind it.
        """
        self._address, self._token, self._tls = address, token, tls
        self._invite, self._look, self._most = invite, look, most
        self._lock = threading.Lock()
        self._idle: list[BulkFrames] = []
        self._busy: set[BulkFrames] = set()
        self._made = 0
        self._again, self._pause = 0.0, _FIRST_PAUSE
        self._closed, self._pid = False, os.getpid()
        self._mistrusted = False
        """Whether one went silent, and the server has not answered over gRPC since."""
        self.way = ""
        """How the last transfer went, or why it could not go this way; empty before the first."""

    def transfer(
        self, request: pb.Request, payload: Parts, into: memoryview | None, most: int
    ) -> Answer | None:
        """As ``Transport.call``; None if it has to go another way, as one with more than ``most``
        bytes besides its payload has."""
        message = request.SerializeToString()
        frames = self._take() if len(message) <= most else None
        if frames is None:
            return None
        done = False
        try:
            answer = self._exchange(frames, request, message, payload, into)
            done = True
            return answer
        except Forgotten:
            self._mistrust()
            raise
        except OSError as error:
            if isinstance(error, Unavailable):
                raise
            raise Unavailable("the connection was closed" if self._closed else str(error)) from None
        finally:  # also after Ctrl-C: the next request must not get this reply
            self._put_back(frames if done else None, frames)

    def reach(self) -> str:
        """Make a connection if there is none, and say how transfers go."""
        frames = self._take()
        if frames is not None:
            self._put_back(frames, frames)
        return self.way

    def mend(self) -> None:
        """Bulk data has come over gRPC: from now on this way is tried again."""
        self._mistrusted = False

    def close(self) -> None:
        """End the connections, and whoever waits on one. Idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            self._made -= len(idle)
            for frames in idle:
                frames.end()
            if os.getpid() == self._pid:  # else they are those of a parent
                for frames in self._busy:
                    frames.shut_down()

    def _exchange(
        self,
        frames: BulkFrames,
        request: pb.Request,
        message: bytes,
        payload: Parts,
        into: memoryview | None,
    ) -> Answer:
        def silent(_: bool) -> None:
            if self._closed:
                raise Unavailable("the connection was closed")
            check_silence(
                self._look, frames.number, frames.waits, PING_SECONDS, PING_ANSWER_SECONDS
            )

        frames.send(message, payload, silent)
        came = frames.receive(silent)
        if came is None:
            raise ConnectionResetError(f"{self._address} ended the connection without an answer")
        data, size = came
        reply = pb.Reply.FromString(data)
        expected = 0 if into is None or reply.HasField("error") else len(into)
        if size != expected:
            raise PayloadBroken(f"{size} bytes of payload came, {expected} were expected")
        if into is not None and size:
            frames.take(into, silent)
        return Answer(reply, len(message) + request.payload, len(data) + size)

    def _take(self) -> BulkFrames | None:
        """A connection that nobody uses; None if there is, or can be, none."""
        with self._lock:
            if self._closed or self._mistrusted or os.getpid() != self._pid:
                return None
            while self._idle:
                frames = self._idle.pop()
                if frames.is_there():
                    self._busy.add(frames)
                    return frames
                frames.end()
                self._made -= 1
            if self._made >= MOST_SOCKETS or time.monotonic() < self._again:
                return None
            self._made += 1
        made: BulkFrames | None = None
        try:
            made = self._connect()
        finally:
            with self._lock:
                if made is None:
                    self._made -= 1
                else:
                    self._busy.add(made)
        return made

    def _mistrust(self) -> None:
        """One went silent, so those that idle will have, too."""
        with self._lock:
            self._mistrusted = True
            idle, self._idle = self._idle, []
            self._made -= len(idle)
        for frames in idle:
            frames.end()

    def _put_back(self, kept: BulkFrames | None, used: BulkFrames) -> None:
        with self._lock:
            self._busy.discard(used)
            if kept is not None and not self._closed:
                self._idle.append(kept)
                return
            self._made -= 1
        used.end()

    def _connect(self) -> BulkFrames | None:
        """A new connection; None, for a while, if the server is not to be reached so."""
        invitation = self._invite()
        if not invitation.port:
            self._again, self.way = math.inf, "gRPC (the server has no other port)"
            return None
        where = f"port {invitation.port} of {host_of(self._address)}"
        try:
            frames = self._let_in(invitation)
        except (OSError, ValueError) as error:
            self._again = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            if not self.way.startswith("gRPC"):
                _LOG.warning(
                    "%s cannot be reached (%s): large arrays go to the server at %s by gRPC, which "
                    "is slower", where, error, self._address
                )  # fmt: skip
            self.way = f"gRPC ({where} cannot be reached: {error})"
            return None
        self._pause, self.way = _FIRST_PAUSE, f"port {invitation.port}"
        # Also where nobody closes the client, as quietly as a channel of gRPC ends.
        frames.end = weakref.finalize(self, frames.end)
        return frames

    def _let_in(self, invitation: pb.Invitation) -> BulkFrames:
        """A connection that both sides know each other on. Raises ``OSError`` or ``ValueError``."""
        host = host_of(self._address)
        connection = socket.create_connection((host, invitation.port), PING_SECONDS)
        try:
            keep_alive(connection)
            plain = PlainStream(connection, PING_SECONDS)
            stream: Stream = plain
            if self._tls is not None:
                context, name = client_context(self._tls), self._tls.name or host
                stream = TlsStream(plain, context, _too_slow, server=name)
            ours, theirs = proofs_of(self._token, invitation.admission)
            frames = BulkFrames(connection, stream, self._most)
            frames.give(ours, _too_slow)
            proof, number = bytearray(len(theirs)), bytearray(NUMBER.size)
            frames.take(memoryview(proof), _too_slow)
            if not hmac.compare_digest(proof, theirs):
                raise ConnectionRefusedError("it is not the server that listens there")
            frames.take(memoryview(number), _too_slow)
            (frames.number,) = NUMBER.unpack(number)
            return frames
        except BaseException:
            connection.close()
            raise


def _too_slow(_: bool) -> None:
    raise TimeoutError(f"no answer within {PING_SECONDS:g} s")
