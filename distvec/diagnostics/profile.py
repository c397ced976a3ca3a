"""What each line of a program costs: messages, sweeps, bytes, and where the seconds go."""

from __future__ import annotations

import json
import linecache
import math
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import numpy as np
import numpy.typing as npt

from distvec.planner import Reason, Template

if TYPE_CHECKING:
    from ps_backend.client import Counters

_PACKAGE = str(Path(__file__).parents[1])
_PACKAGES = (f"{_PACKAGE}{os.sep}", f"{Path(_PACKAGE).parent / 'optim'}{os.sep}")


def call_site() -> str:
    """``file:line`` of the innermost caller outside this package and ``optim``.

    Helpers of other libraries that only pass a call on are skipped where they set the local
    variable ``__tracebackhide__``, as pytest's convention has it.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        own = code.co_filename.startswith(_PACKAGES)
        if not own and "__tracebackhide__" not in frame.f_locals:
            return f"{code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "an unknown line"


def is_from_outside() -> bool:
    """Return whether the caller's own caller is outside this package, such as a user's code."""
    return not sys._getframe(2).f_code.co_filename.startswith(_PACKAGE)


_LONGEST_SITE = 44
_UNITS = ("B", "kB", "MB", "GB", "TB")
_HEADINGS = "calls messages sweeps memory network client wire servers".split()

_active: ContextVar[Profile | None] = ContextVar("distvec.diagnostics.profile", default=None)


@dataclass
class Cost:
    """The cost of one call site.

    A request is charged to the line that waits for its reply; after ``flush()`` that is a later
    line.

    Attributes
    ----------
    calls, messages, sweeps : int
        Calls of the library, requests to the busiest server, and passes over memory.
    memory : int
        Bytes that passes read and wrote on all servers.
    network : int
        Bytes of requests and replies.
    client : float
        Seconds in which the client planned and computed.
    server : float
        Seconds in which the slowest server worked.
    wire : float
        The other seconds of waiting for replies.
    """

    calls: int = 0
    messages: int = 0
    sweeps: int = 0
    memory: int = 0
    network: int = 0
    client: float = 0.0
    wire: float = 0.0
    server: float = 0.0

    def add(self, other: Cost) -> None:
        """Add another cost to this one."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def cells(self) -> list[str]:
        """Return the numbers as strings."""
        counts = [f"{count:,}" for count in (self.calls, self.messages, self.sweeps)]
        sizes = [bytes_text(size) for size in (self.memory, self.network)]
        return counts + sizes + [_seconds(s) for s in (self.client, self.wire, self.server)]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a timeline. Seconds of ``time.perf_counter``."""

    site: str
    thread: int
    began: float
    seconds: float
    waited: float
    """For replies."""
    cost: Cost
    messages: tuple[int, ...]
    """To each server."""
    working: tuple[float, ...]
    """Seconds that each server worked."""


class Tracer(Protocol):
    """OpenTelemetry's tracers have this method."""

    def start_span(self, name: str, *, attributes: Mapping[str, float], start_time: int) -> Any:
        """Begin a span at so many nanoseconds of Unix time, below the current one."""


@dataclass
class Profile:
    """The costs by call site (``file:line``), and the plans that ran, in order."""

    sites: dict[str, Cost] = field(default_factory=dict)
    plans: list[Template] = field(default_factory=list)
    reasons: dict[str, Counter[Reason]] = field(default_factory=dict)
    """By call site, why its programs were requests of their own, and how many were for it."""
    pending: Counter[Reason] = field(default_factory=Counter)
    """Those of the call that is being measured."""
    measuring: bool = False
    """Whether a call is being measured right now; calls within it are part of it."""
    timeline: list[Call] | None = None
    """The calls in the order of their ends, with ``profile(timeline=True)``."""
    keeps_plans: bool = True
    """Whether ``plans`` has all of them, not only those of the call that is being measured."""
    tracer: Tracer | None = None
    """Is given each call as a span."""

    @property
    def total(self) -> Cost:
        """The sum over all call sites."""
        total = Cost()
        for cost in self.sites.values():
            total.add(cost)
        return total

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline to a file for Perfetto (https://ui.perfetto.dev) or chrome://tracing.

        Parameters
        ----------
        path : str or path-like
            The JSON file.

        Raises
        ------
        ValueError
            If the profile was made without ``timeline=True``.

        Notes
        -----
        The driver has a track for each thread, with a slice for each call. Each server has a track
        with a slice for its work in that call. A reply tells how long the server worked, but not
        when: the slice is in the middle of the time that the client waited.
        """
        if self.timeline is None:
            raise ValueError("there is no timeline; measure with dv.profile(timeline=True)")
        events = trace_events(self.timeline)
        Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))

    def __str__(self) -> str:
        rows = [
            [readable_site(site), *cost.cells()]
            for site, cost in sorted(self.sites.items(), key=lambda item: -_duration(item[1]))
        ]
        table = [["call site", *_HEADINGS], *rows, ["total", *self.total.cells()]]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join((row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])))
            for row in table
        ]
        return "\n".join([*lines, *self._reasons()])

    def _reasons(self) -> Iterator[str]:
        """A line for each call site with several requests and each reason of these."""
        for site, counts in self.reasons.items():
            if counts.total() > 1:
                yield f"{readable_site(site).rstrip(':')}: {counts.total():,} programs"
                for reason, count in counts.most_common():
                    advice = f" ({reason.advice})" if reason.advice else ""
                    yield f"  {count:,}: {reason.text}{advice}"


@contextmanager
def profile(
    *,
    show: bool = True,
    file: TextIO | None = None,
    timeline: bool = False,
    tracer: Tracer | None = None,
) -> Iterator[Profile]:
    """Measure the cost of each line that uses a session, and print it as a table.

    Parameters
    ----------
    show : bool, default True
        Whether to print the table at the end of the context.
    file : text file, optional
        File to print to. Default: standard output.
    timeline : bool, default False
        Whether to keep when each call began and ended, for ``save``.
    tracer : opentelemetry.trace.Tracer, optional
        Receives a span for each call, below the current span.

    Yields
    ------
    Profile
        The costs by call site in ``sites``, their sum in ``total``, and the ``plans`` that ran.

    Notes
    -----
    It covers all sessions, in the thread or task that entered the context.

    Examples
    --------
    >>> x = ps.array([1.0, 2.0, 3.0])
    >>> with dv.profile(show=False) as report:
    ...     norm = float(x @ x)
    >>> report.total.messages, report.total.sweeps
    (1, 1)

    A timeline opens in Perfetto:

    >>> with dv.profile(show=False, timeline=True) as report:
    ...     norm = float(x @ (2 * x))
    >>> report.save("trace.json")
    """
    found = Profile(timeline=[] if timeline else None, tracer=tracer)
    token = _active.set(found)
    try:
        yield found
    finally:
        _active.reset(token)
    if show:
        (file or sys.stdout).write(f"{found}\n")


def note_plan(template: Template, reason: Reason) -> None:
    """Called for every plan that was run, with the reason of its first program."""
    found = _active.get()
    if found is not None and template.programs:
        found.plans.append(template)
        found.pending[reason] += 1
        found.pending.update(map(template.reason, range(1, len(template.programs))))


def measured(counters: Counters) -> AbstractContextManager[None]:
    """Count what happens inside under the caller's line: for the active profile, if any.

    Else for that of the session, if somebody looks at it all the time.
    """
    found = _active.get() or counters.profile
    return nullcontext() if found is None or found.measuring else _Measured(found, counters)


class _Measured(AbstractContextManager[None]):
    def __init__(self, found: Profile, counters: Counters) -> None:
        self._counters, self._profile = counters, found

    def __enter__(self) -> None:
        self._profile.measuring = True
        self._token = _active.set(self._profile)
        self._before = _snapshot(self._counters)
        self._plans, self._began = len(self._profile.plans), time.perf_counter()

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        found = self._profile
        found.measuring = False
        _active.reset(self._token)
        seconds = time.perf_counter() - self._began
        change = _snapshot(self._counters) - self._before
        sweeps, network, waited = change[:3]
        by_server = change[3:].reshape(2, -1)
        messages, working = by_server.max(axis=1)
        server = min(working, waited)  # a flush's work may have been over before the wait
        plans = found.plans[self._plans :]
        cost = Cost(
            calls=1,
            messages=int(messages),
            sweeps=int(sweeps),
            memory=sum(plan.bytes_read + plan.bytes_written for plan in plans),
            network=int(network),
            client=float(seconds - waited),
            wire=float(waited - server),
            server=float(server),
        )
        site = call_site()
        found.sites.setdefault(site, Cost()).add(cost)
        if found.timeline is not None:
            thread, counts = threading.get_ident(), tuple(map(int, by_server[0]))
            found.timeline.append(
                Call(site, thread, self._began, seconds, waited, cost, counts, tuple(by_server[1]))
            )
        if found.tracer is not None:
            _send_span(found.tracer, site, cost, seconds, error)
        found.reasons.setdefault(site, Counter()).update(found.pending)
        found.pending.clear()
        if not found.keeps_plans:
            found.plans.clear()


def _send_span(
    tracer: Tracer, site: str, cost: Cost, seconds: float, error: BaseException | None
) -> None:
    """A span that has taken so long and ends now, with the cost as attributes."""
    now = time.time_ns()
    known = {f"distvec.{name}": value for name, value in vars(cost).items()}
    span = tracer.start_span(
        readable_site(site), start_time=now - round(seconds * 1e9), attributes=known
    )
    if error is not None:
        span.record_exception(error)
    span.end(end_time=now)


_DRIVER, _SERVERS = 1, 100
"""Numbers of processes in a trace. Perfetto takes integers below 2**32 alone, for threads, too."""


def trace_events(calls: Sequence[Call]) -> list[dict[str, Any]]:
    """The events of Chrome's trace format: slices, and names of processes and threads."""
    threads = {number: place for place, number in enumerate(dict.fromkeys(c.thread for c in calls))}
    servers = max((len(call.messages) for call in calls), default=0)
    start = min((call.began for call in calls), default=0.0)
    names = [(_DRIVER, "driver"), *((_SERVERS + k, f"server {k}") for k in range(servers))]
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}}
        for pid, name in names
    ]
    events += [
        {"ph": "M", "pid": _DRIVER, "tid": tid, "name": "thread_name",
         "args": {"name": f"thread {number}"}}
        for number, tid in threads.items()
    ]  # fmt: skip
    ends = [0.0] * servers
    for call in sorted(calls, key=lambda call: call.began):
        at = (call.began - start) * 1e6
        name = readable_site(call.site)
        arguments = {key: value for key, value in vars(call.cost).items() if value}
        events.append(
            {"ph": "X", "pid": _DRIVER, "tid": threads[call.thread], "name": name, "cat": "call",
             "ts": at, "dur": call.seconds * 1e6, "args": arguments}
        )  # fmt: skip
        for server, (messages, working) in enumerate(zip(call.messages, call.working, strict=True)):
            if not messages:
                continue
            spent = min(working, call.seconds) * 1e6
            middle = at + (call.seconds - call.waited / 2) * 1e6
            begin = min(max(at, middle - spent / 2), at + call.seconds * 1e6 - spent)
            begin = max(begin, ends[server])  # of another thread's call: slices must not overlap
            ends[server] = begin + spent
            events.append(
                {"ph": "X", "pid": _SERVERS + server, "tid": 0, "name": name, "cat": "server",
                 "ts": begin, "dur": spent, "args": {"messages": messages}}
            )  # fmt: skip
    return events


def _snapshot(counters: Counters) -> npt.NDArray[np.float64]:
    """Sweeps, bytes, seconds of waiting; then messages, and then seconds of work, per server."""
    counts = (
        counters.sweeps,
        counters.bytes_sent + counters.bytes_received,
        counters.seconds_waited,
        *counters.messages_per_server,
        *counters.seconds_per_server,
    )
    return np.array(counts)


def _duration(cost: Cost) -> float:
    return cost.client + cost.wire + cost.server


def readable_site(site: str, longest: int = _LONGEST_SITE) -> str:
    """The line's text beside its place; nothing of nothing."""
    path, _, line = site.rpartition(":")
    text = linecache.getline(path, int(line)).strip() if line.isdigit() else ""
    place = f"{Path(path).name}:{line}" if path else site
    return f"{place}  {text}"[:longest].strip()


def bytes_text(size: float) -> str:
    """Three digits and a unit, in powers of 1000."""
    power = min(int(math.log(max(size, 1), 1000)), len(_UNITS) - 1)
    return f"{size / 1000**power:.3g} {_UNITS[power]}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
