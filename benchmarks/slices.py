"""Slices, masks and assignment to them, beside NumPy, dask.array and a plain copy of their bytes.

Ours on server processes, dask and the copy on as many threads as there are servers. Bytes are
counted alike for all: what the expression reads, once, and what it writes; of masks their own byte
an element. The yardstick is what ``numpy.copyto`` takes for as many.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

import distvec as dv
from benchmarks.fused import copy_by_threads
from benchmarks.harness import (
    Case,
    Ratio,
    Report,
    installed,
    interleaved,
    main,
    not_measured,
    speed_up,
)

SERVERS = 2
CHUNK = 1 << 21
"""Elements of a chunk of dask's, as in ``benchmarks.fused``."""

Operation = Callable[[], object]

BYTES = {
    "a[1:] - a[:-1]": 16,
    "a[::2] + b[1::2]": 20,  # whole lines of memory are read, so all of a and b
    "heat step": 16,
    "a[n//4:] + b[:-n//4]": 18,
    "a[m].sum()": 9,
    "a[m].mean()": 9,
    "x[m] = 0": 17,
    "x[10:-10] = b[10:-10]": 24,  # the old values are read for where they stay
}
"""By expression: bytes that it moves for each of the n elements of float64."""


def measure(options: argparse.Namespace) -> Report:
    """Each expression by each library, in turns."""
    n = 1_000_000 if options.quick else 20_000_000
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal(n), rng.standard_normal(n)
    out = np.empty_like(a)
    with dv.local(servers=SERVERS) as ps, ThreadPoolExecutor(SERVERS) as threads:
        libraries = {"distvec": by_distvec(ps, a, b), "NumPy": by_numpy(a, b)}
        if installed("dask"):
            libraries["dask.array"] = by_dask(a, b)
        cases = [
            Case(f"{library}, {name}", operations[name], bytes=BYTES[name] * n)
            for name in libraries["distvec"]
            for library, operations in libraries.items()
            if name in operations
        ]
        cases.append(Case("copy", lambda: copy_by_threads(threads, out, a), bytes=16 * n))
        timings = interleaved(cases, repeat=3 if options.quick else 9)
    ratios = []
    for name in libraries["distvec"]:
        ours = timings[f"distvec, {name}"]
        ratios.append(
            Ratio(f"time over that of a copy, {name}", 1 / speed_up(ours, timings["copy"]), "1.2")
        )
        for library in list(libraries)[1:]:
            peer = timings.get(f"{library}, {name}")
            if peer is not None:
                same = replace(peer, bytes=0), replace(ours, bytes=0)
                goal = "at least 3" if library != "NumPy" else ""
                ratios.append(
                    Ratio(f"speed over {library}, {name}", speed_up(same[1], same[0]), goal)
                )
    facts = not_measured("dask")
    title = f"slices and masks, n = {n:.0e}, float64, {SERVERS} servers"
    return Report(title, list(timings.values()), ratios, facts)


def by_distvec(ps: dv.Session, a: np.ndarray, b: np.ndarray) -> Mapping[str, Operation]:
    """Results stay on the servers."""
    x, y = ps.array(a), ps.array(b)
    n, mask = len(a), (x > 0).persist()
    changed = [(x * 1).persist()]

    def to_zero() -> None:
        changed[0][mask] = 0
        changed[0].persist()

    def to_slice() -> None:
        changed[0][10:-10] = y[10:-10]
        changed[0].persist()

    return {
        "a[1:] - a[:-1]": lambda: (x[1:] - x[:-1]).persist(),
        "a[::2] + b[1::2]": lambda: (x[::2] + y[1::2]).persist(),
        "heat step": lambda: (x[1:-1] + 0.1 * (x[2:] - 2 * x[1:-1] + x[:-2])).persist(),
        "a[n//4:] + b[:-n//4]": lambda: (x[n // 4 :] + y[: n - n // 4]).persist(),
        "a[m].sum()": lambda: float(x[mask].sum()),
        "a[m].mean()": lambda: float(x[mask].mean()),
        "x[m] = 0": to_zero,
        "x[10:-10] = b[10:-10]": to_slice,
    }


def by_numpy(a: np.ndarray, b: np.ndarray) -> Mapping[str, Operation]:
    """As one types it."""
    n, mask, changed = len(a), a > 0, a.copy()

    def to_zero() -> None:
        changed[mask] = 0

    def to_slice() -> None:
        changed[10:-10] = b[10:-10]

    return {
        "a[1:] - a[:-1]": lambda: a[1:] - a[:-1],
        "a[::2] + b[1::2]": lambda: a[::2] + b[1::2],
        "heat step": lambda: a[1:-1] + 0.1 * (a[2:] - 2 * a[1:-1] + a[:-2]),
        "a[n//4:] + b[:-n//4]": lambda: a[n // 4 :] + b[: n - n // 4],
        "a[m].sum()": lambda: a[mask].sum(),
        "a[m].mean()": lambda: a[mask].mean(),
        "x[m] = 0": to_zero,
        "x[10:-10] = b[10:-10]": to_slice,
    }


def by_dask(a: np.ndarray, b: np.ndarray) -> Mapping[str, Operation]:
    """On the threaded scheduler; results stay in chunks. It has no assignment in place."""
    array: Any = importlib.import_module("dask.array")
    x, y, mask = (array.from_array(v, chunks=CHUNK, name=False) for v in (a, b, a > 0))
    n = len(a)
    expressions: dict[str, Callable[[], Any]] = {
        "a[1:] - a[:-1]": lambda: x[1:] - x[:-1],
        "a[::2] + b[1::2]": lambda: x[::2] + y[1::2],
        "heat step": lambda: x[1:-1] + 0.1 * (x[2:] - 2 * x[1:-1] + x[:-2]),
        "a[n//4:] + b[:-n//4]": lambda: x[n // 4 :] + y[: n - n // 4],
        "a[m].sum()": lambda: x[mask].sum(),
        "a[m].mean()": lambda: x[mask].mean(),
    }

    def runner(expression: Callable[[], Any]) -> Operation:
        return lambda: expression().persist(scheduler="threads", num_workers=SERVERS)

    return {name: runner(expression) for name, expression in expressions.items()}


if __name__ == "__main__":
    main(__doc__, measure)
