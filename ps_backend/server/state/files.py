"""Buffers that stay as they are while they are copied to files, and files that were completed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from ps_backend.errors import PSError

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


_MOST_PINS = 64
_PATIENCE_SECONDS = 60.0
"""A program that lacks the memory of pinned buffers waits so long for them to be written."""

Kept = TypeVar("Kept")


class Pins(Generic[Kept]):
    """The buffers of one session that are kept, by the name of who wants them. Thread-safe.

    A pinned buffer may be freed, and its memory stays; it is never a donor.
    """

    def __init__(self) -> None:
        self._pins: dict[str, Mapping[int, Kept]] = {}
        self._counts: Counter[int] = Counter()
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._pins)

    def __contains__(self, number: int) -> bool:
        return number in self._counts

    def keep(self, name: str, buffers: Mapping[int, Kept]) -> Mapping[int, Kept]:
        """Keep ``buffers`` under ``name``; what is kept under it already stays that.

        Raises ``PSError`` if too many others are kept.
        """
        with self._changed:
            if name not in self._pins:
                if len(self._pins) >= _MOST_PINS:
                    raise PSError(
                        f"a session pins its buffers under at most {_MOST_PINS} names; unpin some"
                    )
                self._pins[name] = dict(buffers)
                self._counts.update(buffers.keys())
            return self._pins[name]

    def get(self, name: str) -> Mapping[int, Kept] | None:
        """What is kept under ``name``."""
        return self._pins.get(name)

    def drop(self, name: str) -> None:
        """Keep them no longer; no name is no error, as a message may come twice."""
        with self._changed:
            self._drop(name)

    def drop_all(self, start: str) -> None:
        """As ``drop``, of all names that start so."""
        with self._changed:
            for name in [one for one in self._pins if one.startswith(start)]:
                self._drop(name)

    def _drop(self, name: str) -> None:
        for number in self._pins.pop(name, ()):
            self._counts[number] -= 1
            if not self._counts[number]:
                del self._counts[number]
        self._changed.notify_all()

    def clear(self) -> None:
        """Keep nothing."""
        with self._changed:
            self._pins.clear()
            self._counts.clear()
            self._changed.notify_all()

    def wait(self) -> bool:
        """Wait until something is let go; False if nothing is kept, or for too long."""
        with self._changed:
            names = set(self._pins)
            if not names:
                return False
            return self._changed.wait_for(lambda: not names <= self._pins.keys(), _PATIENCE_SECONDS)
