"""One pass over memory: 2*a + b*c - 0.5 and two dots of it, against NumPy and a plain copy.

Beside them two libraries that fuse as well: numexpr (the expression; its own sum of products is
slower than NumPy's dot, which it gets instead) and dask.array, if installed, both on as many
threads as there are servers. Bytes are counted alike for all: each input once and the output once.
What others move more, for temporaries and for the dots, is what fusing saves. The first runs are
those of servers that have just started, on a machine where nothing was compiled yet; all else is
measured once kernels are compiled.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numexpr
import numpy as np

import distvec as dv
from benchmarks.harness import (
    Case,
    Ratio,
    Report,
    Timing,
    heat,
    installed,
    interleaved,
    main,
    not_measured,
    nothing_compiled,
    seconds_of,
    speed_up,
)

SERVERS = 2
CHUNK = 1 << 21
"""Elements in a chunk of dask's; what measured best of 2**16 to 2**23 on two cores."""
GOALS = {"NumPy": "at least 3", "numexpr": "", "dask.array": ""}

Dots = Callable[[], tuple[float, float]]


def measure(options: argparse.Namespace) -> Report:
    """Ours on two server processes, the others in this one."""
    n = 1_000_000 if options.quick else 20_000_000
    rng = np.random.default_rng(1)
    a, b, c = (rng.random(n) for _ in range(3))
    out = np.empty_like(a)
    with (
        nothing_compiled(),
        dv.local(servers=SERVERS) as ps,
        ThreadPoolExecutor(SERVERS) as threads,
    ):
        x, y, z = (ps.array(values) for values in (a, b, c))
        with_dots = {
            "distvec": by_distvec(x, y, z),
            "NumPy": by_numpy(a, b, c),
        }
        with_dots["numexpr"] = by_numexpr(a, b, c, out)
        if installed("dask"):
            with_dots["dask.array"] = by_dask(a, b, c)

        def expression() -> None:
            (2 * x + y * z - 0.5).persist()

        firsts = [
            Timing(
                "distvec, with two dots, first run", [heat(with_dots["distvec"], options.quick)]
            ),
            Timing("NumPy, with two dots, first run", [seconds_of(with_dots["NumPy"])]),
        ]
        heat(expression, options.quick)
        for dots in with_dots.values():  # all compute the same
            np.testing.assert_allclose(dots(), with_dots["NumPy"](), rtol=1e-12)
        timings = interleaved(
            [
                Case("distvec, expression", expression),
                Case("NumPy, expression", lambda: 2 * a + b * c - 0.5),
                *(Case(f"{name}, with two dots", dots) for name, dots in with_dots.items()),
                Case("copy, 1 thread", lambda: np.copyto(out, a)),
                Case("copy, 2 threads", lambda: copy_by_threads(threads, out, a)),
            ],
            repeat=3 if options.quick else 9,
        )
    sized = {
        name: replace(timing, bytes=(2 if name.startswith("copy") else 4) * a.nbytes)
        for name, timing in timings.items()
    }
    facts = not_measured("dask")
    title = f"fused expression, n = {n:.0e}, float64, {SERVERS} servers"
    return Report(title, [*sized.values(), *firsts], compared(sized, with_dots), facts)


def compared(timings: Mapping[str, Timing], peers: Iterable[str]) -> list[Ratio]:
    """The expression with two dots against that of each peer, and against copies."""
    ours = timings["distvec, with two dots"]
    ratios = [
        Ratio(f"speed over {name}", speed_up(ours, timings[f"{name}, with two dots"]), GOALS[name])
        for name in peers
        if name in GOALS
    ]
    return [
        *ratios,
        Ratio("speed over copy", speed_up(ours, timings["copy, 1 thread"]), "at least 0.8"),
        Ratio("speed over copy, 2 threads", speed_up(ours, timings["copy, 2 threads"])),
    ]


def copy_by_threads(threads: ThreadPoolExecutor, target: np.ndarray, source: np.ndarray) -> None:
    """A copy in as many pieces as there are servers."""
    pieces = zip(np.split(target, SERVERS), np.split(source, SERVERS), strict=True)
    list(threads.map(lambda pair: np.copyto(*pair), pieces))


def by_distvec(x: dv.DistArray, y: dv.DistArray, z: dv.DistArray) -> Dots:
    """The result stays on the servers, the dots come in the same message."""

    def run() -> tuple[float, float]:
        r = 2 * x + y * z - 0.5
        first, second = r @ x, r @ y
        dv.evaluate(r, first, second)
        return float(first), float(second)

    return run


def by_numpy(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Dots:
    """Operator by operator."""

    def run() -> tuple[float, float]:
        r = 2 * a + b * c - 0.5
        return float(r @ a), float(r @ b)

    return run


def by_numexpr(a: np.ndarray, b: np.ndarray, c: np.ndarray, out: np.ndarray) -> Dots:
    """The expression in one pass into ``out``, then NumPy's dots."""
    numexpr.set_num_threads(SERVERS)
    values = {"a": a, "b": b, "c": c}

    def run() -> tuple[float, float]:
        r = numexpr.evaluate("2*a + b*c - 0.5", local_dict=values, out=out)
        return float(r @ a), float(r @ b)

    return run


def by_dask(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Dots:
    """All three in one graph on the threaded scheduler; the result stays in chunks."""
    dask, array = importlib.import_module("dask"), importlib.import_module("dask.array")
    x, y, z = (array.from_array(values, chunks=CHUNK, name=False) for values in (a, b, c))

    def run() -> tuple[float, float]:
        r = 2 * x + y * z - 0.5
        _, first, second = dask.persist(r, r @ x, r @ y, scheduler="threads", num_workers=SERVERS)
        return float(first), float(second)

    return run


if __name__ == "__main__":
    main(__doc__, measure)
