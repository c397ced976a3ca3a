"""Counts of a server's requests: numbers, seconds and bytes by command, and slow requests.

Each thread counts in lists of its own, so that an event takes no lock; readers add them up.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress

from ps_backend.metrics import Sample, SlowRequest, escape_label
from ps_backend.server.state.memory import resident_bytes

_COUNT, _FAILED, _WORK, _RECEIVED, _SENT, _BUCKETS = range(6)
_PER_SECOND = 1 << 20
"""Buckets double from about a microsecond on."""
_MOST_BUCKETS = 29
_SHOWN_BUCKETS = range(2, _MOST_BUCKETS - 1, 2)
"""From 4 microseconds to 64 seconds."""
_MANY_SHARDS = 64

SLOW_SECONDS = 1.0
_MOST_SLOW = 128

_Slot = list[float]
_Shard = dict[str, _Slot]


def _add(totals: _Shard, shard: _Shard) -> None:
    for name, slot in list(shard.items()):
        total = totals.setdefault(name, [0.0] * len(slot))
        for place, value in enumerate(slot):
            total[place] += value


class Meters:
    """The counts of one server since its start. Thread-safe."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._shards: list[tuple[threading.Thread, _Shard]] = []
        self._ended: _Shard = {}
        """The counts of threads that have ended."""
        self._events: Counter[str] = Counter()
        self._slow: deque[SlowRequest] = deque(maxlen=_MOST_SLOW)
        self._compiled, self._compile_seconds = 0, 0.0
        self._lock = threading.Lock()

    def count(
        self, command: str, seconds: float, received: int, sent: int, *, failed: bool, waits: bool
    ) -> None:
        """One request was answered. ``waits``: the seconds are no work of this server."""
        try:
            slot = self._local.shard[command]
        except (AttributeError, KeyError):
            slot = self._slot(command)
        slot[_COUNT] += 1.0
        slot[_RECEIVED] += received
        slot[_SENT] += sent
        if failed:
            slot[_FAILED] += 1.0
        if not waits:
            slot[_WORK] += seconds
            bucket = int(seconds * _PER_SECOND).bit_length()
            slot[_BUCKETS + (bucket if bucket < _MOST_BUCKETS else _MOST_BUCKETS - 1)] += 1.0

    def _slot(self, command: str) -> _Slot:
        """The counts of this thread of a command that it has not counted before."""
        shard: _Shard | None = getattr(self._local, "shard", None)
        if shard is None:
            shard = self._local.shard = {}
            with self._lock:
                self._shards.append((threading.current_thread(), shard))
                if len(self._shards) > _MANY_SHARDS:
                    self._fold()
        slot = shard[command] = [0.0] * (_BUCKETS + _MOST_BUCKETS)
        return slot

    def _fold(self) -> None:
        """Add up the counts of threads that have ended. Under the lock."""
        alive = []
        for thread, shard in self._shards:
            if thread.is_alive():
                alive.append((thread, shard))
            else:
                _add(self._ended, shard)
        self._shards = alive

    def note_event(self, name: str) -> None:
        """An event of a name from ``EVENTS`` happened."""
        with self._lock:
            self._events[name] += 1

    def note_slow(self, command: str, seconds: float, nbytes: int, session: str) -> None:
        """A request took longer than ``SLOW_SECONDS``."""
        self._slow.append(SlowRequest(time.time(), command, seconds, nbytes, session[:8]))
        self.note_event("slow_request")

    def note_compiled(self, seconds: float) -> None:
        """A kernel was prepared in so many seconds."""
        with self._lock:
            self._compiled += 1
            self._compile_seconds += seconds

    @property
    def slow(self) -> list[SlowRequest]:
        """The last slow requests, oldest first."""
        return list(self._slow)

    def samples(self) -> Iterator[Sample]:
        """All counts."""
        totals: _Shard = {}
        with self._lock:
            self._fold()
            _add(totals, self._ended)
            for _, shard in self._shards:
                _add(totals, shard)
            events = {name: self._events[name] for name in EVENTS}
            compiled, seconds = self._compiled, self._compile_seconds
        commands = [(f'command="{escape_label(name)}"', totals[name]) for name in sorted(totals)]
        for label, slot in commands:
            done, failed = slot[_COUNT] - slot[_FAILED], slot[_FAILED]
            yield Sample("distvec_requests_total", done, f'{label},outcome="ok"')
            yield Sample("distvec_requests_total", failed, f'{label},outcome="error"')
        for label, slot in commands:
            yield from _histogram("distvec_request_seconds", label, slot)
        for direction, place in (("received", _RECEIVED), ("sent", _SENT)):
            size = sum(slot[place] for slot in totals.values())
            yield Sample("distvec_bulk_bytes_total", size, f'direction="{direction}"')
        yield Sample("distvec_kernels_compiled_total", compiled)
        yield Sample("distvec_kernel_compile_seconds_total", seconds)
        for name, count in events.items():
            yield Sample("distvec_events_total", count, f'event="{name}"')


EVENTS = (
    "draining",
    "internal_error",
    "out_of_budget",
    "session_expired",
    "session_opened",
    "slow_request",
)


def _histogram(name: str, label: str, slot: _Slot) -> Iterator[Sample]:
    """Cumulated counts at every second bound, their number, and the sum of seconds."""
    buckets = slot[_BUCKETS:]
    for shown in _SHOWN_BUCKETS:
        bound = (1 << shown) / _PER_SECOND
        yield Sample(f"{name}_bucket", sum(buckets[: shown + 1]), f'{label},le="{bound:.9g}"')
    total = sum(buckets)
    yield Sample(f"{name}_bucket", total, f'{label},le="+Inf"')
    yield Sample(f"{name}_sum", slot[_WORK], label)
    yield Sample(f"{name}_count", total, label)


def process_samples(started: float) -> Iterator[Sample]:
    """Memory, processor time, files and threads. ``started``: Unix time."""
    yield Sample("process_resident_memory_bytes", resident_bytes())
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield Sample("process_cpu_seconds_total", usage.ru_utime + usage.ru_stime)
    with suppress(OSError):
        yield Sample("process_open_fds", len(os.listdir("/proc/self/fd")))
    yield Sample("process_threads", threading.active_count())
    yield Sample("process_start_time_seconds", started)
