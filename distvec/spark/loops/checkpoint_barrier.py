"""Where all workers of a loop stand still for a moment, so that its arrays can be kept.

A loop of its own, in lockstep: its ranks are the workers, and behind them the driver. A worker that
has ended ``every`` more clocks ends two clocks of the barrier at once, and waits for the others and
the driver. The driver ends the first of the two, waits for the workers, keeps what all servers have
then, the same clocks of all, and ends the second. A loop that loses a server goes on from the clock
at which its arrays were kept last.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from distvec import DistArray
from distvec.durability.policy import SessionKeeper, is_loss
from distvec.spark.rounds.shared import SharedCopies
from ps_backend.client import Loop, SharedArray
from ps_backend.errors import LoopClosed, NotDurable, PSError

_ANY = np.zeros(1, np.int64)
_JOIN_SECONDS = 15.0
_PAUSE_SECONDS = 0.02
_DRIVER = 1
"""The driver's attempt: it has one."""


@dataclass(frozen=True)
class BarrierSpec:
    """What each worker is told of the barrier of its loop."""

    name: str
    every: int
    target: SharedArray
    """Some array, not an empty one: who waits asks for an element."""


class WorkerBarrier:
    """A worker's side. One thread works with it."""

    def __init__(self, loop: Loop, orders: BarrierSpec, rank: int, attempt: int) -> None:
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


class CheckpointBarrier:
    """The driver's side: a thread that keeps the arrays whenever all workers stand still."""

    def __init__(
        self, loop: Loop, size: int, target: SharedArray, keep: Callable[[int], None]
    ) -> None:
        """Open it for ``size`` workers. ``keep`` is told how often they have come to it."""
        self._loop, self._size, self._target, self._keep = loop, size, target, keep
        self.failure: Exception | None = None
        """What ended it early: workers would wait for ever."""
        loop.open(size + 1, 0)
        loop.join(size, _DRIVER)
        self._thread = threading.Thread(target=self._run, name="distvec-barrier", daemon=True)
        self._thread.start()

    def exclude(self, rank: int, attempt: int) -> None:
        """Let nobody wait for that worker."""
        with suppress(LoopClosed):
            self._loop.exclude(rank, attempt)

    def close(self) -> None:
        """End it; workers that wait get ``LoopClosed``. Idempotent."""
        with suppress(PSError):  # the servers are gone, and the barrier with them
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


T = TypeVar("T")

_LOSSES = 5
"""So many in a row, without a clock kept in between, are too many."""


@dataclass
class LoopCheckpoints:
    """The arrays of one loop, as its checkpoints have them."""

    keeper: SessionKeeper
    name: str
    arrays: Sequence[DistArray]
    """As they were at ``clock``."""
    clock: int = 0
    _begun: bool = field(default=False, init=False)
    _losses: int = field(default=0, init=False)

    def begin(self) -> None:
        """Keep them as they are at the start, unless they are kept already."""
        if not self._begun:
            self.save(self.clock, self.arrays, wait=True)
            self._begun = True

    def save(self, clock: int, arrays: Sequence[DistArray], *, wait: bool = False) -> None:
        """Begin to keep them as they are at ``clock``."""
        named = {str(k): array for k, array in enumerate(arrays)}
        self.keeper.save(clock, named, {"loop": self.name, "clock": clock}, wait=wait)

    def end(self, clock: int, arrays: Sequence[DistArray]) -> None:
        """Keep what the loop has made; a warning ``NotDurable`` where the store fails."""
        try:
            self.save(clock, arrays, wait=True)
        except (OSError, PSError) as error:
            if is_loss(error):
                raise
            warnings.warn(
                f"the end of the loop could not be stored: {error}", NotDurable, stacklevel=4
            )

    def recovers(self, error: Exception) -> bool:
        """Whether the loop can go on from ``clock``, at which ``arrays`` are again."""
        while self._losses < _LOSSES and self.keeper.recovers(error):
            self._losses += 1
            try:
                return self._load()
            except Exception as another:  # noqa: BLE001 - maybe the loss of another server
                error = another
        return False

    def _load(self) -> bool:
        found = self.keeper.load()
        if not self._begun:
            return True  # what an older checkpoint has was lost, and is there again
        if found is None or found[2].get("loop") != self.name:
            return False
        _, arrays, document = found
        if document["clock"] > self.clock:
            self.clock, self._losses = int(document["clock"]), 0
        self.arrays = [arrays[str(k)] for k in range(len(self.arrays))]
        return True


def run_with_rollback(
    kept: LoopCheckpoints, attempt: Callable[[], tuple[T, int, Sequence[DistArray]]]
) -> tuple[T, Sequence[DistArray]]:
    """What ``attempt`` returns, tried again from what was ``kept`` after each loss.

    That is its result, and the clock and the arrays at its end, which are kept as well.
    """
    try:
        while True:
            try:
                kept.begin()
                result, clock, arrays = attempt()
                kept.end(clock, arrays)
                return result, arrays
            except Exception as error:
                if not kept.recovers(error):
                    raise
    finally:
        kept.keeper.close()


def checkpoint_writer(
    kept: LoopCheckpoints, copies: SharedCopies, every: int
) -> Callable[[int], None]:
    """What keeps ``copies`` when all workers stand at the barrier."""
    began, session = kept.clock, copies.session

    def keep(times: int) -> None:
        if not kept.keeper.is_writing:
            arrays = [DistArray(session, node) for node in copies.snapshot()]
            kept.save(began + times * every, arrays)

    return keep
