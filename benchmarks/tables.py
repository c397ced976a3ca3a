"""Tables beside NumPy and dask.array: products, standardising, softmax, reductions along an axis.

Ours on server processes, NumPy's BLAS and dask on as many threads as there are servers. What is
asked for is computed and kept where the library keeps it; small results come to the client.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.special

import distvec as dv
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
GOALS = {"T @ v": 1.0, "T.T @ T": 1.0, "standardise": 3.0}
"""Least speed over NumPy."""
DASK = 3.0

Operation = Callable[[], object]


def measure(options: argparse.Namespace) -> Report:
    """Each operation by each library, in turns."""
    n, k = (20_000, 64) if options.quick else (options.rows, options.columns)
    rng = np.random.default_rng(1)
    table, right = rng.standard_normal((n, k)), rng.standard_normal(k)
    small = rng.standard_normal((k, 8))
    with dv.local(servers=SERVERS) as ps:
        libraries = {
            "distvec": by_distvec(ps.array(table), right, small),
            "NumPy": by_numpy(table, right, small),
        }
        if installed("dask"):
            libraries["dask.array"] = by_dask(table, right, small)
        cases = [
            Case(f"{library}, {name}", run)
            for name in libraries["distvec"]
            for library, operations in libraries.items()
            for run in [operations[name]]
        ]
        timings = interleaved(cases, repeat=3 if options.quick else 7)
    ratios = [
        Ratio(
            f"speed over {library}, {name}",
            speed_up(timings[f"distvec, {name}"], timings[f"{library}, {name}"]),
            goal(library, name),
        )
        for library in list(libraries)[1:]
        for name in libraries["distvec"]
    ]
    facts = not_measured("dask")
    title = f"tables, n = {n:,}, k = {k}, float64, {SERVERS} servers"
    return Report(title, list(timings.values()), ratios, facts)


def goal(library: str, name: str) -> str:
    """What a ratio should be."""
    least = GOALS.get(name) if library == "NumPy" else DASK
    return f"at least {least:g}" if least else ""


def by_distvec(t: dv.DistArray, v: np.ndarray, s: np.ndarray) -> Mapping[str, Operation]:
    """Results of as many rows stay on the servers."""
    return {
        "T @ v": lambda: (t @ v).persist(),
        "T.T @ T": lambda: (t.T @ t).numpy(),
        "T @ S": lambda: (t @ s).persist(),
        "standardise": lambda: ((t - t.mean(0)) / t.std(0)).persist(),
        "softmax": lambda: dv.softmax(t, axis=1).persist(),
        "sum(0)": lambda: t.sum(0).numpy(),
        "sum(1)": lambda: t.sum(1).persist(),
        "argmax(1)": lambda: t.argmax(1).persist(),
        "T * row": lambda: (t * v).persist(),
    }


def by_numpy(t: np.ndarray, v: np.ndarray, s: np.ndarray) -> Mapping[str, Operation]:
    """As one types it."""
    return {
        "T @ v": lambda: t @ v,
        "T.T @ T": lambda: t.T @ t,
        "T @ S": lambda: t @ s,
        "standardise": lambda: (t - t.mean(0)) / t.std(0),
        "softmax": lambda: scipy.special.softmax(t, axis=1),
        "sum(0)": lambda: t.sum(0),
        "sum(1)": lambda: t.sum(1),
        "argmax(1)": lambda: t.argmax(1),
        "T * row": lambda: t * v,
    }


def by_dask(t: np.ndarray, v: np.ndarray, s: np.ndarray) -> Mapping[str, Operation]:
    """On the threaded scheduler; large results stay in chunks."""
    array: Any = importlib.import_module("dask.array")
    d = array.from_array(t, chunks=(max(1, len(t) // 32), t.shape[1]), name=False)

    def softmax() -> Any:
        small = array.exp(d - d.max(axis=1, keepdims=True))
        return small / small.sum(axis=1, keepdims=True)

    expressions: dict[str, Callable[[], Any]] = {
        "T @ v": lambda: d @ v,
        "T.T @ T": lambda: d.T @ d,
        "T @ S": lambda: d @ s,
        "standardise": lambda: (d - d.mean(0)) / d.std(0),
        "softmax": softmax,
        "sum(0)": lambda: d.sum(0),
        "sum(1)": lambda: d.sum(1),
        "argmax(1)": lambda: d.argmax(1),
        "T * row": lambda: d * v,
    }

    def runner(expression: Callable[[], Any]) -> Operation:
        return lambda: expression().persist(scheduler="threads", num_workers=SERVERS)

    return {name: runner(expression) for name, expression in expressions.items()}


def sizes(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=64)


if __name__ == "__main__":
    main(__doc__, measure, sizes)
