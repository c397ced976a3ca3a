"""How cost grows: seconds per element with the length, client time with the number of servers.

Two evaluations: the fused expression ``2*a + b*c - 0.5`` with two dots of it, and the direction of
L-BFGS with two pairs (the vectors of ten would not fit at the greatest length). Both should take
time in proportion to the length but for what messages take, which is fitted; messages and client
time whatever the length; and client time in proportion to the servers. Client time is CPU time of
the calling thread and, beside it, of the whole client process. Where vectors are long it should not
matter how many servers one machine has, as they share its cores.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

import distvec as dv
from benchmarks.direction import two_loop
from benchmarks.harness import (
    HEATING_SECONDS,
    Case,
    Ratio,
    Report,
    Table,
    Timing,
    heat,
    interleaved,
    main,
)

SERVERS = 2
PAIRS = 2
LENGTHS = (10**6, 10**7, 10**8, 2 * 10**8)
QUICK_LENGTHS = (10**5, 10**6)
COUNTS = (1, 2, 4, 8, 16)
QUICK_COUNTS = (1, 2, 4)
FAN_OUT_LENGTH = 10**6
SHARED_COUNTS = (1, 2, 4, 8)
SHARED_LENGTH = 10**8
SHARED_REPEAT = 15
ELEMENTS = 2 * 10**8
HEATING_AGAIN_SECONDS = 2.0
"""For kernels that were compiled before, and must only be loaded."""
FEWEST, MOST = 5, 200
"""An evaluation is repeated until it has gone over about ``ELEMENTS``, within these bounds."""


@dataclass(frozen=True)
class Cost:
    """Of one evaluation: medians of seconds, and messages to each server."""

    wall: float
    thread: float
    process: float
    messages: int


def measure(options: argparse.Namespace) -> Report:
    """First the lengths on two servers, then the numbers of servers at one length."""
    lengths = QUICK_LENGTHS if options.quick else LENGTHS
    counts = QUICK_COUNTS if options.quick else COUNTS
    with dv.local(servers=SERVERS) as ps:
        costs(ps, lengths[0], options.quick, HEATING_SECONDS)  # kernels are compiled
        by_length = {n: costs(ps, n, options.quick) for n in lengths}
    by_count = {}
    for count in counts:
        with dv.local(servers=count) as ps:
            by_count[count] = costs(ps, FAN_OUT_LENGTH, options.quick)
    shared = shared_machine(counts[:2] if options.quick else SHARED_COUNTS, options.quick)
    medians = [timing.median for timing in shared]
    ratios = [Ratio("servers of one machine: time, spread", spread(medians), "under 1.15")]
    tables = []
    for name in EVALUATIONS:
        grown = {n: found[name] for n, found in by_length.items()}
        fanned = {count: found[name] for count, found in by_count.items()}
        ratios += [*judged_by_length(name, grown), judged_by_count(name, fanned)]
        tables += [length_table(name, grown), count_table(name, fanned)]
    return Report("growth with length and servers, float64", shared, ratios, tables=tables)


# --- what is evaluated ----------------------------------------------------------------------------


def fused_expression(ps: dv.Session, n: int) -> Callable[[], object]:
    """Reads three vectors, writes one, returns two dots."""
    a, b, c = vectors(ps, n, 3)

    def run() -> tuple[float, float]:
        r = 2 * a + b * c - 0.5
        first, second = r @ a, r @ b
        dv.evaluate(r, first, second)
        return float(first), float(second)

    return run


def direction(ps: dv.Session, n: int) -> Callable[[], object]:
    """Algorithm 7.4 of Nocedal and Wright with ``PAIRS`` pairs; a new gradient each time.

    As the gradient is new, none of its dots is known before. Making it is timed too: one vector
    read, one written, one message.
    """
    g, *rest = vectors(ps, n, 1 + 2 * PAIRS)
    pairs = [
        (s, (s * y).persist(), 1.0 / float(s @ (s * y)))
        for s, y in zip(rest[:PAIRS], rest[PAIRS:], strict=True)
    ]
    del rest

    def run() -> Any:
        gradient = (g * 1.0).persist()
        return two_loop(gradient, pairs, 0.05).persist()

    return run


EVALUATIONS = {"fused expression": fused_expression, "L-BFGS direction": direction}


def vectors(ps: dv.Session, n: int, count: int) -> list[dv.DistArray]:
    """Random vectors, drawn by the servers: the client has no room for them."""
    made = [ps.random.uniform(n, low=0.5, high=1.5, seed=seed) for seed in range(count)]
    return [vector.persist() for vector in made]


# --- measuring ------------------------------------------------------------------------------------


def costs(
    ps: dv.Session, n: int, quick: bool, heating: float = HEATING_AGAIN_SECONDS
) -> dict[str, Cost]:
    """What each evaluation costs at length ``n``."""
    found = {}
    for name, make in EVALUATIONS.items():
        run = make(ps, n)
        heat(run, quick, heating)
        found[name] = cost_of(ps, run, _repeat(n))
    return found


def shared_machine(counts: Sequence[int], quick: bool) -> list[Timing]:
    """The fused expression by so many servers of this machine, in turn, as the bandwidth of the
    machine may vary more from minute to minute than with their number."""
    n = QUICK_LENGTHS[-1] if quick else SHARED_LENGTH
    with ExitStack() as stack:
        cases = []
        for count in counts:
            run = fused_expression(stack.enter_context(dv.local(servers=count)), n)
            heat(run, quick, HEATING_AGAIN_SECONDS)
            name = f"fused expression, n = {n:.0e}, {count} servers"
            cases.append(Case(name, run, bytes=32 * n))
        return [*interleaved(cases, SHARED_REPEAT).values()]


def cost_of(ps: dv.Session, run: Callable[[], object], repeat: int) -> Cost:
    """Medians of ``repeat`` runs."""
    clocks = (time.perf_counter, time.thread_time, time.process_time)
    seconds, before = [], ps.counters.messages
    for _ in range(repeat):
        began = [clock() for clock in clocks]
        run()
        seconds.append([clock() - start for clock, start in zip(clocks, began, strict=True)])
    messages = ps.counters.messages - before
    wall, thread, process = (float(x) for x in np.median(seconds, axis=0))
    return Cost(wall, thread, process, round(messages / repeat))


def _repeat(n: int) -> int:
    return min(max(FEWEST, ELEMENTS // n), MOST)


# --- judging --------------------------------------------------------------------------------------


def judged_by_length(name: str, grown: Mapping[int, Cost]) -> list[Ratio]:
    """The greatest over the least, which is 1 for what does not depend on the length."""
    latency = latency_of(grown)
    net = [(c.wall - latency) / n for n, c in grown.items()]
    return [
        Ratio(f"{name}: ms that do not depend on the length", 1e3 * latency),
        Ratio(f"{name}: seconds per element but for these, spread", spread(net), "under 1.25"),
        Ratio(
            f"{name}: seconds per element, spread", spread([c.wall / n for n, c in grown.items()])
        ),
        Ratio(f"{name}: messages, spread", spread([c.messages for c in grown.values()]), "1"),
        Ratio(f"{name}: client time, spread", spread([c.thread for c in grown.values()])),
    ]


def latency_of(grown: Mapping[int, Cost]) -> float:
    """Seconds that remain at length 0, by the line with the least relative errors; at least 0."""
    lengths = np.array(list(grown))
    seconds = np.array([c.wall for c in grown.values()])
    line = np.stack([np.ones(len(lengths)), lengths], axis=1) / seconds[:, None]
    found = np.linalg.lstsq(line, np.ones(len(lengths)), rcond=None)[0]
    return max(0.0, float(found[0]))


def judged_by_count(name: str, fanned: Mapping[int, Cost]) -> Ratio:
    """How far client time is from a straight line in the number of servers, relative to it."""
    seconds = np.array([c.thread for c in fanned.values()])
    counts = np.array(list(fanned))
    line = np.polyval(np.polyfit(counts, seconds, 1), counts)
    off = float(np.max(np.abs(seconds / line - 1.0)))
    return Ratio(f"{name}: client time off a line in servers", off, "under 0.2")


def spread(values: Sequence[float]) -> float:
    """The greatest over the least."""
    return max(values) / min(values)


def length_table(name: str, grown: Mapping[int, Cost]) -> Table:
    """One row per length."""
    columns = ["ns/element", "ms", "messages", "client thread us", "client process us"]
    rows = {
        f"n = {n:.0e}": [1e9 * c.wall / n, 1e3 * c.wall, c.messages, *_client(c)]
        for n, c in grown.items()
    }
    return Table(f"{name}, {SERVERS} servers", columns, rows)


def count_table(name: str, fanned: Mapping[int, Cost]) -> Table:
    """One row per number of servers."""
    columns = ["ms", "messages", "client thread us", "client process us"]
    rows = {
        f"{count} servers": [1e3 * c.wall, c.messages, *_client(c)] for count, c in fanned.items()
    }
    return Table(f"{name}, n = {FAN_OUT_LENGTH:.0e}", columns, rows)


def _client(cost: Cost) -> tuple[float, float]:
    return 1e6 * cost.thread, 1e6 * cost.process


if __name__ == "__main__":
    main(__doc__, measure)
