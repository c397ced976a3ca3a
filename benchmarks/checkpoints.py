"""What checkpoints cost: L-BFGS on servers with and without one each 20 iterations, in turns.

The store is in memory, so what is measured is the copy of what is new (with a history of ten, after
20 iterations, all of 23 vectors), beside kernels that use the same cores. As peers the same run
beside which two threads do no more than write as many bytes to files: into new ones each time, and
over those that were written third last, as checkpoints do from the fourth on. What they take is
the least that any copy does. Beside it how long the caller stands still when one is begun.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import distvec as dv
from benchmarks.harness import Case, Ratio, Report, Table, Timing, interleaved, main
from optim import LBFGS

HISTORY, EVERY = 10, 20
VECTORS = 2 * HISTORY + 3
_KEPT = 2
_CHUNK = 1 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Where, and how much."""
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"), help="the store")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=120)
    parser.add_argument("--repeat", type=int, default=3)


def measure(options: argparse.Namespace) -> Report:
    """Runs in turns, and the stall of the caller by length."""
    length = 100_000 if options.quick else 10_000_000
    lengths = [10**power for power in range(3, 8) if 10**power <= length]
    place = Path(tempfile.mkdtemp(prefix="distvec-bench-", dir=options.directory))
    try:
        with dv.local(servers=options.servers) as ps:
            found = _runs(ps, place, length, options.iterations, options.repeat)
            begun = [_begun(ps, place / f"stall{n}", n) for n in lengths]
        raw = _raw(place / "raw", 8 * length)
    finally:
        shutil.rmtree(place)
    without = found["without"].median
    stalls = [[stall for stall, _ in some[1:]] for some in begun]  # the first begins the directory
    table = Table(f"ms, begin a checkpoint of {VECTORS} vectors, by length",
                  [f"{n:.0e}" for n in lengths],
                  {"median": [statistics.median(one) * 1e3 for one in stalls],
                   "longest": [max(one) * 1e3 for one in stalls]})  # fmt: skip
    ours = [seconds for _, seconds in begun[-1]]
    alone = Table(f"seconds for {VECTORS} vectors, with nothing beside",
                  ["new files", "over old"],
                  {"checkpoint": [statistics.median(ours[:3]), statistics.median(ours[3:])],
                   "two threads that write": list(map(statistics.median, raw))})  # fmt: skip
    title = f"checkpoints of L-BFGS, {length:,} float64, {options.servers} servers"
    ratios = [
        Ratio(f"{options.iterations} iterations: time with checkpoints over without",
              found["with"].median / without, "<= 1.03"),
        Ratio("  the same with copies into new files beside", found["new files"].median / without),
        Ratio("  the same with copies over old files", found["over old files"].median / without),
        Ratio("ms that the caller stands still, the longest", max(map(max, stalls)) * 1e3, "<= 10"),
    ]  # fmt: skip
    return Report(title, list(found.values()), ratios, {}, [table, alone])


class Copies:
    """Two threads that write the bytes of 23 vectors to two files, as often as they are asked.

    The newest two are kept, an older one is removed, or written over.
    """

    def __init__(self, place: Path, nbytes: int, *, over: bool) -> None:
        self._place, self._over = place, over
        self._vector = memoryview(np.ones(nbytes // 2, np.uint8))
        self._threads = ThreadPoolExecutor(2)
        self._running: list[Future[None]] = []
        self._made = 0
        place.mkdir()

    def begin(self) -> None:
        """Unless the one before is not done yet."""
        if all(one.done() for one in self._running):
            self._running = [self._threads.submit(self._write, k, self._made) for k in range(2)]
            self._made += 1

    def end(self) -> None:
        """Wait for it."""
        for one in self._running:
            one.result()

    def _write(self, thread: int, number: int) -> None:
        path = self._place / f"{number}-{thread}"
        old = self._place / f"{number - _KEPT - 1}-{thread}"
        if self._over and number > _KEPT:
            old.rename(path)
        with path.open("r+b" if path.exists() else "xb", buffering=0) as file:
            for _ in range(VECTORS):
                for start in range(0, len(self._vector), _CHUNK):
                    file.write(self._vector[start : start + _CHUNK])
        if not self._over:
            (self._place / f"{number - _KEPT}-{thread}").unlink(missing_ok=True)


def _runs(
    ps: dv.Session, place: Path, length: int, iterations: int, repeat: int
) -> dict[str, Timing]:
    """Of a quadratic whose curvatures spread over four decades, so that it takes all iterations."""
    curvatures = ps.logspace(0, 4, length).persist()
    folder, copied = place / "run", place / "copied"

    def solve(checkpoint: Path | bool, callback: Callable[[Any], None] | None = None) -> None:
        def value(x: dv.DistArray) -> dv.DistArray:
            return 0.5 * (x @ (curvatures * x))

        solver = LBFGS(history=HISTORY, max_iterations=iterations, gradient_tolerance=0.0)
        result = solver.minimize(
            value, ps.ones(length), checkpoint=checkpoint, every=EVERY, callback=callback
        )
        if result.nit != iterations:
            raise RuntimeError(f"it ended after {result.nit} iterations: {result.message}")

    def beside(*, over: bool) -> None:
        copies = Copies(copied, 8 * length, over=over)
        solve(False, lambda state: copies.begin() if state.iteration % EVERY == 0 else None)
        copies.end()

    def clear() -> None:
        for one in (folder, copied):
            shutil.rmtree(one, ignore_errors=True)

    cases = [
        Case("without", lambda: solve(False), prepare=clear),
        Case("with", lambda: solve(folder), prepare=clear),
        Case("new files", lambda: beside(over=False), prepare=clear),
        Case("over old files", lambda: beside(over=True), prepare=clear),
    ]
    found = interleaved(cases, repeat)
    clear()
    return found


def _raw(place: Path, nbytes: int) -> list[list[float]]:
    """Seconds of ``Copies`` with nothing beside: into new files, and over old ones."""
    copies = Copies(place, nbytes, over=True)
    found = []
    for _ in range(7):
        began = time.perf_counter()
        copies.begin()
        copies.end()
        found.append(time.perf_counter() - began)
    return [found[: _KEPT + 1], found[_KEPT + 1 :]]


def _begun(ps: dv.Session, place: Path, length: int) -> list[tuple[float, float]]:
    """Seconds of the caller, and until it was there, by checkpoint, each of new vectors."""
    found = []
    for _ in range(7):
        arrays = [ps.random.normal(length).persist() for _ in range(VECTORS)]
        named = {f"a{k}": array for k, array in enumerate(arrays)}
        began = time.perf_counter()
        writing = ps.checkpoint(place, wait=False, **named)
        took = time.perf_counter() - began
        found.append((took, writing.result().seconds))
    restored = ps.restore(place)
    np.testing.assert_array_equal(restored["a0"].numpy(), arrays[0].numpy())
    shutil.rmtree(place)
    return found


if __name__ == "__main__":
    main(__doc__, measure, configure)
