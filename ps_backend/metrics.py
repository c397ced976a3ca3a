"""The metrics of servers and drivers: one table, and Prometheus' text format."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of the table."""

    name: str
    kind: str
    """``counter``, ``gauge`` or ``histogram``."""
    help: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric: ``labels`` as in the text format, such as ``command="run"``."""

    name: str
    value: float
    labels: str = ""

    @property
    def key(self) -> str:
        """The name with its labels."""
        return f"{self.name}{{{self.labels}}}" if self.labels else self.name


@dataclass(frozen=True, slots=True)
class SlowRequest:
    """A request that took a server longer than a second."""

    ended: float
    """Unix time."""
    command: str
    seconds: float
    nbytes: int
    """Bytes of elements in the request and its reply."""
    session: str
    """The first characters of its name."""


def _table(*rows: Metric) -> Mapping[str, Metric]:
    return MappingProxyType({row.name: row for row in rows})


SERVER = _table(
    Metric(
        "distvec_requests_total", "counter", "Requests that were answered.", ("command", "outcome")
    ),
    Metric(
        "distvec_request_seconds",
        "histogram",
        "Seconds of work on a request; requests that wait for others are left out.",
        ("command", "le"),
    ),
    Metric(
        "distvec_bulk_bytes_total",
        "counter",
        "Bytes of elements in requests and replies.",
        ("direction",),
    ),
    Metric("distvec_turn_waits_total", "counter", "Programs that waited for another program."),
    Metric(
        "distvec_turn_wait_seconds_total", "counter", "Seconds that programs waited for others."
    ),
    Metric("distvec_turns_queued", "gauge", "Programs that wait for another program now."),
    Metric("distvec_waiting", "gauge", "Requests that wait at barriers and mailboxes now."),
    Metric(
        "distvec_memory_bytes",
        "gauge",
        "Memory by kind: used by arrays and requests, kept for reuse, peak of used.",
        ("kind",),
    ),
    Metric("distvec_memory_budget_bytes", "gauge", "The limit of used memory."),
    Metric("distvec_memory_refused_total", "counter", "Requests that were refused for memory."),
    Metric("distvec_buffers", "gauge", "Arrays with a part on this server."),
    Metric("distvec_keys", "gauge", "Keys of keyed spaces on this server."),
    Metric("distvec_sessions", "gauge", "Open sessions."),
    Metric(
        "distvec_session_lease_min_seconds",
        "gauge",
        "The shortest lease left of a session; +Inf without any.",
    ),
    Metric("distvec_kernels_compiled_total", "counter", "Kernels that were prepared."),
    Metric("distvec_kernel_compile_seconds_total", "counter", "Seconds of preparing kernels."),
    Metric("distvec_events_total", "counter", "Events of the log, by name.", ("event",)),
    Metric(
        "distvec_incarnation",
        "gauge",
        "How many processes this server has had; 0 without replacement.",
    ),
    Metric("distvec_ready", "gauge", "1 if the server takes requests, 0 while it ends."),
    Metric(
        "distvec_build_info",
        "gauge",
        "1; servers with other bits give other last digits.",
        ("version", "bits", "functions"),
    ),
    Metric("process_resident_memory_bytes", "gauge", "Resident memory of the process."),
    Metric("process_cpu_seconds_total", "counter", "Processor seconds of the process."),
    Metric("process_open_fds", "gauge", "Open files of the process."),
    Metric("process_threads", "gauge", "Threads of the process."),
    Metric("process_start_time_seconds", "gauge", "Start of the process, in Unix time."),
)
"""By name: the metrics of a server."""

DRIVER = _table(
    Metric("distvec_driver_messages_total", "counter", "Requests to the busiest server."),
    Metric("distvec_driver_programs_total", "counter", "Programs that were sent."),
    Metric("distvec_driver_sweeps_total", "counter", "Passes over memory of these programs."),
    Metric(
        "distvec_driver_bytes_total", "counter", "Bytes of requests and replies.", ("direction",)
    ),
    Metric("distvec_driver_wait_seconds_total", "counter", "Seconds that the driver waited."),
    Metric("distvec_driver_iterations_total", "counter", "Iterations of solvers."),
    Metric("distvec_driver_objective", "gauge", "Value of the newest iterate of a solver."),
    Metric("distvec_driver_gradient_norm", "gauge", "Gradient norm of that iterate."),
    Metric("distvec_driver_events_total", "counter", "Warnings and errors.", ("level",)),
)
"""By name: the metrics of a driver that has a dashboard."""

_SUFFIXES = ("_bucket", "_sum", "_count")


def metric_of(name: str) -> Metric | None:
    """The metric of a sample's name; None if there is none."""
    for suffix in ("", *_SUFFIXES):
        base = name.removesuffix(suffix) if suffix else name
        found = SERVER.get(base) or DRIVER.get(base)
        if found is not None and (not suffix or found.kind == "histogram"):
            return found
    return None


def escape_label(value: str) -> str:
    """A label's value as the text format has it."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def text_of(samples: Iterable[Sample]) -> str:
    """The samples in Prometheus' text format; those of a metric stand together."""
    lines = []
    for metric, group in groupby(samples, lambda one: metric_of(one.name)):
        if metric is not None:
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
            lines += [f"{one.key} {_number(one.value)}" for one in group]
    return "\n".join([*lines, ""])


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() and abs(value) < 1 << 53 else repr(value)
