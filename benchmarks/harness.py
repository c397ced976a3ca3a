"""What all benchmarks share: interleaved repetitions, ratios, tables, a JSON file."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

HEATING_SECONDS = 8.0
"""So long what is measured is run before: kernels are compiled meanwhile, beside busy servers."""
QUICK_HEATING_SECONDS = 0.2


@dataclass(frozen=True)
class Case:
    """Something to time: a run does so many ``operations`` or moves so many ``bytes``.

    ``prepare`` runs untimed before each run.
    """

    name: str
    run: Callable[[], object]
    operations: int = 1
    bytes: int = 0
    prepare: Callable[[], object] | None = None


@dataclass(frozen=True)
class Timing:
    """Seconds of each repetition of a case."""

    name: str
    seconds: Sequence[float]
    operations: int = 1
    bytes: int = 0

    @property
    def best(self) -> float:
        """The fastest repetition, in seconds: the least disturbed one."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """The median repetition, in seconds."""
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Ratio:
    """One number to judge by, and the target if there is one."""

    name: str
    value: float
    target: str = ""


@dataclass(frozen=True)
class Table:
    """Numbers by row and column; ``None`` where nothing was measured. Units are in the names."""

    name: str
    columns: Sequence[str]
    rows: Mapping[str, Sequence[float | None]]


@dataclass(frozen=True)
class Report:
    """The result of one benchmark."""

    title: str
    timings: Sequence[Timing]
    ratios: Sequence[Ratio]
    facts: Mapping[str, object] = field(default_factory=dict)
    tables: Sequence[Table] = ()


@contextmanager
def nothing_compiled() -> Iterator[None]:
    """Servers that are started within find no machine code on disk."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, DISTVEC_CACHE=folder),
    ):
        yield


def seconds_of(run: Callable[[], object]) -> float:
    """Of one run."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def heat(run: Callable[[], object], quick: bool = False, seconds: float = HEATING_SECONDS) -> float:
    """Repeat ``run`` until its kernels are those that stay; seconds of the first time.

    Fewer ``seconds`` will do where they were compiled before.
    """
    until = time.perf_counter() + (QUICK_HEATING_SECONDS if quick else seconds)
    first = seconds_of(run)
    while time.perf_counter() < until:
        run()
    return first


def interleaved(
    cases: Sequence[Case], repeat: int, warm_up: int = 1, in_a_row: int = 1
) -> dict[str, Timing]:
    """Time the cases in turn, ``repeat`` times over, so that a slow spell hits all alike.

    Each is run so often ``in_a_row``, and the last time counts: then the caches hold what it left
    there itself, as in a loop, and not what another case did.
    """
    seconds: dict[str, list[float]] = {case.name: [] for case in cases}
    for round_ in range(warm_up + repeat):
        for case in cases:
            if case.prepare is not None:
                case.prepare()
            for _ in range(in_a_row):
                elapsed = seconds_of(case.run)
            if round_ >= warm_up:
                seconds[case.name].append(elapsed)
    return {
        case.name: Timing(case.name, seconds[case.name], case.operations, case.bytes)
        for case in cases
    }


def speed_up(ours: Timing, peer: Timing) -> float:
    """How many times as fast as the peer, by medians, per byte if both say how many they move."""
    times = peer.median / ours.median
    return times * ours.bytes / peer.bytes if ours.bytes and peer.bytes else times


def main(
    description: str | None,
    measure: Callable[[argparse.Namespace], Report],
    configure: Callable[[argparse.ArgumentParser], object] | None = None,
) -> None:
    """The command line of a benchmark: measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all?")
    if configure is not None:
        configure(parser)
    options = parser.parse_args()
    load = os.getloadavg()[0]  # before: what we add to it ourselves is no disturbance
    report = measure(options)
    print(render(report))
    print(f"load average before: {load:.2f}")
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        content = {"quick": options.quick, "machine": machine(load), **asdict(report)}
        options.json.write_text(json.dumps(content, indent=1) + "\n")


def render(report: Report) -> str:
    """The report as text: times, rates, ratios with their targets, facts, tables."""
    width = max((len(name) for name in _names(report)), default=0)
    lines = [f"\n{report.title}"]
    if report.timings:
        lines.append(f"{'':{width}}  {'median':>10}  {'best':>10}")
    for timing in report.timings:
        median, best = (readable(t / timing.operations) for t in (timing.median, timing.best))
        lines.append(f"{timing.name:{width}}  {median:>10}  {best:>10}{_rate(timing)}")
    for ratio in report.ratios:
        wanted = f"  (target: {ratio.target})" if ratio.target else ""
        lines.append(f"{ratio.name:{width}}  {ratio.value:>10.2f}{wanted}")
    lines += [f"{name:{width}}  {value}" for name, value in report.facts.items()]
    return "\n".join(lines + [_rendered(table) for table in report.tables])


def _names(report: Report) -> list[str]:
    rows: list[Timing | Ratio] = [*report.timings, *report.ratios]
    return [row.name for row in rows] + list(report.facts)


def _rendered(table: Table) -> str:
    """The table, aligned, under its name."""
    rows = [("", *table.columns)]
    for name, numbers in table.rows.items():
        rows.append((name, *("-" if x is None else f"{x:.3g}" for x in numbers)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    return "\n".join([f"\n{table.name}", *lines])


def _rate(timing: Timing) -> str:
    return f"  {timing.bytes / timing.median / 1e9:6.2f} GB/s" if timing.bytes else ""


def readable(seconds: float) -> str:
    """Three digits and a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


_PEERS = {
    "sklearn": ("scikit-learn", "bench"),
    "dask": ("dask.array", "bench"),
    "torch": ("PyTorch", "torch"),
    "pandas": ("pandas", "spark"),
}
"""By module: how tables name it, and which extra of distvec installs it."""


def installed(module: str) -> bool:
    """Whether a peer can be measured; where it cannot, ``not_measured`` says so."""
    return sys.modules.get(module, True) is not None and find_spec(module) is not None


def not_measured(*modules: str) -> dict[str, str]:
    """For the facts of a report: which of these peers are missing, and how to get them."""
    missing = (_PEERS[module] for module in modules if not installed(module))
    return {name: f"not measured: pip install 'distvec[{extra}]'" for name, extra in missing}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def machine(load: float) -> dict[str, object]:
    """Where the numbers come from; ``load`` is the load average before them."""
    packages = ("numpy", "scipy", "numba", "numexpr", "grpcio", "protobuf", "pyspark")
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load average before": load,
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in packages},
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()
