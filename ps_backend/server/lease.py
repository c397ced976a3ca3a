"""How long a session lives without a word from its clients."""

from __future__ import annotations

import threading
from typing import Self


class Lease:
    """The time that a session has left; as a context, a request at work. Thread-safe.

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

    def __enter__(self) -> Self:
        """It does not run while a request of the session does, and is renewed by it."""
        with self._lock:
            self._at_work += 1
            self.idle = 0.0
        return self

    def __exit__(self, *_: object) -> None:
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
