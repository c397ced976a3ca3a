"""What the driver knows of the workers of a loop: who lives, who is slow, where all are."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

from tqdm import tqdm

from distvec.spark.loops.reports import WorkerReport

Progress = bool | Callable[[Sequence[int]], object] | None
"""A bar or none, by default on a terminal only; or what is called with the clocks of all ranks."""

_LAPS = 50
_FEWEST_LAPS = 10
_SLOW_TIMES = 3.0
_SLOW_SECONDS = 0.05
"""A clock that takes so little longer than those of the others slows nobody down noticeably."""


@dataclass(slots=True)
class _Seen:
    heard: float
    attempt: int = 0
    now: int = 0
    joined: bool = False
    done: bool = False
    given_up: bool = False
    warned: bool = False
    laps: deque[float] = field(default_factory=lambda: deque(maxlen=_LAPS))


class View:
    """The ranks of a loop, as their reports tell. All times come from the caller, in seconds."""

    def __init__(self, size: int) -> None:
        self._ranks = [_Seen(0.0) for _ in range(size)]
        self._began: float | None = None

    def note(self, report: WorkerReport, now: float) -> None:
        """A report came."""
        if self._began is None:
            self._began = now
            for rank in self._ranks:
                rank.heard = now
        seen = self._ranks[report.rank]
        if report.attempt < seen.attempt:
            return
        seen.attempt, seen.now, seen.heard = report.attempt, report.now, now
        seen.joined, seen.done, seen.given_up = True, report.done, False
        seen.laps.extend(report.seconds)

    @property
    def clocks(self) -> list[int]:
        """How many clocks each rank has ended."""
        return [seen.now for seen in self._ranks]

    @property
    def missing(self) -> int:
        """How many ranks were never heard of."""
        return sum(not seen.joined for seen in self._ranks)

    @property
    def has_given_up(self) -> bool:
        """Is there one that nobody waits for, and that may come back?"""
        return any(seen.given_up for seen in self._ranks)

    def silent(self, now: float, patience: float) -> list[tuple[int, int]]:
        """(rank, attempt) of those not heard of for longer than ``patience``, each once."""
        if self._began is None:
            return []
        found = []
        for rank, seen in enumerate(self._ranks):
            if not (seen.done or seen.given_up) and now - seen.heard > patience:
                seen.given_up = True
                found.append((rank, seen.attempt))
        return found

    def slow(self) -> list[tuple[int, float, float]]:
        """(rank, its seconds a clock, those of the others) of ranks that are slow, each once."""
        typical = {
            rank: median(seen.laps)
            for rank, seen in enumerate(self._ranks)
            if len(seen.laps) >= _FEWEST_LAPS
        }
        found = []
        for rank, mine in typical.items():
            others = [seconds for other, seconds in typical.items() if other != rank]
            if not others or self._ranks[rank].warned:
                continue
            usual = median(others)
            if mine > _SLOW_TIMES * usual and mine - usual > _SLOW_SECONDS:
                self._ranks[rank].warned = True
                found.append((rank, mine, usual))
        return found


@dataclass(frozen=True)
class Screen:
    """Shows the clocks, and prints lines that go with that."""

    show: Callable[[View], object]
    print_line: Callable[[str], object]


@contextmanager
def screen(progress: Progress) -> Iterator[Screen]:
    """Where the driver shows how a loop goes on."""
    if callable(progress):
        told: list[Sequence[int]] = [()]

        def tell(view: View) -> None:
            if view.clocks != told[0]:
                told[0] = view.clocks
                progress(view.clocks)

        yield Screen(tell, _print)
    elif progress or (progress is None and sys.stderr.isatty()):
        with tqdm(unit="clock", file=sys.stderr) as bar:

            def draw(view: View) -> None:
                clocks = view.clocks
                slowest = min(range(len(clocks)), key=clocks.__getitem__)
                bar.set_postfix_str(
                    f"of {len(clocks)} ranks, {slowest} is at {clocks[slowest]}, the first at "
                    f"{max(clocks)}",
                    refresh=False,
                )
                bar.update(clocks[slowest] - bar.n)

            yield Screen(draw, lambda line: bar.write(line, file=sys.stdout))
    else:
        yield Screen(lambda view: None, _print)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
