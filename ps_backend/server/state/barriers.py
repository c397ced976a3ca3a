"""What requests of a session wait at, by name: the mailboxes and the clocks of loops."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar, TypeVar

from ps_backend.errors import PSError
from ps_backend.server.state.memory import Memory, Reservation
from ps_backend.wire.barriers import LONGEST_WAIT_SECONDS
from ps_backend.wire.errors import Crowded

MOST_WAITING = 512
"""Waits that a server has at once: each holds one of its threads."""

_MOST_OPEN = 4096


class WaitingRoom:
    """The places for requests that wait, of all sessions of a server. Thread-safe."""

    def __init__(self, places: int = MOST_WAITING) -> None:
        self._places = threading.BoundedSemaphore(places)
        self._closed = False

    def wait(
        self, condition: threading.Condition, happened: Callable[[], bool], seconds: float
    ) -> None:
        """Wait on ``condition``, which the caller holds, until it happened or time is up.

        Raises ``Crowded`` at once if there is no place left.
        """
        if not self._places.acquire(blocking=False):
            raise Crowded("too many requests are waiting on this server; ask again later")
        try:
            condition.wait_for(
                lambda: self._closed or happened(), min(seconds, LONGEST_WAIT_SECONDS)
            )
        finally:
            self._places.release()

    def close(self) -> None:
        """From now on nobody waits; who is waiting must be woken."""
        self._closed = True


class Barrier:
    """Requests wait here for what others bring. Subclasses hold ``_lock`` in all they do."""

    kind: ClassVar[str]
    closed_error: ClassVar[type[PSError]]
    """Raised for who waits, or comes, when it is over."""

    def __init__(self, name: str, room: WaitingRoom) -> None:
        self.name = name
        self._room = room
        self._closed = False
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)

    def close(self) -> None:
        """End it: whoever waits, or comes later, gets ``closed_error``."""
        with self._lock:
            self._closed = True
            self._clear()
            self.wake()

    def wake(self) -> None:
        """Let all who wait look around."""
        with self._lock:
            self._changed.notify_all()

    def _clear(self) -> None:
        """It is over; the lock is held."""

    def _wait(
        self, condition: threading.Condition, happened: Callable[[], bool], seconds: float
    ) -> None:
        """Wait until it happened or time is up; ``closed_error``, ``Crowded``."""
        self._refuse_closed()
        if not happened():
            self._room.wait(condition, lambda: self._closed or happened(), seconds)
            self._refuse_closed()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise self.closed_error(f"{self.kind} {self.name!r} was closed")


Kind = TypeVar("Kind", bound=Barrier)


class Barriers:
    """All of one session on one server. Thread-safe."""

    def __init__(self, room: WaitingRoom, memory: Memory) -> None:
        self._room, self._memory = room, memory
        self._open: dict[tuple[str, str], tuple[Barrier, Reservation]] = {}
        self._lock = threading.Lock()

    def open(
        self, kind: type[Kind], name: str, size: int, make: Callable[[WaitingRoom], Kind]
    ) -> Kind:
        """The one of that name, made if there is none, for which ``size`` bytes count then.

        Raises ``OutOfBudget``, or ``PSError`` if there are too many.
        """
        with self._lock:
            found = self._open.get((kind.kind, name))
            if found is None:
                if len(self._open) >= _MOST_OPEN:
                    raise PSError(
                        f"a session has at most {_MOST_OPEN} mailboxes and loops on a server; "
                        "close some"
                    )
                kept = self._memory.reserve(size + len(name), f"{kind.kind} {name!r}")
                found = self._open[kind.kind, name] = make(self._room), kept
            return found[0]  # type: ignore[return-value]

    def get(self, kind: type[Kind], name: str) -> Kind:
        """The one of that name; its ``closed_error`` if there is none."""
        found = self._open.get((kind.kind, name))
        if found is None:
            raise kind.closed_error(
                f"the server has no {kind.kind} {name!r}: it was closed, never opened, or lost "
                "with its server"
            )
        return found[0]  # type: ignore[return-value]

    def close(self, kind: type[Barrier], name: str) -> None:
        """End it. Idempotent."""
        with self._lock:
            found = self._open.pop((kind.kind, name), None)
        if found is not None:
            found[0].close()

    def close_all(self) -> None:
        """End all."""
        with self._lock:
            ended = list(self._open.values())
            self._open.clear()
        for one, _ in ended:
            one.close()

    def wake_all(self) -> None:
        """Let all who wait look around: the room was closed."""
        for one, _ in list(self._open.values()):
            one.wake()
