"""Who computes: programs take turns, so that a long one keeps no other session's out.

A kernel may use all the threads that a server has, so one program computes at a time. It asks
between pieces of its work whether others wait, and then goes to the end of the line. Sessions are
served in turn, however many programs each of them has in the line.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TURN_SECONDS = 0.01
"""A program may go on for so long, and to the end of the piece that it is at: some 50 ms."""

Pause = Callable[[], None]
"""What a kernel calls between two pieces of its work. It may raise; then nobody needs the rest."""


def no_pause() -> None:
    """For a kernel that may run to its end."""


class Turns:
    """The turns of all programs of a server. Thread-safe."""

    def __init__(self) -> None:
        self._busy = False
        self._line: dict[object, deque[threading.Lock]] = {}  # by session, the next one first
        self._lock = threading.Lock()

    @contextmanager
    def taken(self, who: object, look: Callable[[], None]) -> Iterator[Pause]:
        """Wait for a turn of session ``who``, and keep it but for the pauses that are made.

        ``look`` is called at the start and at pauses. It may raise to end the program.
        """
        self._take(who)
        since = time.monotonic()
        held = True

        def pause() -> None:
            nonlocal since, held
            if time.monotonic() < since + TURN_SECONDS:
                return
            look()
            if self._line:
                self._give()
                held = False
                self._take(who)
                held = True
            since = time.monotonic()

        try:
            look()
            yield pause
        finally:
            if held:
                self._give()

    def _take(self, who: object) -> None:
        with self._lock:
            if not self._busy:
                self._busy = True
                return
            gate = threading.Lock()
            gate.acquire()
            self._line.setdefault(who, deque()).append(gate)
        gate.acquire()  # whoever opens it hands the turn over

    def _give(self) -> None:
        with self._lock:
            who = next(iter(self._line), None)
            if who is None:
                self._busy = False
                return
            waiting = self._line.pop(who)
            gate = waiting.popleft()
            if waiting:
                self._line[who] = waiting  # behind the other sessions
        gate.release()
