"""Tables of 64 columns: standardised, softmax along rows, products, against NumPy.

NumPy has as many threads of BLAS as there are servers, and one for everything else, as it is made.
Results stay where they are made: on the servers, or in arrays of NumPy; what is small (rows, the
Gram matrix) comes to the client.
"""

from __future__ import annotations

import argparse

import numpy as np
from threadpoolctl import threadpool_limits

import distvec as dv
from benchmarks.harness import Case, Ratio, Report, interleaved, main, speed_up

SERVERS = 2
COLUMNS = 64
GOALS = {
    "standardised": "at least 3",
    "sum along axis 0": "",
    "softmax": "",
    "T @ v": "at least 1",
    "T.T @ T": "at least 1",
}


def measure(options: argparse.Namespace) -> Report:
    """Ours on two server processes, NumPy in this one."""
    n = 50_000 if options.quick else 1_000_000
    rng = np.random.default_rng(1)
    table, vector = rng.standard_normal((n, COLUMNS)), rng.standard_normal(COLUMNS)
    with dv.local(servers=SERVERS) as ps, threadpool_limits(SERVERS, user_api="blas"):
        t = ps.array(table)
        ours = {
            "standardised": lambda: ((t - t.mean(axis=0)) / t.std(axis=0)).persist(),
            "sum along axis 0": lambda: t.sum(axis=0).numpy(),
            "softmax": lambda: dv.softmax(t, axis=1).persist(),
            "T @ v": lambda: (t @ vector).persist(),
            "T.T @ T": lambda: (t.T @ t).numpy(),
        }
        theirs = {
            "standardised": lambda: (table - table.mean(axis=0)) / table.std(axis=0),
            "sum along axis 0": lambda: table.sum(axis=0),
            "softmax": lambda: softmax(table),
            "T @ v": lambda: table @ vector,
            "T.T @ T": lambda: table.T @ table,
        }
        for name, run in ours.items():  # both compute the same
            np.testing.assert_allclose(np.asarray(run()), theirs[name](), rtol=1e-9, atol=1e-7)
        timings = interleaved(
            [
                Case(f"{who}, {name}", runs[name])
                for name in GOALS
                for who, runs in (("distvec", ours), ("NumPy", theirs))
            ],
            repeat=3 if options.quick else 9,
        )
    pairs = {name: (timings[f"distvec, {name}"], timings[f"NumPy, {name}"]) for name in GOALS}
    ratios = [Ratio(f"speed, {name}", speed_up(*pairs[name]), goal) for name, goal in GOALS.items()]
    title = f"tables ({n:,}, {COLUMNS}), float64, {SERVERS} servers"
    return Report(title, list(timings.values()), ratios)


def softmax(x: np.ndarray) -> np.ndarray:
    """Along the rows, as one writes it."""
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    powers /= powers.sum(axis=1, keepdims=True)
    return powers


if __name__ == "__main__":
    main(__doc__, measure)
