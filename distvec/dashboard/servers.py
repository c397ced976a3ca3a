"""The servers as two samples of their metrics show them: sizes, and rates between the samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from distvec.dashboard.events import Events
from distvec.dashboard.series import Series
from ps_backend.client.status import ServerStatus
from ps_backend.errors import PSError

SHOWN_SERVERS = 64
_MOST_COMMANDS = 8
_MOST_SLOW = 50
_FULL = 0.9

Values = dict[str, float]


class Servers:
    """The statuses that a function returns, over time. Used by one thread."""

    def __init__(self, ask: Callable[[], Sequence[ServerStatus]], events: Events) -> None:
        self._ask, self._events = ask, events
        self.rows: list[dict[str, Any]] = []
        """The state of each server as JSON has it, in their order; all that answered last."""
        self.slow: list[dict[str, Any]] = []
        self.held: list[dict[str, Any]] = []
        self.error = ""
        """Why the last question was not answered."""
        self.series = Series(
            "requests", "used", "used_max", "cpu", "cpu_max", "received", "sent", "queued", "keys"
        )
        self._before: dict[str, tuple[float, Values]] = {}
        self._alarms: set[tuple[str, str]] = set()

    def sample(self) -> None:
        """Ask all servers, and note how they have changed."""
        try:
            found = self._ask()
        except (PSError, OSError) as error:
            if not self.error:
                self._events.add("error", "servers", f"no status: {error}")
            self.error = str(error)
            return
        if self.error:
            self._events.add("info", "servers", "all servers answer again")
        self.error, now = "", time.time()
        before = {row["address"]: row for row in self.rows}
        self.rows = [self._row(one, now) for one in found]
        for row in self.rows:
            self._note_changes(row, before.get(row["address"]))
        self._note_alarms()
        self.held = [
            {"server": one.address, "session": held.name[:8], "buffers": held.buffers,
             "age": held.age, "lease": held.lease, "left": held.left}
            for one in found for held in one.held
        ]  # fmt: skip
        slow: list[dict[str, Any]] = [
            {"t": one.ended, "server": server.address, "command": one.command,
             "seconds": one.seconds, "bytes": one.nbytes, "session": one.session}
            for server in found for one in server.slow
        ]  # fmt: skip
        self.slow = sorted(slow, key=lambda row: -row["t"])[:_MOST_SLOW]
        self._add_point(now)

    def _row(self, status: ServerStatus, now: float) -> dict[str, Any]:
        values = {one.key: one.value for one in status.samples}
        then, old = self._before.get(status.instance, (now, values))
        self._before[status.instance] = now, values
        passed = max(now - then, 1e-9)

        def rate(key: str) -> float:
            return max(0.0, (values.get(key, 0.0) - old.get(key, 0.0)) / passed)

        commands = _commands(values, old)
        requests = sum(one["count"] for one in commands) / passed
        return {
            "address": status.address,
            "instance": status.instance,
            "version": status.version,
            "pid": status.pid,
            "uptime": status.uptime,
            "bits": status.bits,
            "functions": status.functions,
            "incarnation": values.get("distvec_incarnation", 0),
            "sessions": status.sessions,
            "buffers": status.buffers,
            "used": status.used,
            "kept": values.get('distvec_memory_bytes{kind="kept"}', 0),
            "peak": status.peak,
            "budget": status.budget,
            "resident": values.get("process_resident_memory_bytes", 0),
            "refused": values.get("distvec_memory_refused_total", 0),
            "cpu": rate("process_cpu_seconds_total"),
            "threads": values.get("process_threads", 0),
            "files": values.get("process_open_fds", 0),
            "requests": requests,
            "total": sum(one["total"] for one in commands),
            "errors": sum(one["errors"] for one in commands),
            "busy": sum(one["seconds"] for one in commands) / passed,
            "received": rate('distvec_bulk_bytes_total{direction="received"}'),
            "sent": rate('distvec_bulk_bytes_total{direction="sent"}'),
            "queued": values.get("distvec_turns_queued", 0),
            "waiting": values.get("distvec_waiting", 0),
            "turn_wait": rate("distvec_turn_wait_seconds_total"),
            "compiled": values.get("distvec_kernels_compiled_total", 0),
            "compile_seconds": values.get("distvec_kernel_compile_seconds_total", 0),
            "keys": values.get("distvec_keys", 0),
            "commands": sorted(commands, key=lambda one: -one["work"])[:_MOST_COMMANDS],
        }

    def _note_changes(self, row: dict[str, Any], before: dict[str, Any] | None) -> None:
        address = row["address"]
        if before is None:
            return
        if before["instance"] != row["instance"]:
            self._events.add(
                "warning", address, f"another process took the place of {before['pid']}; it is "
                "empty", "arrays with a part there are lost: restore a checkpoint, or make them "
                "again; durability='replay' does so by itself",
            )  # fmt: skip
        elif row["refused"] > before["refused"]:
            self._events.add(
                "warning", address, "a request was refused for want of memory (OutOfBudget)",
                "free arrays (del x), raise --memory, or use more servers",
            )  # fmt: skip

    def _note_alarms(self) -> None:
        """Add an event where an alarm begins, and another one where it ends."""
        alarms = {
            (row["address"], "memory above 90 % of the budget")
            for row in self.rows
            if row["used"] > _FULL * row["budget"]
        }
        for key, text in (("version", "versions differ"), ("bits", "bits of results differ")):
            if len({row[key] for row in self.rows}) > 1:
                alarms.add(("servers", text))
        for source, text in sorted(alarms - self._alarms):
            self._events.add("warning", source, text)
        for source, text in sorted(self._alarms - alarms):
            self._events.add("info", source, f"no more: {text}")
        self._alarms = alarms

    @property
    def alarms(self) -> list[dict[str, str]]:
        """Those that hold now."""
        return [{"source": source, "text": text} for source, text in sorted(self._alarms)]

    def _add_point(self, now: float) -> None:
        def total(key: str) -> float:
            return float(sum(row[key] for row in self.rows))

        def most(key: str) -> float:
            return float(max((row[key] for row in self.rows), default=0.0))

        count = max(len(self.rows), 1)
        self.series.add(
            now, total("requests"), total("used"), most("used"), total("cpu") / count, most("cpu"),
            total("received"), total("sent"), total("queued"), total("keys"),
        )  # fmt: skip


def _commands(values: Values, old: Values) -> list[dict[str, Any]]:
    """By command: requests since the sample before, and quantiles of their seconds since then."""
    start = 'distvec_requests_total{command="'
    names = {key[len(start) :].partition('"')[0] for key in values if key.startswith(start)}
    return [_command(name, values, old) for name in sorted(names)]


def _command(name: str, values: Values, old: Values) -> dict[str, Any]:
    def change(key: str) -> float:
        return values.get(key, 0.0) - old.get(key, 0.0)

    label = f'command="{name}"'
    done, failed = (
        f'distvec_requests_total{{{label},outcome="{outcome}"}}' for outcome in ("ok", "error")
    )
    seconds = f"distvec_request_seconds_sum{{{label}}}"
    prefix = f'distvec_request_seconds_bucket{{{label},le="'
    bounds = [
        (float(key[len(prefix) : -2]), value, change(key))
        for key, value in values.items()
        if key.startswith(prefix)
    ]
    return {
        "name": name,
        "count": change(done) + change(failed),
        "total": values.get(done, 0.0) + values.get(failed, 0.0),
        "errors": values.get(failed, 0.0),
        "seconds": change(seconds),
        "work": values.get(seconds, 0.0),
        "p50": _quantile([(bound, value) for bound, value, _ in bounds], 0.5),
        "p99": _quantile([(bound, value) for bound, value, _ in bounds], 0.99),
    }


def _quantile(buckets: Iterable[tuple[float, float]], share: float) -> float | None:
    """The bound below which ``share`` of the counts are; None without any, or above all bounds."""
    ordered = sorted(buckets)
    if not ordered or not ordered[-1][1]:
        return None
    wanted = share * ordered[-1][1]
    bound = next(bound for bound, count in ordered if count >= wanted)
    return bound if bound < float("inf") else None
