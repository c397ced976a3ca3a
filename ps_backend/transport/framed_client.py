"""The client's framed connections to one server: each is for one request at a time.

gRPC remains for what finds none free, and for a server that cannot be reached so: requests mean
the same over both. The connections are over a Unix socket if the server is on this host, else over
TCP. Large arrays make up to ``MOST_CONNECTIONS``, and wait until one is made. Small requests use
one that is free, and make none but the first: at once over a Unix socket, beside their way over
gRPC over TCP, as a firewall lets who knocks wait.
"""

from __future__ import annotations

import hmac
import logging
import math
import os
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ps_backend.transport.base import Unavailable
from ps_backend.transport.framed import (
    NUMBER,
    FramedConnection,
    PlainStream,
    Stream,
    TlsStream,
    has_unix_sockets,
    is_same_user,
    keep_alive,
    proofs_of,
    unix_address,
)
from ps_backend.transport.timeouts import PING_ANSWER_SECONDS, PING_SECONDS, Look, check_silence
from ps_backend.transport.tls import Tls, client_context
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import Parts, PayloadBroken

_LOG = logging.getLogger(__name__)

MOST_CONNECTIONS = 4
"""To one server: so many requests go at once, and further ones over gRPC."""

_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 3600.0
"""Seconds until a port is tried again that could not be reached."""

_expected: deque[None] = deque()
"""One for each reply that this process waits for. (Appending takes no lock.)"""


class FramedClient:
    """Thread-safe."""

    def __init__(
        self,
        address: str,
        token: str | None,
        tls: Tls | None,
        invite: Callable[[], pb.Invitation],
        look: Look,
        most: int,
        *,
        near: bool,
        eager: bool,
    ) -> None:
        """``invite`` asks the server where it listens, and raises ``Unavailable`` if it is silent.

        ``most``: bytes of a reply, without the data behind it. ``near``: a Unix socket may be used.
        ``eager``: also who sends nothing but small requests makes a connection over TCP.
        """
        self._address, self._token, self._tls = address, token, tls
        self._invite, self._look, self._most = invite, look, most
        self._near, self._eager = near and has_unix_sockets(), eager
        self._invitation: pb.Invitation | None = None
        self._stale = False
        """Whether the invitation led nowhere: the server may listen elsewhere now."""
        self._unix = ""
        """The name of the server's Unix socket; empty if it is not to be reached so."""
        self._lock, self._connecting = threading.Lock(), threading.Lock()
        self._idle: list[FramedConnection] = []
        self._busy: set[FramedConnection] = set()
        self._again, self._pause = 0.0, _FIRST_PAUSE
        self._closed, self._pid = False, os.getpid()
        self._mistrusted = False
        """Whether one went silent, and the server has not answered over gRPC since."""
        self._reason = ""
        """Why the server cannot be reached so."""
        self._unsaid = ""
        """The warning of that, until the server answers over gRPC: one that is gone needs none."""
        self.way = ""
        """How the last large array went, or why over gRPC; empty before the first."""

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def accept(self, invitation: pb.Invitation) -> None:
        """The server has said where it listens."""
        if invitation != self._invitation:
            self._drop_idle()
            self._invitation = invitation
            self._unix = invitation.socket if self._near else ""
            self._again, self._pause = 0.0, _FIRST_PAUSE

    def send(self, message: bytes, payload: Parts = (), *, large: bool = False) -> Sent | None:
        """Send a request; None if it has to go over gRPC. Raises ``Unavailable``."""
        connection = self._take(large)
        if large and connection is not None:
            self.way = connection.way
        elif large and self._reason:
            self.way = f"gRPC ({self._reason})"
        if connection is None:
            return None
        sent = Sent(self, connection)
        try:
            connection.send(message, payload, sent.silent)
        except BaseException as error:
            self.put_back(connection, error)
            if isinstance(error, OSError) and not isinstance(error, Unavailable):
                return None  # what has not come as a whole is not looked at
            raise
        _expected.append(None)
        return sent

    def reach(self) -> str:
        """How large arrays go: makes a connection if there is none."""
        connection = self._take(True)
        if connection is None:
            return f"gRPC ({self._reason})"
        self.put_back(connection, None)
        return connection.way

    def mend(self) -> None:
        """The server has answered over gRPC: from now on this way is tried again."""
        self._mistrusted = False
        if self._unsaid:
            _LOG.warning("%s", self._unsaid)
            self._unsaid = ""

    def close(self) -> None:
        """End the connections, and whoever waits on one. Idempotent."""
        with self._lock:
            self._closed = True
            if os.getpid() == self._pid:  # else they are those of a parent
                for connection in self._busy:
                    connection.shut_down()
        self._drop_idle()

    def check(self, connection: FramedConnection) -> None:
        """To be called if nothing has moved for ``PING_SECONDS``; raises if that is too long."""
        if self._closed:
            raise Unavailable("the connection was closed")
        check_silence(
            self._look, connection.number, connection.waits, PING_SECONDS, PING_ANSWER_SECONDS
        )

    def put_back(self, connection: FramedConnection, error: BaseException | None) -> None:
        """A request has come to its end. After an error the next one must not get its reply."""
        with self._lock:
            self._busy.discard(connection)
            if error is None and not self._closed:
                self._idle.append(connection)
                return
        connection.close()
        if isinstance(error, Unavailable) and not self._closed:
            self._mistrusted = True
            self._drop_idle()  # these will be silent, too

    # --- taking and making connections ---

    def _take(self, large: bool) -> FramedConnection | None:
        """A connection that nobody uses; None if there is, or can be, none."""
        if self._mistrusted or self._closed:
            return None
        connection = self._take_idle()
        if connection is None and (large or (self._unix and not self._busy)):
            connection = self._make(over_tcp=large)
        if connection is None and self._eager and not (large or self._busy):
            self._make_aside()
        return connection

    def _take_idle(self) -> FramedConnection | None:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if connection.is_there():
                    self._busy.add(connection)
                    return connection
                connection.close()
        return None

    def _drop_idle(self) -> None:
        with self._lock:
            for connection in self._idle:
                connection.close()
            self._idle.clear()

    def _make(self, *, over_tcp: bool) -> FramedConnection | None:
        with self._connecting:
            connection = self._take_idle()  # it was made meanwhile
            if connection is not None or len(self._busy) >= MOST_CONNECTIONS:
                return connection
            connection = self._connect(over_tcp)
            with self._lock:
                if connection is not None and not self._closed:
                    self._busy.add(connection)
                    return connection
        if connection is not None:
            connection.close()
        return None

    def _make_aside(self) -> None:
        """Make one while requests go over gRPC, whose errors are those that people see."""

        def make() -> None:
            try:
                connection = self._make(over_tcp=True)
            except Unavailable:
                return
            except Exception as error:  # noqa: BLE001 - a wrong token, a closed channel
                _LOG.debug("requests to %s go by gRPC: %r", self._address, error)
                self._again = time.monotonic() + self._pause
                return
            if connection is not None:
                self.put_back(connection, None)

        if not self._connecting.locked() and time.monotonic() >= self._again:
            with suppress(RuntimeError):  # no thread starts where there are too many, or at the end
                threading.Thread(target=make, name="distvec-connect", daemon=True).start()

    def _connect(self, over_tcp: bool) -> FramedConnection | None:
        """A new connection; None, for a while, if the server is not to be reached so."""
        tcp = over_tcp and time.monotonic() >= self._again
        if self._invitation is None or (tcp and self._stale):
            self.accept(self._invite())
            self._stale = False
        invitation = self._invitation or pb.Invitation()
        connection = self._over_unix(invitation)
        if connection is None and tcp and not self._mistrusted:
            connection = self._over_tcp(invitation)
        if connection is not None:
            self._pause, self._reason = _FIRST_PAUSE, ""
            # Also where nobody closes the client, as quietly as a channel of gRPC ends.
            connection.close = weakref.finalize(self, connection.close)
        return connection

    def _over_unix(self, invitation: pb.Invitation) -> FramedConnection | None:
        if not self._unix:
            return None
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _closed_on_error(made):
                made.settimeout(PING_SECONDS)
                made.connect(unix_address(self._unix))
                if not is_same_user(made):
                    raise PermissionError("the server runs as another user")
                return self._let_in(made, invitation.admission, "Unix socket")
        except TimeoutError:  # it may be stopped: that gRPC will see
            self._mistrusted = True
        except OSError:  # it is on another host, of another user, full, or gone
            self._unix = ""
        return None

    def _over_tcp(self, invitation: pb.Invitation) -> FramedConnection | None:
        host = self._address.rpartition(":")[0].removeprefix("[").removesuffix("]")
        port = invitation.port
        if not port:
            self._again, self._reason = math.inf, "the server has no other port"
            return None
        try:
            made = socket.create_connection((host, port), PING_SECONDS)
            with _closed_on_error(made):
                keep_alive(made)
                return self._let_in(made, invitation.admission, f"port {port}", host)
        except (OSError, ValueError) as error:
            self._again, self._stale = time.monotonic() + self._pause, True
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            where = f"port {port} of {host} cannot be reached"
            if not self._reason:
                self._unsaid = (
                    f"{where} ({error}): requests go to the server at {self._address} by gRPC, "
                    "which is slower"
                )
            self._reason = f"{where}: {error}"
            return None

    def _let_in(
        self, made: socket.socket, admission: bytes, way: str, host: str | None = None
    ) -> FramedConnection:
        """A connection that both sides know each other on. Raises ``OSError`` or ``ValueError``.

        ``host``: of the server, if TLS is needed where it has it.
        """
        plain = PlainStream(made, PING_SECONDS)
        stream: Stream = plain
        if host is not None and self._tls is not None:
            context, name = client_context(self._tls), self._tls.name or host
            stream = TlsStream(plain, context, _too_slow, server=name)
        ours, theirs = proofs_of(self._token, admission)
        connection = FramedConnection(made, stream, self._most, looks_out=host is None)
        connection.send_proof(ours, _too_slow)
        proof, number = bytearray(len(theirs)), bytearray(NUMBER.size)
        connection.take(memoryview(proof), _too_slow)
        if not hmac.compare_digest(proof, theirs):
            raise ConnectionRefusedError("another process listens at the address of the server")
        connection.take(memoryview(number), _too_slow)
        (connection.number,) = NUMBER.unpack(number)
        connection.way = way
        return connection


class Sent:
    """A request that was sent over a connection."""

    def __init__(self, client: FramedClient, connection: FramedConnection) -> None:
        self._client, self._connection = client, connection
        self._until = math.inf

    def receive(
        self, seconds: float | None = None, into: memoryview | None = None
    ) -> tuple[pb.Reply, int]:
        """Wait for the reply, so many ``seconds`` at most; and its size, data included.

        Raises ``Unavailable``, ``PayloadBroken``.
        """
        if seconds is not None:
            self._until = time.monotonic() + seconds
        client, connection = self._client, self._connection
        try:
            came = connection.receive(self.silent, len(_expected))
            if came is None:
                raise ConnectionResetError("the server ended the connection without an answer")
            message, size = came
            reply = pb.Reply.FromString(message)
            expected = 0 if into is None or reply.HasField("error") else len(into)
            if size != expected:
                raise PayloadBroken(f"{size} bytes of payload came, {expected} were expected")
            if into is not None and size:
                connection.take(into, self.silent)
        except BaseException as error:
            client.put_back(connection, error)
            if isinstance(error, OSError) and not isinstance(error, Unavailable):
                why = "the connection was closed" if client.is_closed else str(error)
                raise Unavailable(why) from None
            raise
        finally:
            _expected.pop()
        client.put_back(connection, None)
        return reply, len(message) + size

    def silent(self, _: bool) -> None:
        """As ``Silent``."""
        if time.monotonic() >= self._until:
            raise Unavailable("the server did not answer in time")
        self._client.check(self._connection)


@contextmanager
def _closed_on_error(connection: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _too_slow(_: bool) -> None:
    raise TimeoutError(f"no answer within {PING_SECONDS:g} s")
