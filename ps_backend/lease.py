"""How long a session lives without a word from its clients."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LEASE_SECONDS = 600.0
"""Of a session, unless its client or its server says otherwise."""

SHORTEST_SECONDS, LONGEST_SECONDS = 0.1, 7 * 86_400.0

_RENEWALS = 4
"""In the time of a lease, by an idle client that opened the session."""


def check_lease(seconds: float, what: str = "lease") -> float:
    """``seconds`` as a float; ``ValueError`` if it is no time that a lease may have."""
    if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:  # nor NaN
        raise ValueError(
            f"{what} must be between {SHORTEST_SECONDS:g} and {LONGEST_SECONDS:g} seconds, got "
            f"{seconds!r}"
        )
    return float(seconds)


class Lease:
    """The time that a session has left. Thread-safe.

    It runs while the server does, by steps that the server counts: neither a clock that is set, nor
    a machine that sleeps, nor a server that was stopped for a while uses any of it up.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.idle = 0.0
        """Seconds since the end of the last request."""
        self.age = 0.0
        self._at_work = 0
        self._lock = threading.Lock()

    @property
    def left(self) -> float:
        """Seconds until it is over."""
        return max(0.0, self.seconds - self.idle)

    @contextmanager
    def held(self) -> Iterator[None]:
        """It does not run while a request of the session does, and is renewed by it."""
        with self._lock:
            self._at_work += 1
            self.idle = 0.0
        try:
            yield
        finally:
            with self._lock:
                self._at_work -= 1
                self.idle = 0.0

    def run_down(self, seconds: float) -> bool:
        """So much time has passed; whether the lease is over."""
        with self._lock:
            self.age += seconds
            if not self._at_work:
                self.idle += seconds
            return self.idle > self.seconds


def renew_in_background(
    lease: float, owner: object, renew: Callable[[], None], ended: threading.Event
) -> None:
    """Call ``renew`` a few times in each ``lease``, until ``ended`` or nobody holds ``owner``.

    ``renew`` must not hold the owner, either. The thread sleeps in between; a fork has none.
    """
    alive = weakref.ref(owner, lambda _: ended.set())

    def run() -> None:
        while not ended.wait(lease / _RENEWALS):
            if alive() is not None:
                renew()

    threading.Thread(target=run, name="distvec-lease", daemon=True).start()
