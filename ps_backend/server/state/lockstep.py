"""What ticks of a loop (``clocks.py``) add to arrays, and the way back by one clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ps_backend.errors import BufferLost
from ps_backend.server.state.memory import MemoryBlock
from ps_backend.server.state.rounds import Contribution
from ps_backend.server.state.store import SharedArray

Rows = npt.NDArray[np.int64] | None
"""Local indices, or None for all."""


@dataclass(frozen=True, slots=True)
class Push:
    """What a tick adds to an array; ``before`` is room for the values that it changes."""

    target: SharedArray
    contribution: Contribution
    before: MemoryBlock | None = None

    def apply(self) -> None:
        """Add, and keep the values of before if there is room for them."""
        if self.before is not None:
            rows = self.contribution.indices
            self._kept[...] = self.target.array if rows is None else self.target.array[rows]
        self.target.add(self.contribution)

    def undo_in(self, wanted: Rows, found: np.ndarray) -> None:
        """Put the values of before into ``found``, the elements at ``wanted``."""
        rows = self.contribution.indices
        if rows is None:
            found[...] = self._kept if wanted is None else self._kept[wanted]
        elif wanted is None:
            found[rows] = self._kept
        elif len(rows):
            order = np.argsort(rows)
            place = order[np.searchsorted(rows, wanted, sorter=order).clip(max=len(rows) - 1)]
            changed = rows[place] == wanted
            found[changed] = self._kept[place[changed]]

    @property
    def _kept(self) -> np.ndarray:
        if self.before is None:
            raise ValueError("a push of a loop without undo")
        return self.before.array(self.target.array.dtype, self.contribution.values.shape)


class Lockstep:
    """What ranks add that go in lockstep: kept until all have ended a clock. Not thread-safe."""

    def __init__(self) -> None:
        self.version = 0
        """How many clocks are added."""
        self._waiting: dict[int, dict[int, Sequence[Push]]] = {}  # by clock, by rank
        self._last: list[Push] = []

    def take(self, rank: int, clock: int, pushes: Sequence[Push]) -> None:
        """Keep what a rank adds in ``clock``; what comes too late is added at once."""
        if clock < self.version:
            apply(pushes)
        elif pushes:  # of clocks without any, nothing is kept
            self._waiting.setdefault(clock, {})[rank] = pushes

    def go_on(self, least: int | None) -> None:
        """Add all clocks that the slowest rank has ended; all there are if there is none."""
        past = max(self._waiting, default=-1) + 1 if least is None else least
        if self.version >= past:
            return
        due = sorted(clock for clock in self._waiting if clock < past)  # a rank may skip many
        for clock in due:
            step = self._waiting.pop(clock)
            self._last = _apply_due(one for rank in sorted(step) for one in step[rank])
        if past - 1 not in due:
            self._last = []
        self.version = past

    def rewind(self, clock: int, target: SharedArray, wanted: Rows, found: np.ndarray) -> int:
        """Put the values for ``clock`` into ``found``, the elements of ``target`` at ``wanted``.

        A rank repeats a clock where its last attempt was lost between two servers: this one has its
        tick, and was the last that the others waited for. Returns the version of the values.
        """
        if self.version != clock + 1 or not self._last:
            return self.version
        for push in reversed(self._last):
            if push.target is target:
                push.undo_in(wanted, found)
        return clock

    def clear(self) -> None:
        """Forget what waits, and what came last."""
        self._waiting.clear()
        self._last.clear()


def _apply_due(pushes: Iterable[Push]) -> list[Push]:
    """Add those whose arrays are not over: what was not due before the last snapshot is in none.

    Who ticked was answered long ago, and who ends the clock, or the loop, cannot help it.
    """
    done = []
    for push in pushes:
        with suppress(BufferLost):
            push.apply()
            done.append(push)
    return done


def apply(pushes: Iterable[Push]) -> None:
    """Add all, in order."""
    for push in pushes:
        push.apply()
