"""Who computes: programs take turns, so that a long one keeps no other session's out.

A kernel may use all the threads that a server has, so one program computes at a time. It asks
between pieces of its work whether others wait, and then goes to the end of the line. Sessions are
served in turn, however many programs each of them has in the line.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Self

TURN_SECONDS = 0.01
"""A program may go on for so long, and to the end of the piece that it is at: some 50 ms."""


class FairLock:
    """The turns of all programs of a server. Thread-safe."""

    def __init__(self) -> None:
        self.stopped = False
        """Whether all programs are to end as soon as they look up, and those to come."""
        self.waits = 0
        """How often a program waited for its turn."""
        self.wait_seconds = 0.0
        """For how long, in all."""
        self._busy = False
        self._line: dict[object, deque[threading.Lock]] = {}  # by session, the next one first
        self._lock = threading.Lock()

    def taken(self, who: object, look: Callable[[], None]) -> _Turn:
        """For a ``with`` statement: a turn of session ``who``, kept but for the pauses in it.

        ``look`` is called at the start and at pauses. It may raise to end the program.
        """
        return _Turn(self, who, look)

    @property
    def wanted(self) -> bool:
        """Does anybody wait for a turn?"""
        return bool(self._line)

    @property
    def queued(self) -> int:
        """How many programs wait for a turn."""
        with self._lock:
            return sum(map(len, self._line.values()))

    def take(self, who: object) -> None:
        """Wait until it is the turn of ``who``."""
        with self._lock:
            if not self._busy:
                self._busy = True
                return
            gate = threading.Lock()
            gate.acquire()
            self._line.setdefault(who, deque()).append(gate)
        began = time.monotonic()
        gate.acquire()  # whoever opens it hands the turn over
        with self._lock:
            self.waits += 1
            self.wait_seconds += time.monotonic() - began

    def give(self) -> None:
        """Hand the turn over."""
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


class _Turn:
    """One program's turn. (A class, as it costs half of what a generator does.)"""

    __slots__ = ("_held", "_look", "_since", "_turns", "_who")

    def __init__(self, turns: FairLock, who: object, look: Callable[[], None]) -> None:
        self._turns, self._who, self._look = turns, who, look

    def __enter__(self) -> Self:
        self._turns.take(self._who)
        self._held, self._since = True, time.monotonic()
        try:
            self._look()
        except BaseException:
            self._turns.give()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._held:
            self._turns.give()

    def pause(self) -> None:
        """Look up, and let others go first, if the turn was long enough."""
        if time.monotonic() < self._since + TURN_SECONDS:
            return
        self._look()
        if self._turns.wanted:
            self._turns.give()
            self._held = False
            self._turns.take(self._who)
            self._held = True
        self._since = time.monotonic()
