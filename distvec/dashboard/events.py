"""Events: lines of the log, and changes of servers, with advice."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from typing import Any

_MOST_EVENTS = 500
_LONGEST = 500
_LOGGERS = ("distvec", "optim", "ps_backend")


class Events(logging.Handler):
    """The last events. Between ``open`` and ``close`` it takes the log of this process."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._events: deque[dict[str, Any]] = deque(maxlen=_MOST_EVENTS)
        self._last = 0.0
        self._adding = threading.Lock()
        self.counts: Counter[str] = Counter()
        """By level."""

    def open(self) -> None:
        """Listen to the loggers of distvec."""
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self)

    def close(self) -> None:
        """Listen no more."""
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Add a line of the log."""
        self.add(record.levelname.lower(), record.name, record.getMessage())

    def add(self, level: str, source: str, text: str, advice: str = "") -> None:
        """Add an event now. ``advice``: a next step for the user."""
        with self._adding:
            # Later than all before, so that who asks for events after a time misses none.
            self._last = now = max(time.time(), self._last + 1e-6)
            self.counts[level] += 1
            self._events.append(
                {
                    "t": now,
                    "level": level,
                    "source": source,
                    "text": text[:_LONGEST],
                    "advice": advice,
                }
            )

    def since(self, time: float) -> list[dict[str, Any]]:
        """Those after a Unix time, oldest first."""
        return [one for one in list(self._events) if one["t"] > time]
