"""The clocks of loops: ranks that work at their own pace, and see each other's pushes in time.

A rank ends its clock 0, 1, 2 ... by a *tick*, which carries what it adds to arrays. A pull for
clock ``c`` waits until every rank has ended ``c - staleness`` clocks, so what it returns lacks no
older ticks. With a bound of 0 (BSP) what a clock adds is kept until all ranks have ended it, and
added in the order of the ranks: the bits do not depend on who came first. With a larger bound
(SSP), or none (ASP), it is added as it comes.

A tick counts once, however often it is sent. Ranks that left, or were excluded, hold up nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ps_backend.errors import AttemptFenced, BufferLost, LoopClosed
from ps_backend.server.state.barriers import Barrier, WaitingRoom
from ps_backend.server.state.memory import MemoryBlock
from ps_backend.server.state.store import Rows, SharedArray
from ps_backend.wire.protocol import TooEarly

Where = npt.NDArray[np.int64] | None
"""Local indices, or None for all."""


@dataclass(frozen=True, slots=True)
class Push:
    """What a tick adds to an array; ``before`` is room for the values that it changes."""

    target: SharedArray
    rows: Rows
    before: MemoryBlock | None = None

    def apply(self) -> None:
        """Add, and keep the values of before if there is room for them."""
        if self.before is not None:
            rows = self.rows.indices
            self._kept[...] = self.target.array if rows is None else self.target.array[rows]
        self.target.add(self.rows)

    def undo_in(self, wanted: Where, found: np.ndarray) -> None:
        """Put the values of before into ``found``, the elements at ``wanted``."""
        rows = self.rows.indices
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
            raise ValueError("a push in a loop needs its undo")
        return self.before.array(self.target.array.dtype, self.rows.values.shape)


class BspBuffer:
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

    def rewind(self, clock: int, target: SharedArray, wanted: Where, found: np.ndarray) -> int:
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


MOST_RANKS = 1 << 16
_RANK_BYTES = 128
_LOOP_BYTES = 4096


class Joined(NamedTuple):
    """Where a rank goes on; ``out``: it had left, or was excluded."""

    clock: int
    out: bool


@dataclass(slots=True)
class _Rank:
    clock: int = 0  # how many it has ended
    attempt: int = 0
    present: bool = True  # else it holds up nobody
    excluded: bool = False
    returned: int = 0  # the attempt with which it came back; asked again, it hears the same


class Clocks(Barrier):
    """Those of one loop on one server. Thread-safe."""

    kind = "loop"
    closed_error = LoopClosed

    def __init__(self, name: str, ranks: int, staleness: int | None, room: WaitingRoom) -> None:
        """All ``ranks`` at clock 0; ``staleness`` None: no bound."""
        super().__init__(name, room)
        self.staleness = staleness
        self._ranks = [_Rank() for _ in range(ranks)]
        self._bsp = BspBuffer() if staleness == 0 else None

    @staticmethod
    def bytes_of(ranks: int) -> int:
        """What the clocks of so many ranks take, about; ``ValueError`` if they are too many."""
        if not 1 <= ranks <= MOST_RANKS:
            raise ValueError(f"ranks must be between 1 and {MOST_RANKS}, got {ranks}")
        return _LOOP_BYTES + ranks * _RANK_BYTES

    @property
    def is_bsp(self) -> bool:
        """Do pushes wait until all ranks have ended the clock?"""
        return self._bsp is not None

    # --- for ranks --------------------------------------------------------------------------------

    def join(self, number: int, attempt: int, at: int | None = None) -> Joined:
        """Let ``attempt`` be the one that speaks for the rank, which goes on at the clock returned.

        One that was out goes on with the slowest of the others, or ``at`` a later clock. Raises
        ``AttemptFenced`` if a later attempt has joined.
        """
        with self._lock:
            rank = self._rank(number)
            if attempt < rank.attempt:
                raise self._fenced(number, attempt, rank)
            rank.attempt = attempt
            if not rank.present:
                rank.returned = attempt
                rank.clock = max(rank.clock, self._least or 0)
                rank.present, rank.excluded = True, False
            rank.clock = max(rank.clock, at or 0)
            self._go_on()
            return Joined(rank.clock, rank.returned == attempt)

    def tick(
        self,
        number: int,
        attempt: int,
        clock: int,
        pushes: Sequence[Push],
        *,
        leave: bool = False,
    ) -> None:
        """The rank ended ``clock``, and the loop if it is to ``leave``.

        A clock that it has ended before is not counted again. Raises ``AttemptFenced``.
        """
        with self._lock:
            rank = self._speaker(number, attempt)
            if rank.clock <= clock:
                rank.clock = clock + 1
                if self._bsp is None:
                    apply(pushes)
                else:
                    self._bsp.take(number, clock, pushes)
            if leave:
                rank.present = rank.excluded = False
            elif rank.excluded and rank.clock >= (self._least or 0):
                rank.present, rank.excluded = True, False  # it has caught up
            self._go_on()

    def pull(
        self,
        number: int,
        attempt: int,
        clock: int,
        seconds: float,
        array: SharedArray,
        wanted: Where,
        room_for: Callable[[], np.ndarray],
    ) -> tuple[np.ndarray, int]:
        """The elements of ``array`` at ``wanted``, for use in ``clock``, in the memory that
        ``room_for`` gives once it is time; and how many of the rank's own ticks they contain.

        Waits for the other ranks as the bound demands; ``TooEarly`` after so many seconds. Raises
        ``AttemptFenced``, ``Crowded``.
        """
        with self._lock:
            rank = self._speaker(number, attempt)
            self._wait(
                self._changed,
                lambda: rank.attempt != attempt or self._may_read(clock),
                seconds,
            )
            rank = self._speaker(number, attempt)
            if not self._may_read(clock):
                raise TooEarly(f"loop {self.name!r}: the other ranks are not near clock {clock}")
            found = room_for()
            if wanted is None:
                np.copyto(found, array.array)
            else:
                np.take(array.array, wanted, axis=0, out=found, mode="clip")
            if self._bsp is None:
                return found, rank.clock
            return found, min(rank.clock, self._bsp.rewind(clock, array, wanted, found))

    # --- for the owner ----------------------------------------------------------------------------

    def exclude(self, number: int, attempt: int) -> None:
        """Let nobody wait for the rank, unless another attempt has joined meanwhile."""
        with self._lock:
            rank = self._rank(number)
            if rank.attempt == attempt and rank.present:
                rank.present, rank.excluded = False, True
                self._go_on()

    @property
    def clocks(self) -> list[int]:
        """How many clocks each rank has ended."""
        with self._lock:
            return [rank.clock for rank in self._ranks]

    # --- inside, with the lock held ---------------------------------------------------------------

    def _clear(self) -> None:
        if self._bsp is not None:
            self._bsp.go_on(None)  # all that was ticked counts, whoever is still awaited
            self._bsp.clear()

    @property
    def _least(self) -> int | None:
        """The clock of the slowest rank that is present; None if there is none."""
        return min((rank.clock for rank in self._ranks if rank.present), default=None)

    def _may_read(self, clock: int) -> bool:
        least = self._least
        return self.staleness is None or least is None or least >= clock - self.staleness

    def _go_on(self) -> None:
        """A clock moved: add what is due, and let those who wait look around."""
        if self._bsp is not None:
            self._bsp.go_on(self._least)
        self._changed.notify_all()

    def _speaker(self, number: int, attempt: int) -> _Rank:
        rank = self._rank(number)
        if rank.attempt != attempt:
            raise self._fenced(number, attempt, rank)
        return rank

    def _rank(self, number: int) -> _Rank:
        self._refuse_closed()
        if not 0 <= number < len(self._ranks):
            raise ValueError(
                f"rank {number} is out of range: loop {self.name!r} has {len(self._ranks)} ranks"
            )
        return self._ranks[number]

    def _fenced(self, number: int, attempt: int, rank: _Rank) -> AttemptFenced:
        return AttemptFenced(
            f"attempt {attempt} of rank {number} of loop {self.name!r} is too late: attempt "
            f"{rank.attempt} has replaced it; end this attempt"
        )
