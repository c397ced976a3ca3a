"""Chains of operators on vectors of many lengths, against NumPy: from which length are we faster?

The chain is Horner's rule, ``v = v * y; v = v + x`` in turn: no operator can be folded into
another, and values stay near x. NumPy runs the same lines; servers with ``engine="numexpr"`` are
measured beside those that compile. What is steady was run before for some
seconds, and each repetition follows another one of the same chain, as in a loop: the caches hold
what that one left, not what the peer did. What is first was never run or compiled on this machine,
in servers that have just started.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import distvec as dv
from benchmarks.harness import (
    Case,
    Report,
    Table,
    Timing,
    interleaved,
    main,
    nothing_compiled,
    seconds_of,
    speed_up,
)

SERVERS = 2
OPERATORS = (1, 2, 4, 8, 16, 32, 64)
LENGTHS = (10**3, 10**4, 10**5, 10**6, 10**7, 10**8)
QUICK_LENGTHS = (10**3, 10**5, 10**6)
SECONDS = 0.2
"""A length is repeated until NumPy has run about so long, within the bounds of ``_repeat``."""

HEATING_SECONDS = 4.0
"""So long a chain is run before it counts as steady; a kernel is compiled for it meanwhile."""
SHORT = 10**4
"""Up to here nothing is ever compiled."""


def measure(options: argparse.Namespace) -> Report:
    """The cost tables, and for each chain the length from which ours is the faster one."""
    lengths = QUICK_LENGTHS if options.quick else LENGTHS
    timings: dict[int, list[tuple[Timing, Timing]]] = {}
    firsts = {n: measure_first(n) for n in lengths}
    by_numexpr: dict[int, list[tuple[Timing, Timing]]] = {}
    with dv.local(servers=SERVERS) as ps, dv.local(servers=SERVERS, engine="numexpr") as other:
        for n in lengths:
            heating = 0.2 if options.quick or n <= SHORT else HEATING_SECONDS
            timings[n] = measure_length(ps, n, heating)
            by_numexpr[n] = measure_length(other, n, 0.0)
    ours = {n: [mine.median for mine, _ in row] for n, row in timings.items()}
    numexprs = {n: [mine.median for mine, _ in row] for n, row in by_numexpr.items()}
    theirs = {n: [numpy.median for _, numpy in row] for n, row in timings.items()}
    ratios = {n: [speed_up(*pair) for pair in row] for n, row in timings.items()}
    found = [crossover(lengths, speeds) for speeds in zip(*ratios.values(), strict=True)]
    columns = [f"{count} op." for count in OPERATORS]
    tables = [
        Table(name, columns, {f"n = {n:.0e}": row for n, row in rows.items()})
        for name, rows in (
            ("ms, distvec", {n: [1e3 * t for t in row] for n, row in ours.items()}),
            ("ms, distvec by numexpr", {n: [1e3 * t for t in row] for n, row in numexprs.items()}),
            ("ms, NumPy", {n: [1e3 * t for t in row] for n, row in theirs.items()}),
            ("first run, ms, distvec", {n: [1e3 * t for t, _ in row] for n, row in firsts.items()}),
            ("first run, ms, NumPy", {n: [1e3 * t for _, t in row] for n, row in firsts.items()}),
            ("time over NumPy's", {n: [1 / r for r in row] for n, row in ratios.items()}),
        )
    ]
    tables.append(Table("faster than NumPy from n =", columns, {"": found}))
    return Report(f"chains of operators, float64, {SERVERS} servers", [], [], tables=tables)


def measure_first(n: int) -> list[tuple[float, float]]:
    """Ours and NumPy's seconds of each chain when it is run for the first time, by new servers."""
    rng = np.random.default_rng(1)
    a, b = rng.random(n), rng.random(n)
    with nothing_compiled(), dv.local(servers=SERVERS) as ps:
        x, y = ps.array(a), ps.array(b)
        return [
            (
                seconds_of(partial(evaluated, x, y, count)),
                seconds_of(partial(chain, a, b, count)),
            )
            for count in OPERATORS
        ]


def measure_length(ps: dv.Session, n: int, heating: float) -> list[tuple[Timing, Timing]]:
    """Ours and NumPy's time of each chain on vectors of length ``n``, once it is hot."""
    rng = np.random.default_rng(1)
    a, b = rng.random(n), rng.random(n)
    x, y = ps.array(a), ps.array(b)
    np.testing.assert_array_equal(chain(x, y, 4).numpy(), chain(a, b, 4))
    pairs = []
    for count in OPERATORS:
        until = time.perf_counter() + heating
        while time.perf_counter() < until:
            evaluated(x, y, count)
        cases = [
            Case("distvec", partial(evaluated, x, y, count)),
            Case("NumPy", partial(chain, a, b, count)),
        ]
        timings = interleaved(cases, repeat=_repeat(n * count), in_a_row=2)
        pairs.append((timings["distvec"], timings["NumPy"]))
    return pairs


def chain(x: Any, y: Any, operators: int) -> Any:
    """``operators`` operators on ``x`` and ``y``, ``y`` within [0, 1]."""
    v = x
    for number in range(operators):
        v = v + x if number % 2 else v * y
    return v


def evaluated(x: dv.DistArray, y: dv.DistArray, operators: int) -> None:
    """The same on the servers, computed and dropped."""
    chain(x, y, operators).persist()


def crossover(lengths: Sequence[int], speeds: Sequence[float]) -> float | None:
    """The length from which the speed stays above 1, interpolated in logarithms.

    None if it is not above 1 at the last length; the first length if it is everywhere.
    """
    slow = [k for k, speed in enumerate(speeds) if speed <= 1.0]
    if not slow:
        return lengths[0]
    k = slow[-1]
    if k == len(lengths) - 1:
        return None
    low, high = math.log(speeds[k]), math.log(speeds[k + 1])
    share = -low / (high - low)
    return float(lengths[k] * (lengths[k + 1] / lengths[k]) ** share)


def _repeat(elements: int) -> int:
    """How often to run: NumPy takes about 2 ns an element."""
    return min(max(3, int(SECONDS / (2e-9 * elements))), 31)


if __name__ == "__main__":
    main(__doc__, measure)
