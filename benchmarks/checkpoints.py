"""What checkpoints cost: L-BFGS on servers with and without one each 20 iterations, in turns.

The store is in memory, so what is measured is the copy of what is new (with a history of ten, after
20 iterations, all of 23 vectors), beside kernels that use the same cores. Beside it how long the
caller stands still when one is begun, by length.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import distvec as dv
from benchmarks.harness import Case, Ratio, Report, Table, Timing, interleaved, main
from optim import LBFGS

HISTORY, EVERY = 10, 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Where, and how much."""
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"), help="the store")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--repeat", type=int, default=3)


def measure(options: argparse.Namespace) -> Report:
    """Runs in turns, and the stall of the caller by length."""
    length = 100_000 if options.quick else 10_000_000
    lengths = [10**power for power in range(3, 8) if 10**power <= length]
    place = Path(tempfile.mkdtemp(prefix="distvec-bench-", dir=options.directory))
    try:
        with dv.local(servers=options.servers) as ps:
            found = _runs(ps, place, length, options.iterations, options.repeat)
            stalls = [_stall(ps, place / f"stall{n}", n) for n in lengths]
    finally:
        shutil.rmtree(place)
    ratio = found["with"].median / found["without"].median
    table = Table("ms, begin a checkpoint of 23 vectors, by length", [f"{n:.0e}" for n in lengths],
                  {"median": [statistics.median(one) * 1e3 for one in stalls],
                   "longest": [max(one) * 1e3 for one in stalls]})  # fmt: skip
    title = f"checkpoints of L-BFGS, {length:,} float64, {options.servers} servers"
    ratios = [
        Ratio(f"{options.iterations} iterations: time with checkpoints over without", ratio,
              "<= 1.03"),
        Ratio("ms that the caller stands still, the longest", max(map(max, stalls)) * 1e3, "<= 10"),
    ]  # fmt: skip
    return Report(title, list(found.values()), ratios, {}, [table])


def _runs(
    ps: dv.Session, place: Path, length: int, iterations: int, repeat: int
) -> dict[str, Timing]:
    """Of a quadratic whose curvatures spread over four decades, so that it takes all iterations."""
    curvatures = ps.logspace(0, 4, length).persist()
    runs = iter(range(1000))

    def solve(checkpoint: Path | bool) -> None:
        def value(x: dv.DistArray) -> dv.DistArray:
            return 0.5 * (x @ (curvatures * x))

        solver = LBFGS(history=HISTORY, max_iterations=iterations, gradient_tolerance=0.0)
        result = solver.minimize(value, ps.ones(length), checkpoint=checkpoint, every=EVERY)
        if result.nit != iterations:
            raise RuntimeError(f"it ended after {result.nit} iterations: {result.message}")

    def with_checkpoints() -> None:
        folder = place / f"run{next(runs)}"
        solve(folder)
        shutil.rmtree(folder)

    cases = [Case("without", lambda: solve(False)), Case("with", with_checkpoints)]
    return interleaved(cases, repeat)


def _stall(ps: dv.Session, place: Path, length: int) -> list[float]:
    """Seconds of the caller for each of some checkpoints of vectors that are all new."""
    found = []
    for number in range(7):
        arrays = [ps.random.normal(length).persist() for _ in range(2 * HISTORY + 3)]
        named = {f"a{k}": array for k, array in enumerate(arrays)}
        began = time.perf_counter()
        writing = ps.checkpoint(place, wait=False, **named)
        took = time.perf_counter() - began
        writing.result()
        if number:  # the first begins the directory
            found.append(took)
    restored = ps.restore(place)
    np.testing.assert_array_equal(restored["a0"].numpy(), arrays[0].numpy())
    shutil.rmtree(place)
    return found


if __name__ == "__main__":
    main(__doc__, measure, configure)
