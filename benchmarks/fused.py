"""One pass over memory: 2*a + b*c - 0.5 and two dots of it, against NumPy and a plain copy.

Bytes are counted alike for all: each input once and the output once. What NumPy moves more, for
temporaries and for the dots, is what fusing saves.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import distvec as dv
from benchmarks.harness import Case, Ratio, Report, interleaved, main, speed_up

SERVERS = 2


def measure(options: argparse.Namespace) -> Report:
    """Ours on two server processes, NumPy and copies in this one."""
    n = 1_000_000 if options.quick else 20_000_000
    rng = np.random.default_rng(1)
    a, b, c = (rng.random(n) for _ in range(3))
    target = np.empty_like(a)
    with dv.local(servers=SERVERS) as ps, ThreadPoolExecutor(SERVERS) as threads:
        x, y, z = (ps.array(values) for values in (a, b, c))

        def expression() -> dv.DistArray:
            return (2 * x + y * z - 0.5).persist()

        def with_dots() -> tuple[float, float]:
            r = 2 * x + y * z - 0.5
            first, second = r @ x, r @ y
            dv.evaluate(r, first, second)
            return float(first), float(second)

        def numpy_with_dots() -> tuple[float, float]:
            r = 2 * a + b * c - 0.5
            return float(r @ a), float(r @ b)

        def copy_by_threads() -> None:
            halves = zip(np.split(target, SERVERS), np.split(a, SERVERS), strict=True)
            list(threads.map(lambda pair: np.copyto(*pair), halves))

        np.testing.assert_allclose(with_dots(), numpy_with_dots(), rtol=1e-12)
        bytes_ = 4 * a.nbytes
        timings = interleaved(
            [
                Case("distvec, expression", expression, bytes=bytes_),
                Case("distvec, with two dots", with_dots, bytes=bytes_),
                Case("NumPy, expression", lambda: 2 * a + b * c - 0.5, bytes=bytes_),
                Case("NumPy, with two dots", numpy_with_dots, bytes=bytes_),
                Case("copy, 1 thread", lambda: np.copyto(target, a), bytes=2 * a.nbytes),
                Case("copy, 2 threads", copy_by_threads, bytes=2 * a.nbytes),
            ],
            repeat=3 if options.quick else 9,
        )
    ours = timings["distvec, with two dots"]
    ratios = [
        Ratio("speed over NumPy", speed_up(ours, timings["NumPy, with two dots"]), "at least 3"),
        Ratio("speed over copy", speed_up(ours, timings["copy, 1 thread"]), "at least 0.8"),
        Ratio("speed over copy, 2 threads", speed_up(ours, timings["copy, 2 threads"])),
    ]
    title = f"fused expression, n = {n:.0e}, float64, {SERVERS} servers"
    return Report(title, list(timings.values()), ratios)


if __name__ == "__main__":
    main(__doc__, measure)
