"""All keyed spaces of one session on one server."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from ps_backend.server.state.files import Pins
from ps_backend.server.state.keyed.held import HeldSpace
from ps_backend.server.state.keyed.space import KeyedSpace
from ps_backend.server.state.store import Store


class KeyedSpaces:
    """Keyed spaces by number. Thread-safe."""

    def __init__(self, store: Store) -> None:
        """``store``: of the session, which knows what was lost with a server before this one."""
        self._store = store
        self.by_number: dict[int, KeyedSpace] = {}
        """Those that are here."""
        self.pins: Pins[HeldSpace] = Pins()
        """Copies of spaces, by the names under which they are kept."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.by_number)

    def get(self, number: int) -> KeyedSpace:
        """Space ``number``; ``BufferLost`` if it is not there."""
        found = self.by_number.get(number)
        if found is None:
            raise self._store.lost(number, "keyed space")
        return found

    def add(self, number: int, space: KeyedSpace) -> None:
        """Add ``space``, unless there is one of that number."""
        with self._lock:
            self.by_number.setdefault(number, space)

    def free(self, numbers: Iterable[int]) -> None:
        """Drop spaces, arrays and views with these numbers, where they are."""
        wanted = list(numbers)
        with self._lock:
            for number in wanted:
                self.by_number.pop(number, None)
            spaces = list(self.by_number.values())
        for space in spaces:
            space.free(wanted)

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self.by_number.clear()
        self.pins.clear()
