"""Transports to servers that others replace: at an address that a directory knows, or the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from ps_backend.errors import EpochFenced, ServerLost
from ps_backend.transport.base import Answer, Closed, Pending, Transport, Unavailable
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import Parts


@dataclass(frozen=True, slots=True)
class Location:
    """Where a server is; ``generation`` counts how often it was replaced by an empty one."""

    address: str
    generation: int

    @property
    def life(self) -> int:
        """The number of its life, which requests carry."""
        return self.generation + 1


class Directory(Protocol):
    """Knows where the servers of a cluster are now. Thread-safe."""

    def locate(self, server: int) -> Location | None:
        """Where server number ``server`` is, or None if none serves right now.

        Raises ``ServerLost`` if there will never be one again.
        """


class FailoverTransport:
    """A transport that asks a directory when its server does not answer, and follows it.

    The request that failed still raises ``Unavailable``; its repeat goes to the new address, where
    nothing is known of the session. Thread-safe.
    """

    is_replaced = True

    def __init__(
        self,
        server: int,
        location: Location,
        directory: Directory,
        make: Callable[[str], Transport],
    ) -> None:
        """``make`` connects to an address."""
        self._server, self._directory, self._make = server, directory, make
        self._location = location
        self._here = make(location.address), location.life
        self._closed = False
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        """Where the server is, as far as known."""
        return self._location.address

    @property
    def bulk_way(self) -> str:
        """How bulk data went to it last."""
        return self._here[0].bulk_way

    @property
    def generation(self) -> int:
        """How often the server was replaced."""
        return self._location.generation

    def call(
        self, request: pb.Request, payload: Parts = (), into: memoryview | None = None
    ) -> Answer:
        """Send and wait, on the calling thread."""
        inner, request.life = self._here
        try:
            return self._heard(inner.call(request, payload, into))
        except Unavailable:
            self._follow(inner)
            raise
        except Closed as error:
            raise self._or_left(error, inner) from None

    def start(
        self, request: pb.Request, payload: Parts = (), into: memoryview | None = None
    ) -> Pending:
        """Send now, wait later."""
        inner, request.life = self._here
        try:
            return _PendingAnswer(self, inner, inner.start(request, payload, into))
        except Unavailable:
            self._follow(inner)
            raise
        except Closed:
            if not self._has_left(inner):
                raise
            return self.start(request, payload, into)

    def close(self) -> None:
        """End the connection. Idempotent."""
        with self._lock:
            self._closed = True
            self._here[0].close()

    def begin_anew(self, generation: int) -> bool:
        """Whether a server that was replaced so often, and forgot the session, may have been
        replaced where it was: no, its directory would know."""
        return False

    def _follow(self, silent: Transport) -> None:
        """Connect to where the server is now, unless another thread did."""
        with self._lock:
            if self._here[0] is not silent or self._closed:
                return
            location = self._directory.locate(self._server)
            if location is None or location == self._location:
                return
            self._location = location  # first: whoever hears from the new one knows that it is new
            self._here = self._make(location.address), location.life
        silent.close()

    def _has_left(self, inner: Transport) -> bool:
        """Whether another thread has found another server, and closed the way to the former."""
        return not self._closed and self._here[0] is not inner

    def _or_left(self, error: Closed, inner: Transport) -> Exception:
        """``error``, unless the connection was closed so: then the request is to be repeated."""
        return Unavailable(str(error)) if self._has_left(inner) else error

    def _heard(self, answer: Answer) -> Answer:
        """The answer, unless it is of a process that is, or soon will be, no server any more."""
        if answer.reply.HasField("error") and answer.reply.error.kind == EpochFenced.__name__:
            raise Unavailable(answer.reply.error.message)
        return answer


class _PendingAnswer:
    """An answer on its way over ``inner``."""

    def __init__(self, following: FailoverTransport, inner: Transport, pending: Pending) -> None:
        self._following, self._inner, self._pending = following, inner, pending

    def result(self) -> Answer:
        try:
            return self._following._heard(self._pending.result())
        except Unavailable:
            self._following._follow(self._inner)
            raise
        except Closed as error:
            raise self._following._or_left(error, self._inner) from None


def follow_all(
    directory: Directory,
    servers: int,
    make: Callable[[str], Transport],
    pauses: Iterable[float],
) -> list[FailoverTransport]:
    """Transports to all servers, waiting for those that are being replaced.

    Raises ``ServerLost`` if one is not there after all ``pauses`` (seconds).
    """
    waits = iter(pauses)
    found: list[Location] = []
    while len(found) < servers:
        location = directory.locate(len(found))
        if location is not None:
            found.append(location)
            continue
        pause = next(waits, None)
        if pause is None:
            raise ServerLost(f"server {len(found)} of {servers} was lost and is not back yet")
        time.sleep(pause)
    return [FailoverTransport(k, location, directory, make) for k, location in enumerate(found)]


class SameAddressTransport(FailoverTransport):
    """Follows a server from life to life at one address.

    Nobody tells when a life ends: who hears that the session is not there any more says so.
    """

    def __init__(self, address: str, make: Callable[[str], Transport]) -> None:
        """``make`` connects to an address."""
        super().__init__(0, Location(address, 0), _NoDirectory(), make)

    def begin_anew(self, generation: int) -> bool:
        """The server that was replaced so often is not there any more; there is one all the same.

        Whether the next is to be spoken to. Once for each.
        """
        with self._lock:
            if self._closed or self._location.generation != generation:
                return not self._closed
            self._location = Location(self.address, generation + 1)
            silent, _ = self._here
            self._here = self._make(self.address), self._location.life
        silent.close()
        return True


class _NoDirectory:
    """A directory that knows of no other place."""

    def locate(self, server: int) -> Location | None:
        """None."""
