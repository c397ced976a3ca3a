"""Where all workers of a loop stand still for a moment, so that its arrays can be kept.

A loop of its own, in lockstep: its ranks are the workers, and behind them the driver. A worker that
has ended ``every`` more clocks ends two clocks of the gate at once, and waits for the others and
the driver. The driver ends the first of the two, waits for the workers, keeps what all servers have
then, the same clocks of all, and ends the second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ps_backend.client import Loop, SharedArray
from ps_backend.errors import LoopClosed, PSError

_ANY = np.zeros(1, np.int64)
_JOIN_SECONDS = 15.0
_PAUSE_SECONDS = 0.02
_DRIVER = 1
"""The driver's attempt: it has one."""


@dataclass(frozen=True)
class GateOrders:
    """What each worker is told of the gate of its loop."""

    name: str
    every: int
    target: SharedArray
    """Some array, not an empty one: who waits asks for an element."""


class Gate:
    """A worker's side. One thread works with it."""

    def __init__(self, loop: Loop, orders: GateOrders, rank: int, attempt: int) -> None:
        """Join, and wait where the worker that was there before did. Raises ``AttemptFenced``."""
        self._loop, self._rank, self._attempt = loop, rank, attempt
        self._every, self._target = orders.every, orders.target
        self._passed = loop.join(rank, attempt) // 2
        self._wait()

    def arrive(self, now: int) -> None:
        """The worker has ended ``now`` clocks, as all servers know; it waits if it is time."""
        while self._passed < now // self._every:
            self._loop.tick(self._rank, self._attempt, 2 * self._passed + 1, {})
            self._passed += 1
            self._wait()

    def leave(self) -> None:
        """The worker has left the loop: nobody waits for it any more."""
        self._loop.tick(self._rank, self._attempt, 2 * self._passed, {}, leave=True)

    def _wait(self) -> None:
        clock = 2 * self._passed
        self._loop.pull(self._rank, self._attempt, clock, self._target, _ANY)


class Keeping:
    """The driver's side: a thread that keeps the arrays whenever all workers stand still."""

    def __init__(
        self, loop: Loop, size: int, target: SharedArray, keep: Callable[[int], None]
    ) -> None:
        """Open the gate for ``size`` workers. ``keep`` is told how often they have come to it."""
        self._loop, self._size, self._target, self._keep = loop, size, target, keep
        self.failure: Exception | None = None
        """What ended it early: workers would wait for ever."""
        loop.open(size + 1, 0)
        loop.join(size, _DRIVER)
        self._thread = threading.Thread(target=self._run, name="distvec-gate", daemon=True)
        self._thread.start()

    def exclude(self, rank: int, attempt: int) -> None:
        """Let nobody wait for that worker."""
        with suppress(LoopClosed):
            self._loop.exclude(rank, attempt)

    def close(self) -> None:
        """End it; workers that wait get ``LoopClosed``. Idempotent."""
        with suppress(PSError):  # the servers are gone, and the gate with them
            self._loop.close()
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        try:
            self._work()
        except LoopClosed:
            return  # by the driver, or with its server, which the driver notices
        except Exception as error:  # noqa: BLE001 - raised where the driver waits
            self.failure = error

    def _work(self) -> None:
        times = 0
        while True:
            self._loop.tick(self._size, _DRIVER, 2 * times, {})
            self._loop.pull(self._size, _DRIVER, 2 * times + 1, self._target, _ANY)
            # Other servers hear of them a little later; or all have left, and the end is near.
            while max(self._loop.clocks()[: self._size]) < 2 * times + 2:
                time.sleep(_PAUSE_SECONDS)
            times += 1
            self._keep(times)
            self._loop.tick(self._size, _DRIVER, 2 * times - 1, {})
