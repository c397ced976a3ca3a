"""What workers of a loop tell the driver, and what it knows of them: who lives, who is slow.

A worker keeps one connection to the driver and reports twice a second,
at once where something was printed. Nothing of the loop depends on it but the driver's view.
"""

from __future__ import annotations

import io
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from queue import SimpleQueue
from statistics import median
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from distvec.spark.cluster.registry import serve_messages
from ps_backend.client import MessageClient
from ps_backend.errors import PSError

if TYPE_CHECKING:
    from ps_backend.processes.certificates import Authority

_REPORT_SECONDS = 0.5
_SILENCE_SECONDS = 60.0
ANSWER_SECONDS = 5.0
"""The driver has so long to answer a report."""

_CLOSE_SECONDS = 10.0

_MOST_CHARACTERS = 4000
"""Printed characters in a report: JSON makes up to twelve bytes of each."""

_MOST_LINES = 20_000
"""Lines that a worker keeps for a driver that does not listen."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What a worker says: it is in clock ``now``, and its last clocks took so many ``seconds``."""

    rank: int
    attempt: int
    now: int
    seconds: Sequence[float] = ()
    lines: Sequence[str] = ()
    done: bool = False
    failure: str = ""
    """What ended it, if it raised: ``Failure.as_text``."""


class Listener:
    """The driver's side: collects the reports of all workers in ``reports``."""

    def __init__(self, host: str, bind: str, key: str, authority: Authority | None) -> None:
        """Listen, as ``serve_messages``."""
        self.reports: SimpleQueue[WorkerReport] = SimpleQueue()
        self.tls = None if authority is None else authority.tls
        """How workers know it."""
        self._server = serve_messages(
            lambda: nullcontext(self._take), host, bind, key, authority, silence=_SILENCE_SECONDS
        )
        self.address = self._server.address

    def close(self) -> None:
        """Take no more reports. Idempotent."""
        self._server.close()

    def _take(self, report: dict[str, Any]) -> dict[str, Any]:
        self.reports.put(WorkerReport(**report))
        return {}


class Reporter:
    """The worker's side: reports in a thread of its own, until ``close``.

    Where the driver cannot be reached it tries again; the worker does not notice.
    """

    def __init__(
        self,
        connect: Callable[[], MessageClient],
        tell: Callable[[Sequence[str]], WorkerReport],
    ) -> None:
        """``connect`` to the driver; ``tell`` makes a report, with these lines."""
        self._connect, self._tell = connect, tell
        self._waiting: deque[str] = deque(maxlen=_MOST_LINES)
        self._unsent: WorkerReport | None = None
        self._wake, self._closing = threading.Event(), threading.Event()
        self._connection: MessageClient | None = None
        self._thread = threading.Thread(target=self._run, name="distvec-reporter", daemon=True)
        self._thread.start()

    def print_line(self, line: str) -> None:
        """Let the driver print a line; a long one in pieces."""
        pieces = range(0, len(line) or 1, _MOST_CHARACTERS)
        self._waiting.extend(line[k : k + _MOST_CHARACTERS] for k in pieces)
        self._wake.set()

    def close(self) -> None:
        """Report what is left, for some seconds at most, and end."""
        self._closing.set()
        self._wake.set()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._closing.is_set():
            if not self._report():
                self._closing.wait(_REPORT_SECONDS)
            elif not self._waiting:
                self._wake.wait(_REPORT_SECONDS)
                self._wake.clear()
        if self._unsent is None or self._report():
            while self._report() and self._waiting:
                pass
        if self._connection is not None:
            self._connection.close()

    def _report(self) -> bool:
        """Send one report; one that could not be sent is the next one to be."""
        if self._unsent is None:
            self._unsent = self._tell(self._some_lines())
        try:
            if self._connection is None:
                self._connection = self._connect()
            self._connection.ask(asdict(self._unsent), ANSWER_SECONDS)
        except (OSError, PSError):
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            return False
        self._unsent = None
        return True

    def _some_lines(self) -> list[str]:
        lines: list[str] = []
        room = _MOST_CHARACTERS
        while self._waiting and len(self._waiting[0]) < room:
            lines.append(self._waiting.popleft())
            room -= len(lines[-1]) + 1
        if not lines and self._waiting:
            lines.append(self._waiting.popleft())
        return lines


class LineWriter(io.TextIOBase):
    """A text stream that hands over each line as soon as it is complete. Thread-safe.

    Of what a carriage return overwrites, as progress bars do, only the last is handed over.
    """

    def __init__(self, print_line: Callable[[str], None]) -> None:
        self._print_line = print_line
        self._begun = ""
        self._lock = threading.Lock()

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, text: str) -> int:
        """Take ``text``; what follows its last newline waits for the rest of the line."""
        with self._lock:
            *lines, begun = (self._begun + text).split("\n")
            if len(begun) > _MOST_CHARACTERS:
                begun = _visible(begun)
            cut = max(0, len(begun) - 1) // _MOST_CHARACTERS * _MOST_CHARACTERS
            if cut:
                lines.append(begun[:cut])
            self._begun = begun[cut:]
            for line in lines:
                self._print_line(_visible(line))
        return len(text)

    def close(self) -> None:
        """Hand over a line without an end."""
        if self._begun:
            self.write("\n")
        super().close()


def _visible(line: str) -> str:
    """What a terminal shows of ``line``, about."""
    return line.rstrip("\r").rpartition("\r")[2]


Progress = bool | Callable[[Sequence[int]], object] | None
"""A bar or none, by default on a terminal only; or what is called with the clocks of all ranks."""

_LAPS = 50
_FEWEST_LAPS = 10
_SLOW_TIMES = 3.0
_SLOW_SECONDS = 0.05
"""A clock that takes so little longer than those of the others slows nobody down noticeably."""


@dataclass(slots=True)
class _RankState:
    heard: float
    attempt: int = 0
    now: int = 0
    joined: bool = False
    done: bool = False
    given_up: bool = False
    warned: bool = False
    laps: deque[float] = field(default_factory=lambda: deque(maxlen=_LAPS))


class WorkerProgress:
    """The ranks of a loop, as their reports tell. All times come from the caller, in seconds."""

    def __init__(self, size: int) -> None:
        self._ranks = [_RankState(0.0) for _ in range(size)]
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

    show: Callable[[WorkerProgress], object]
    print_line: Callable[[str], object]


@contextmanager
def screen(progress: Progress) -> Iterator[Screen]:
    """Where the driver shows how a loop goes on."""
    if callable(progress):
        told: list[Sequence[int]] = [()]

        def tell(view: WorkerProgress) -> None:
            if view.clocks != told[0]:
                told[0] = view.clocks
                progress(view.clocks)

        yield Screen(tell, _print)
    elif progress or (progress is None and sys.stderr.isatty()):
        with tqdm(unit="clock", file=sys.stderr) as bar:

            def draw(view: WorkerProgress) -> None:
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
