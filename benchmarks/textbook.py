"""Thirty algorithms as users type them from textbooks, beside NumPy: time, messages, reads.

``benchmarks.algorithms`` has their text. The same functions run on NumPy's arrays and on arrays
of servers in this process, of one server process and of two, and, up to 1e5 elements, on arrays
that the client stores. A time is the least of several runs
in turn, over the steps of a run; the arrays are on the servers before. Messages and vectors read
are those of one step, with servers in this process. All sizes take half an hour on a busy machine;
each row is written to stderr when it is there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

import distvec as dv
from benchmarks.algorithms import ALGORITHMS, Algorithm
from benchmarks.harness import Case, Report, Table, interleaved, main

SIZES = (10**3, 10**4, 10**5, 10**6, 10**7)
QUICK_SIZES = (10**3, 10**4)
SECONDS = 0.2
"""NumPy's runs of one row take about so long, within the bounds of ``_repeat``."""
HEATING_SECONDS, LONGER_SECONDS = 0.5, 2.5
"""So long a row is run before; with more than ``MOST_ON_CLIENT`` elements longer, as kernels are
compiled meanwhile."""
TOLERANCE = 1e-9
"""Results agree if no element differs by more than this times the largest one."""
FEWEST = 3
"""Runs, and steps of a run at the largest size."""
ON_CLIENT, MOST_ON_CLIENT = "on client", 10**5
COLUMNS = (
    *("NumPy, ms", "in process", "1 server", "2 servers", ON_CLIENT),
    *("messages", "reads", "difference"),
)


def measure(options: argparse.Namespace) -> Report:
    """A table for each size; the times of servers are divided by NumPy's."""
    sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)
    heating = 0.0 if options.quick else HEATING_SECONDS
    chosen = {n: a for n, a in ALGORITHMS.items() if not options.only or n in options.only}
    facts: dict[str, object] = {}
    tables = []
    with ExitStack() as stack:
        sessions = {
            "in process": stack.enter_context(dv.local(1, in_process=True)),
            "1 server": stack.enter_context(dv.local(1)),
            "2 servers": stack.enter_context(dv.local(2)),
        }
        sessions[ON_CLIENT] = sessions["in process"]
        for size in sizes:
            rows: dict[str, list[float | None]] = {}
            for name, algorithm in chosen.items():
                try:
                    rows[name] = measure_row(sessions, algorithm, size, heating)
                except Exception as error:  # noqa: BLE001 what a user would meet is a result, too
                    rows[name] = [None] * len(COLUMNS)
                    facts[f"{name}, n = {size:.0e}"] = f"{type(error).__name__}: {error}"
                numbers = (f"{x:.3g}" for x in rows[name] if x is not None)
                print(f"{size:.0e}", name, *numbers, file=sys.stderr, flush=True)
            tables.append(Table(f"a step, times over NumPy's, n = {size:.0e}", COLUMNS, rows))
            facts |= judge(size, rows)
    return Report("algorithms from textbooks", [], [], facts=facts, tables=tables)


def measure_row(
    sessions: Mapping[str, dv.Session], algorithm: Algorithm, size: int, heating: float
) -> list[float | None]:
    """NumPy's milliseconds of a step, ours over them, messages, reads and the difference."""
    data = algorithm.data(size)
    steps = max(10 if size < max(SIZES) else FEWEST, algorithm.steps)
    run = partial(algorithm.run, **data, steps=steps)
    began = time.perf_counter()
    expected = arrays(run())
    seconds = time.perf_counter() - began
    cases = [Case("NumPy", run)]
    difference = messages = reads = 0.0
    for place, ps in sessions.items():
        if place == ON_CLIENT and size > MOST_ON_CLIENT:
            continue
        put = partial(ps.array, on_client=place == ON_CLIENT)
        moved = {k: v if k in algorithm.on_client else put(v) for k, v in data.items()}
        dv.evaluate(*(v for v in moved.values() if isinstance(v, dv.DistArray)))
        ours = partial(evaluated, partial(algorithm.run, **moved, steps=steps))
        difference = max(difference, difference_of(ours(), expected))
        heat(ours, heating and (LONGER_SECONDS if size > MOST_ON_CLIENT else heating))
        if not messages:
            ps.counters.reset()
            ours()
            messages = ps.counters.messages / steps
            reads = ps.counters.vectors_read / steps
        cases.append(Case(place, ours))
    timings = interleaved(cases, repeat=_repeat(seconds))
    numpy, *others = (timings[case.name].best / steps for case in cases)
    ratios: list[float | None] = [other / numpy for other in others]
    ratios += [None] * (len(sessions) - len(ratios))
    return [1e3 * numpy, *ratios, messages, reads, difference]


def evaluated(run: Callable[[], Any]) -> tuple[Any, ...]:
    """What ``run`` returns, computed."""
    found = arrays(run())
    dv.evaluate(*(array for array in found if isinstance(array, dv.DistArray)))
    return found


def heat(run: Callable[[], Any], seconds: float) -> None:
    """Run so long, and at least once."""
    until = time.perf_counter() + seconds
    run()
    while time.perf_counter() < until:
        run()


def arrays(result: Any) -> tuple[Any, ...]:
    """The results, one or more."""
    return result if isinstance(result, tuple) else (result,)


def difference_of(ours: tuple[Any, ...], expected: tuple[Any, ...]) -> float:
    """The largest difference of an element, over the largest element of its array."""
    return max(
        float(np.abs(np.asarray(mine) - theirs).max() / np.abs(theirs).max())
        for mine, theirs in zip(ours, expected, strict=True)
    )


def judge(size: int, rows: Mapping[str, list[float | None]]) -> dict[str, object]:
    """Which rows miss a target at this size."""
    found: dict[str, object] = {}
    for column, limit, sizes in (
        (1, 1.0, range(10**6, 10**9)),
        (2, 1.0, range(10**6, 10**9)),
        (3, 1.0, range(10**6, 10**9)),
        (1, 5.0, range(10**4, 10**6)),
        (4, 5.0, range(10**3, 10**6)),
        (7, TOLERANCE, range(10**9)),
    ):
        if size not in sizes:
            continue
        above = {name: row[column] for name, row in rows.items() if (row[column] or 0) > limit}
        found[f"{COLUMNS[column]} above {limit:g}, n = {size:.0e}"] = (
            ", ".join(f"{name} {value:.3g}" for name, value in above.items()) or "no row"
        )
    return found


def _repeat(seconds: float) -> int:
    """How often to run what takes NumPy so long."""
    return min(max(FEWEST, int(SECONDS / seconds)), 15)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the choice of rows and sizes."""
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(ALGORITHMS))
    parser.add_argument("--sizes", nargs="+", type=lambda size: int(float(size)), metavar="N")


if __name__ == "__main__":
    main(__doc__, measure, configure)
