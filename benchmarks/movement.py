"""Scans, sorts, sets, counts, gathers and tall decompositions, beside NumPy and dask.array.

Ours on server processes, dask on as many threads as there are servers. Results stay where they are
made; dask's are computed, as nothing else makes it run.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

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
CHUNK = 1 << 21
"""Elements of a chunk of dask's, as in ``benchmarks.fused``."""
ROWS_OF_CHUNK = 1 << 17

Operation = Callable[[], object]

GOALS = {
    "cumsum": "1.5",
    "sort float64": "1.8",
    "sort int64": "1.8",
    "unique": "2",
    "bincount": "2",
    "weighted bincount": "1",
    "histograms of a tree": "1",
    "histogram": "2",
    "weighted histogram": "1",
    "add.at": "1",
    "quantile": "2",
    "gather": "1",
    "gather in order": "1",
    "PageRank": "1",
    "stencil": "1",
    "stencil of a table": "1",
    "scores": "1",
    "qr": "1",
}
"""By operation: how many times as fast as NumPy it should be."""
FEATURES, NODES = 8, 4
"""Of a level of boosted trees, whose bins are bytes."""
GRID = 1000
"""Columns of the table of the heat equation."""
DEGREE = 10
"""Edges of a node."""


class Data:
    """What all libraries compute on."""

    def __init__(self, n: int, rows: int) -> None:
        rng = np.random.default_rng(1)
        self.floats = rng.standard_normal(n)
        self.integers = rng.integers(-(2**62), 2**62, n)
        self.labels = rng.integers(0, 1000, n)
        self.order = rng.permutation(n)
        self.sorted = np.sort(rng.integers(0, n, n))
        self.grid = rng.random((n // GRID, GRID))
        nodes = max(1, n // DEGREE)
        self.ranks = rng.random(nodes)
        self.sources, self.targets = rng.integers(0, nodes, (2, n))
        self.weights = rng.random(n)
        self.bins = rng.integers(0, 64, (n // FEATURES, FEATURES)).astype(np.uint8)
        self.node = rng.integers(0, NODES, n // FEATURES)
        self.gradient = rng.standard_normal(n // FEATURES)
        self.table = rng.standard_normal((rows, 64))


def page_rank(ranks: Any, sources: Any, targets: Any, weights: Any) -> Any:
    """One step, as one types it."""
    sums = np.bincount(targets, weights=ranks[sources] * weights, minlength=len(ranks))
    return 0.15 / len(ranks) + 0.85 * sums


def stencil(u: Any) -> Any:
    """One step of the heat equation on a line, in place."""
    u[1:-1] = 0.25 * (u[:-2] + 2 * u[1:-1] + u[2:])
    return u


def stencil_of_a_table(u: Any) -> Any:
    """The same on a grid."""
    u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return u


def scores(x: Any) -> Any:
    """Along the first three principal components."""
    centered = x - x.mean(0)
    return centered @ np.linalg.eigh(np.asarray(centered.T @ centered))[1][:, -3:]


def histograms_of_a_tree(bins: Any, node: Any, gradient: Any) -> list[Any]:
    """Sums of gradients by node and bin, for each feature, as one types it."""
    return [
        np.bincount(node * 64 + bins[:, f], weights=gradient, minlength=NODES * 64)
        for f in range(FEATURES)
    ]


def measure(options: argparse.Namespace) -> Report:
    """Each operation by each library, in turns."""
    n, rows = (1_000_000, 50_000) if options.quick else (options.n, options.n // 20)
    data = Data(n, rows)
    with dv.local(servers=options.servers) as ps:
        libraries = {"distvec": by_distvec(ps, data), "NumPy": by_numpy(data)}
        if installed("dask"):
            libraries["dask.array"] = by_dask(data, options.servers)
        cases = [
            Case(f"{library}, {name}", operations[name])
            for name in GOALS
            for library, operations in libraries.items()
            if name in operations and name in (options.only or GOALS)
        ]
        timings = interleaved(cases, repeat=3 if options.quick else 5)
    ratios = []
    for name, goal in GOALS.items():
        for library in list(libraries)[1:]:
            peer = timings.get(f"{library}, {name}")
            if peer is not None:
                speed = speed_up(timings[f"distvec, {name}"], peer)
                wanted = goal if library == "NumPy" else "3"
                ratios.append(Ratio(f"speed over {library}, {name}", speed, f"at least {wanted}"))
    facts = not_measured("dask")
    title = f"movements, n = {n:.0e}, {options.servers} servers; qr of {rows:.0e} x 64"
    return Report(title, list(timings.values()), ratios, facts)


def by_distvec(ps: dv.Session, data: Data) -> Mapping[str, Operation]:
    """Results stay on the servers, but for those that are small."""
    x, k, labels = ps.array(data.floats), ps.array(data.integers), ps.array(data.labels)
    order, table = ps.array(data.order), ps.array(data.table)
    tree = ps.array(data.bins), ps.array(data.node), ps.array(data.gradient)
    in_order, line, grid = ps.array(data.sorted), ps.array(data.floats), ps.array(data.grid)
    graph = [ps.array(a) for a in (data.ranks, data.sources, data.targets, data.weights)]

    def factorised() -> None:
        q, r = np.linalg.qr(table)
        dv.evaluate(q, r)

    def added() -> None:
        z = ps.zeros(1000)
        np.add.at(z, labels, x)
        z.persist()

    return {
        "cumsum": lambda: np.cumsum(x).persist(),
        "sort float64": lambda: np.sort(x).persist(),
        "sort int64": lambda: np.sort(k).persist(),
        "unique": lambda: np.unique(labels).persist(),
        "bincount": lambda: np.bincount(labels, minlength=1000).numpy(),
        "weighted bincount": lambda: np.bincount(labels, weights=x, minlength=1000).numpy(),
        "histograms of a tree": lambda: dv.evaluate(*histograms_of_a_tree(*tree)),
        "histogram": lambda: np.histogram(x, 100, (-4.0, 4.0))[0].numpy(),
        "weighted histogram": lambda: np.histogram(x, 100, (-4.0, 4.0), weights=x)[0].numpy(),
        "add.at": added,
        "quantile": lambda: np.quantile(x, [0.1, 0.5, 0.9]).numpy(),
        "gather": lambda: x[order].persist(),
        "gather in order": lambda: x[in_order].persist(),
        "PageRank": lambda: page_rank(*graph).persist(),
        "stencil": lambda: stencil(line).persist(),
        "stencil of a table": lambda: stencil_of_a_table(grid).persist(),
        "scores": lambda: scores(table).numpy(),
        "qr": factorised,
    }


def by_numpy(data: Data) -> Mapping[str, Operation]:
    """As one types it."""
    x, k, labels = data.floats, data.integers, data.labels
    line, grid = data.floats.copy(), data.grid.copy()
    return {
        "cumsum": lambda: np.cumsum(x),
        "sort float64": lambda: np.sort(x),
        "sort int64": lambda: np.sort(k),
        "unique": lambda: np.unique(labels),
        "bincount": lambda: np.bincount(labels, minlength=1000),
        "weighted bincount": lambda: np.bincount(labels, weights=x, minlength=1000),
        "histograms of a tree": lambda: histograms_of_a_tree(data.bins, data.node, data.gradient),
        "histogram": lambda: np.histogram(x, 100, (-4.0, 4.0)),
        "weighted histogram": lambda: np.histogram(x, 100, (-4.0, 4.0), weights=x),
        "add.at": lambda: np.add.at(np.zeros(1000), labels, x),
        "quantile": lambda: np.quantile(x, [0.1, 0.5, 0.9]),
        "gather": lambda: np.take(x, data.order),
        "gather in order": lambda: x[data.sorted],
        "PageRank": lambda: page_rank(data.ranks, data.sources, data.targets, data.weights),
        "stencil": lambda: stencil(line),
        "stencil of a table": lambda: stencil_of_a_table(grid),
        "scores": lambda: scores(data.table),
        "qr": lambda: np.linalg.qr(data.table),
    }


def by_dask(data: Data, threads: int) -> Mapping[str, Operation]:
    """The same expressions; it has no sort, and its quantiles of long arrays are approximate."""
    da, dask = importlib.import_module("dask.array"), importlib.import_module("dask")
    x, labels = da.from_array(data.floats, chunks=CHUNK), da.from_array(data.labels, chunks=CHUNK)
    order, in_order = (da.from_array(a, chunks=CHUNK) for a in (data.order, data.sorted))
    table = da.from_array(data.table, chunks=(ROWS_OF_CHUNK, 64))

    def run(*made: Any) -> Any:
        return dask.compute(*made, scheduler="threads", num_workers=threads)

    return {
        "cumsum": lambda: run(da.cumsum(x, axis=0)),
        "unique": lambda: run(da.unique(labels)),
        "bincount": lambda: run(da.bincount(labels, minlength=1000)),
        "weighted bincount": lambda: run(da.bincount(labels, weights=x, minlength=1000)),
        "histogram": lambda: run(da.histogram(x, 100, (-4.0, 4.0))[0]),
        "weighted histogram": lambda: run(da.histogram(x, 100, (-4.0, 4.0), weights=x)[0]),
        "quantile": lambda: run(da.percentile(x, [10, 50, 90])),
        "gather": lambda: run(x[order]),
        "gather in order": lambda: run(x[in_order]),
        "stencil": lambda: run(stencil(x.copy())),
        "qr": lambda: run(*da.linalg.qr(table)),
    }


def options(parser: argparse.ArgumentParser) -> None:
    """Other sizes, and some operations alone."""
    parser.add_argument(
        "--servers", type=int, default=SERVERS, help="processes, or threads of dask"
    )
    parser.add_argument("--n", type=int, default=20_000_000, help="elements of the vectors")
    parser.add_argument("--only", nargs="+", choices=list(GOALS), help="these operations alone")


if __name__ == "__main__":
    main(__doc__, measure, options)
