"""The files that a server wrote to their end, for one session."""

from __future__ import annotations

import threading
from collections.abc import Iterable

_MOST = 16
"""So many are remembered: a checkpoint has one, and two or three are there."""


class OwnFiles:
    """Which files nobody but this server ever wrote to, by store and name. Thread-safe.

    One of them may be written over, once: who takes it has it for itself.
    """

    def __init__(self) -> None:
        self._files: dict[tuple[str, str], None] = {}  # the oldest first
        self._lock = threading.Lock()

    def add(self, store: str, file: str) -> None:
        """It is written, and closed."""
        with self._lock:
            self._files[store, file] = None
            while len(self._files) > _MOST:
                del self._files[next(iter(self._files))]

    def take(self, store: str, files: Iterable[str]) -> str | None:
        """One of ``files`` that is of this server, from now on the caller's; None if none is."""
        with self._lock:
            for file in files:
                if (store, file) in self._files:
                    del self._files[store, file]
                    return file
        return None
