"""An iteration of L-BFGS over links like those of clusters: distvec, plain PySpark, MLlib.

Ours is measured without TLS, as the others encrypt nothing, and once more with it, as a cluster has
it by default. The hosts are network namespaces of this machine, whose cores they share: a master,
two workers and the driver, each on its own link. A server and a task are on each worker's host; the
others' two tasks have the same slots. Bytes are those that the interfaces of all hosts counted.

The bound of an iteration is what no program beats that keeps weights and gradient on two servers
of these hosts: elements that have to cross a link (each task needs the half that is on the other
host, and gives back a gradient of it), one round trip for each message in sequence, and what
``benchmarks.iteration`` counts: the passes of the tasks over their rows, and the vectors of the
iteration at the bandwidth of copies, each alone, by as many processes at once. As the hosts share
this machine's cores, links may be faster than its TCP: what that takes for the same bytes, over a
bare connection between the same hosts, is shown beside it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks import memory_speed
from benchmarks.bare_tcp import exchange_seconds
from benchmarks.harness import Ratio, Report, Table, Timing, main
from benchmarks.iteration import VECTORS
from benchmarks.memory_speed import Work
from benchmarks.sparse_rows import uniform_rows
from distvec.losses.classification import Logistic
from tests.cluster.hosts import why_no_latency, why_not
from tests.cluster.links import FAST, LOSSY, SLOW, Link
from tests.cluster.standalone import DRIVER, MASTER, WORKERS, Cluster, cluster

LINKS: Mapping[str, Link] = {
    "10 Gb/s, 0.2 ms": FAST,
    "1 Gb/s, 1 ms": SLOW,
    "1 Gb/s, 1 ms, loss 0.1 %": LOSSY,
}
OTHERS = ("tls", "plain", "mllib")
_COLUMNS = (
    "ms",
    "MB in, busiest host",
    "MB out, busiest host",
    "MB out of the driver",
    "messages in sequence",
    "evaluations",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark alone."""
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--links", choices=list(LINKS), nargs="+", default=list(LINKS)[:2])
    parser.add_argument("--others", choices=OTHERS, nargs="*", default=list(OTHERS))
    parser.add_argument("--driver-memory", default="5g")
    parser.add_argument("--executor-memory", default="3g")


def measure(options: argparse.Namespace) -> Report:
    """All of them on each link in turn."""
    title = "an iteration of L-BFGS over a network"
    if reason := why_not() or why_no_latency():
        return Report(title, [], [], {"skipped": reason})
    rows, sizes, iterations = options.rows, options.features, options.iterations
    if options.quick:
        rows, sizes, iterations = 5000, [20_000], 3
    timings: list[Timing] = []
    ratios: list[Ratio] = []
    tables: list[Table] = []
    for name in options.links:
        links = dict.fromkeys((MASTER, DRIVER, *WORKERS), LINKS[name])
        spark = {"spark.driver.memory": options.driver_memory}
        spark |= {"spark.driver.maxResultSize": "4g", "spark.default.parallelism": "2"}
        for features in sizes:
            with cluster(
                links=links, executor_memory=options.executor_memory, options=spark
            ) as made:
                found = Found(LINKS[name])
                found.take(made, rows, features, iterations, options.others)
            what = f"{features:,} features, {name}"
            timings += [Timing(f"{what}: {who}", run.seconds) for who, run in found.runs.items()]
            ratios += found.ratios(what)
            tables.append(found.table(f"an iteration, {rows:,} rows, {what}"))
    return Report(title, timings, ratios, {}, tables)


@dataclass
class Run:
    """Of one of them: the counted iterations."""

    seconds: list[float]
    evaluations: float
    messages: float
    received: dict[str, float]
    sent: dict[str, float]


@dataclass
class Found:
    """What was measured on one link."""

    link: Link
    runs: dict[str, Run] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)
    exchange: float = 0.0
    """Seconds in which two hosts give each other half a vector over a bare connection."""

    def take(
        self, made: Cluster, rows: int, features: int, iterations: int, others: list[str]
    ) -> None:
        """Run the program on the driver's host, and count bytes between its marks."""
        call = f"drive(spark, {rows}, {features}, {iterations}, {others!r})"
        source = f"from benchmarks.cluster_driver import drive\n{call}"
        before = {}
        with made.begin(source) as process:
            for message in _messages(process):
                counts = {name: host.counts() for name, host in made.hosts.items()}
                if "begin" in message:
                    before = counts
                elif "end" in message:
                    received = {n: float(counts[n].received - before[n].received) for n in counts}
                    sent = {n: float(counts[n].sent - before[n].sent) for n in counts}
                    numbers = (message["evaluations"], message["messages"])
                    self._note(
                        message["end"], iterations, message["seconds"], *numbers, received, sent
                    )
                else:
                    self.facts |= message["facts"]
                process.stdin.write("\n")
                process.stdin.flush()
            errors = process.stderr.read()
        if process.returncode:
            raise RuntimeError(f"the driver's program failed:\n{errors}")
        crossing = int(4 * self.facts["dimension"])
        self.exchange = exchange_seconds(*(made.hosts[name] for name in WORKERS), crossing)
        self._compute(rows, features)

    def _note(
        self,
        name: str,
        iterations: int,
        seconds: list[float],
        evaluations: float,
        messages: float,
        received: dict[str, float],
        sent: dict[str, float],
    ) -> None:
        run = Run(seconds, evaluations, messages, received, sent)
        if name == "MLlib":  # of whose fits we know the ends alone
            first = self.runs.pop("MLlib, first")
            del self.runs["MLlib, warm"]
            run.seconds = [(seconds[0] - first.seconds[0]) / iterations]
            run.evaluations -= first.evaluations
            run.received = {n: b - first.received[n] for n, b in received.items()}
            run.sent = {n: b - first.sent[n] for n, b in sent.items()}
        if name in ("distvec", "distvec, TLS", "plain PySpark", "MLlib"):
            run.evaluations /= iterations
            run.messages /= iterations
            run.received = {n: b / iterations for n, b in run.received.items()}
            run.sent = {n: b / iterations for n, b in run.sent.items()}
        self.runs[name] = run

    def _compute(self, rows: int, features: int) -> None:
        """Seconds of the passes over the rows, and of the vectors of an iteration."""
        dimension = int(self.facts["dimension"])
        moved = 8.0 * dimension * VECTORS
        work = Work(Logistic(), uniform_rows, rows, features, dimension, moved)
        with memory_speed.processes(len(WORKERS), work) as beside:
            found = [beside() for _ in range(5)]
        times = {name: median(one[name] for one in found) for name in found[0]}
        self.facts["pass"] = times[memory_speed.ALONE]
        self.facts["vectors"] = work.vectors_seconds(times, len(WORKERS))

    def bound(self) -> tuple[float, dict[str, float]]:
        """Seconds of an iteration at least, and of what they consist."""
        own = self.runs["distvec"]
        crossing = (
            8.0 * self.facts["dimension"]
        )  # into each host: half of it weights, half gradient
        parts = {
            "bytes": own.evaluations * crossing / self.link.bytes_per_second,
            "messages": own.messages * self.link.round_trip,
            "pass": own.evaluations * self.facts["pass"],
            "vectors": self.facts["vectors"],
        }
        return sum(parts.values()), parts

    def _tcp_slower(self) -> float:
        """Seconds that bare TCP takes for the bytes of an iteration, beyond those of the links."""
        own, (_, parts) = self.runs["distvec"], self.bound()
        return max(0.0, 2.0 * own.evaluations * self.exchange - parts["bytes"])

    def ratios(self, what: str) -> Iterator[Ratio]:
        """Ours over the bound, and the others over ours."""
        own = median(self.runs["distvec"].seconds)
        bound, _ = self.bound()
        yield Ratio(f"{what}: distvec over the bound", own / bound, "at most 1.3")
        yield Ratio(f"{what}: with bytes by bare TCP", own / (bound + self._tcp_slower()))
        for name, run in self.runs.items():
            if name == "distvec, TLS":
                yield Ratio(f"{what}: time with TLS over without", median(run.seconds) / own)
            elif name != "distvec":
                yield Ratio(f"{what}: speed over {name}", median(run.seconds) / own, "at least 10")

    def table(self, name: str) -> Table:
        """An iteration of each, and the bound."""
        rows: dict[str, list[float | None]] = {}
        for who, run in self.runs.items():
            rows[who] = [
                1e3 * median(run.seconds),
                max(run.received.values()) / 1e6,
                max(run.sent.values()) / 1e6,
                run.sent[DRIVER] / 1e6,
                run.messages or None,
                run.evaluations,
            ]
        bound, parts = self.bound()
        own = self.runs["distvec"]
        crossing = own.evaluations * 8e-6 * self.facts["dimension"]
        rows["bound"] = [1e3 * bound, crossing, crossing, 0.0, own.messages, own.evaluations]
        for part, seconds in parts.items():
            rows[f"  of it {part}"] = [1e3 * seconds, *[None] * (len(_COLUMNS) - 1)]
        bare = 1e3 * (parts["bytes"] + self._tcp_slower())
        rows["bytes by bare TCP"] = [bare, *[None] * (len(_COLUMNS) - 1)]
        return Table(name, _COLUMNS, rows)


def _messages(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    for line in process.stdout:
        if line.startswith("{"):
            yield json.loads(line)


if __name__ == "__main__":
    main(__doc__, measure, configure)
