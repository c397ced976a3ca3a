"""The state that the page shows: of a driver and its session, or of servers alone.

One thread samples the servers, each second while somebody looks and seldom else.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from heapq import nlargest
from typing import Any, Protocol

from distvec.array.core.handle import SessionBase
from distvec.dashboard.events import Events
from distvec.dashboard.runs import Runs
from distvec.dashboard.series import Series
from distvec.dashboard.servers import SHOWN_SERVERS, Servers
from distvec.diagnostics.profile import Cost, Profile, readable_site
from distvec.durability.policy import Durability
from distvec.runtime.liveness import Holder
from ps_backend.client.status import ServerStatus
from ps_backend.metrics import Sample
from ps_backend.program.types import ArrayType

LOOK_SECONDS = 1.0
IDLE_SECONDS = 15.0
"""Between two samples while no browser shows the page."""
_SHORTEST = 0.5
_PATIENCE = 5.0
"""Who has asked within so many seconds looks."""
_PARTS = ("client", "wire", "server")
_MOST_ARRAYS = 50
_MOST_LINES = 50
_LONGEST_SITE = 120
_MOST_SITES = 4096

Json = dict[str, Any]


class Source(Protocol):
    """The content of the page besides the servers."""

    title: str

    def open(self) -> None:
        """Begin to observe."""

    def sample(self, now: float) -> None:
        """Called about once a second while somebody looks."""

    def state(self, since: float) -> Json:
        """As JSON has it, with the points after ``since``."""

    def samples(self) -> Iterator[Sample]:
        """Metrics."""

    def close(self) -> None:
        """Note no more."""


class ServersAlone:
    """Of servers without a driver there is nothing else to show."""

    title = "parameter servers"

    def open(self) -> None:
        """As of ``Source``."""

    def sample(self, now: float) -> None:
        """As of ``Source``."""

    def state(self, since: float) -> Json:
        """As of ``Source``."""
        return {"driver": False}

    def samples(self) -> Iterator[Sample]:
        """As of ``Source``."""
        return iter(())

    def close(self) -> None:
        """As of ``Source``."""


class DriverSource:
    """A session, and the runs of solvers in its process."""

    def __init__(self, session: SessionBase, durability: Durability, events: Events) -> None:
        self.title = repr(session).strip("<>")
        self._session, self._durability, self._events = session, durability, events
        self._runs, self._profile = Runs(), Profile(keeps_plans=False)
        self._parts = Series(*_PARTS, "other")
        self._before: tuple[float, Cost] = time.time(), Cost()
        self._owed = [0.0] * len(_PARTS)
        self._open = ExitStack()

    def open(self) -> None:
        """Observe runs, lines and arrays, and listen to the log."""
        from optim import observe  # Not at the top: it loads solvers in each worker of Spark.

        self._session.counters.profile = self._profile
        self._session.sites = {}
        self._open.enter_context(observe(self._runs.note))
        self._open.callback(self._events.close)
        self._events.open()

    def close(self) -> None:
        """Observe no more."""
        self._session.counters.profile = None
        self._session.sites = None
        self._open.close()

    def sample(self, now: float) -> None:
        """Note the part of the time since the last sample that went to each place."""
        (then, old), total = self._before, self._profile.total
        self._before = now, total
        passed = max(now - then, 1e-9)
        for k, name in enumerate(_PARTS):
            self._owed[k] += max(0.0, getattr(total, name) - getattr(old, name))
        # A call is known at its end, and may have taken longer than the time between two samples.
        share = min(1.0, passed / max(sum(self._owed), 1e-9))
        parts = [share * seconds for seconds in self._owed]
        self._owed = [seconds - part for seconds, part in zip(self._owed, parts, strict=True)]
        shares = [part / passed for part in parts]
        self._parts.add(now, *shares, max(0.0, 1.0 - sum(shares)))

    def state(self, since: float) -> Json:
        """The runs, lines, arrays, checkpoints and counters."""
        return {
            "driver": True,
            "runs": self._runs.state(since),
            "time": self._parts.since(since),
            "lines": self._lines(),
            **self._arrays(),
            "durability": self._checkpoints(),
            "counters": self._session.counters.snapshot(),
        }

    def samples(self) -> Iterator[Sample]:
        """The metrics of ``ps_backend.metrics.DRIVER``."""
        counters = self._session.counters
        yield Sample("distvec_driver_messages_total", counters.messages)
        yield Sample("distvec_driver_programs_total", counters.programs)
        yield Sample("distvec_driver_sweeps_total", counters.sweeps)
        for way in ("sent", "received"):
            size = getattr(counters, f"bytes_{way}")
            yield Sample("distvec_driver_bytes_total", size, f'direction="{way}"')
        yield Sample("distvec_driver_wait_seconds_total", counters.seconds_waited)
        yield Sample("distvec_driver_iterations_total", self._runs.iterations)
        run = self._runs.newest
        if run is not None:
            yield Sample("distvec_driver_objective", run.value)
            yield Sample("distvec_driver_gradient_norm", run.gradient_norm)
        for level in ("warning", "error"):
            count = self._events.counts[level]
            yield Sample("distvec_driver_events_total", count, f'level="{level}"')

    def _lines(self) -> list[Json]:
        """The costliest lines of code, and why their programs were requests of their own."""
        found = list(self._profile.sites.items())  # a copy: other threads add lines
        found.sort(key=lambda item: -_seconds(item[1]))
        return [
            {
                "site": readable_site(site, _LONGEST_SITE),
                "reasons": self._reasons(site),
                **vars(cost),
            }
            for site, cost in found[:_MOST_LINES]
        ]

    def _reasons(self, site: str) -> list[Json]:
        reasons = self._profile.reasons.get(site, Counter())
        return [
            {"count": count, "text": reason.text, "advice": reason.advice}
            for reason, count in reasons.most_common()
        ]

    def _arrays(self) -> Json:
        """The largest arrays on the servers, by the line that made them."""
        alive = self._session.holders.arrays()
        found: dict[int, list[Holder]] = {}
        """By buffer, or by node if it is pending."""
        for array in alive:
            node = array.node
            if not node.on_client and type(node.type) is ArrayType:
                key = node.value.id if node.known else id(node)
                found.setdefault(key, []).append(array)
        self._forget_sites(alive)
        sizes = {key: holders[0].node.type.nbytes for key, holders in found.items()}
        names = self._published()
        return {
            "arrays": [
                self._array(found[key], names.get(key, ""))
                for key in nlargest(_MOST_ARRAYS, sizes, key=sizes.__getitem__)
            ],
            "arrays_count": len(found),
            "arrays_bytes": sum(
                sizes[key] for key, holders in found.items() if holders[0].node.known
            ),
        }

    def _array(self, holders: Sequence[Holder], name: str) -> Json:
        """A row of the table of arrays."""
        node, servers = holders[0].node, self._session.client.servers
        type: Any = node.type
        row_bytes = type.width * type.dtype.itemsize
        ranges = [type.space.range_of(k, servers) for k in range(min(servers, SHOWN_SERVERS))]
        sites = self._session.sites or {}
        known = [sites[id(array)] for array in holders if id(array) in sites]
        return {
            "name": name,
            "site": readable_site(known[0], _LONGEST_SITE) if known else "",
            "dtype": str(type.dtype),
            "shape": list(type.shape),
            "bytes": type.nbytes,
            "stored": node.known,
            "holders": len(holders),
            "shares": [(high - low) * row_bytes for low, high in ranges],
        }

    def _forget_sites(self, alive: Sequence[Holder]) -> None:
        """Those of arrays that are gone, once they are many."""
        sites = self._session.sites
        if sites is not None and len(sites) > _MOST_SITES + 2 * len(alive):
            ids = {id(array) for array in alive}
            for key in [key for key in list(sites) if key not in ids]:
                sites.pop(key, None)

    def _published(self) -> Mapping[int, str]:
        names = getattr(self._session, "names", {})
        return {
            array.node.value.id: name
            for name in list(names)
            if (array := names[name]).node.known and not array.node.on_client
        }

    def _checkpoints(self) -> Json:
        found = []
        for one in self._durability.directories:
            row: Json = {"directory": one.store.url, "writing": one.is_writing}
            if one.newest is not None:
                ended, newest = one.newest
                row |= {
                    "path": newest.path,
                    "number": newest.number,
                    "arrays": newest.arrays,
                    "bytes": newest.nbytes,
                    "seconds": newest.seconds,
                    "ended": ended,
                }
            found.append(row)
        state: Json = {"level": self._durability.level, "directories": found}
        if (journal := self._session.client.journal) is not None:
            state["journal"] = {
                "requests": len(journal), "bytes": journal.nbytes, "recoveries": journal.recoveries,
            }  # fmt: skip
        return state


def _seconds(cost: Cost) -> float:
    return cost.client + cost.wire + cost.server


class Collector:
    """Samples the servers, and has the state for the page. Thread-safe."""

    def __init__(
        self, source: Source, ask: Callable[[], Sequence[ServerStatus]], events: Events
    ) -> None:
        self.source, self.events = source, events
        self._servers = Servers(ask, events)
        self._began = time.time()
        self._asked = 0.0
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        source.open()
        self._thread = threading.Thread(target=self._run, name="distvec-dashboard", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Sample no more. Idempotent."""
        if not self._ended.is_set():
            self._ended.set()
            self._wake.set()
            self._thread.join()
            self.source.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            began = time.monotonic()
            self.sample()
            looks = began - self._asked < _PATIENCE
            self._wake.wait(LOOK_SECONDS if looks else IDLE_SECONDS)
            self._wake.clear()
            # Rates between two samples that are close together say nothing.
            self._ended.wait(max(0.0, began + _SHORTEST - time.monotonic()))

    def sample(self) -> None:
        """Take one sample now."""
        with self._lock:
            self._servers.sample()
            self.source.sample(time.time())

    def state(self, since: float = 0.0) -> Json:
        """The content of the page; of series and events only the part after ``since``."""
        idle = time.monotonic() - self._asked > _PATIENCE
        self._asked = time.monotonic()
        if idle:
            self._wake.set()  # who begins to look waits for no sample
        with self._lock:
            servers = self._servers
            return {
                "title": self.source.title,
                "now": time.time(),
                "began": self._began,
                "error": servers.error,
                "alarms": servers.alarms,
                "servers": servers.rows[:SHOWN_SERVERS],
                "servers_count": len(servers.rows),
                "history": servers.series.since(since),
                "sessions": servers.held[:SHOWN_SERVERS],
                "slow": servers.slow,
                "events": self.events.since(since),
                **self.source.state(since),
            }
