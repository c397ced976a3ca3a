"""Chains of operators on vectors of many lengths, against NumPy: from which length are we faster?

The chain is Horner's rule, ``v = v * y; v = v + x`` in turn: no operator can be folded into
another, and values stay near x. NumPy runs the same lines. Compilation is not counted: all is run
once before, as kernels are kept on disk.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import distvec as dv
from benchmarks.harness import Case, Report, Table, Timing, interleaved, main, speed_up

SERVERS = 2
OPERATORS = (1, 2, 4, 8, 16, 32, 64)
LENGTHS = (10**3, 10**4, 10**5, 10**6, 10**7, 10**8)
QUICK_LENGTHS = (10**3, 10**5, 10**6)
SECONDS = 0.2
"""A length is repeated until NumPy has run about so long, within the bounds of ``_repeat``."""


def measure(options: argparse.Namespace) -> Report:
    """The cost tables, and for each chain the length from which ours is the faster one."""
    lengths = QUICK_LENGTHS if options.quick else LENGTHS
    timings: dict[int, list[tuple[Timing, Timing]]] = {}
    with dv.local(servers=SERVERS) as ps:
        for n in lengths:
            timings[n] = measure_length(ps, n)
    ours = {n: [mine.median for mine, _ in row] for n, row in timings.items()}
    theirs = {n: [numpy.median for _, numpy in row] for n, row in timings.items()}
    ratios = {n: [speed_up(*pair) for pair in row] for n, row in timings.items()}
    found = [crossover(lengths, speeds) for speeds in zip(*ratios.values(), strict=True)]
    columns = [f"{count} op." for count in OPERATORS]
    tables = [
        Table(name, columns, {f"n = {n:.0e}": row for n, row in rows.items()})
        for name, rows in (
            ("ms, distvec", {n: [1e3 * t for t in row] for n, row in ours.items()}),
            ("ms, NumPy", {n: [1e3 * t for t in row] for n, row in theirs.items()}),
            ("time over NumPy's", {n: [1 / r for r in row] for n, row in ratios.items()}),
        )
    ]
    tables.append(Table("faster than NumPy from n =", columns, {"": found}))
    return Report(f"chains of operators, float64, {SERVERS} servers", [], [], tables=tables)


def measure_length(ps: dv.Session, n: int) -> list[tuple[Timing, Timing]]:
    """Ours and NumPy's time of each chain on vectors of length ``n``."""
    rng = np.random.default_rng(1)
    a, b = rng.random(n), rng.random(n)
    x, y = ps.array(a), ps.array(b)
    np.testing.assert_array_equal(chain(x, y, 4).numpy(), chain(a, b, 4))
    pairs = []
    for count in OPERATORS:
        cases = [
            Case("distvec", partial(evaluated, x, y, count)),
            Case("NumPy", partial(chain, a, b, count)),
        ]
        timings = interleaved(cases, repeat=_repeat(n * count))
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
