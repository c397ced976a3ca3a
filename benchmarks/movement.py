"""Scans, sorts, sets, counts, gathers, draws and tall decompositions, beside NumPy and dask.array.

Each line runs as users write it, for all libraries: ours on one server in this process and on
server processes, dask on as many threads as there are servers. Arrays stay where they are made;
dask's are computed, as nothing else makes it run. Data are made for each line and size alone, so
that long ones fit.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import distvec as dv
from benchmarks.harness import (
    Case,
    Ratio,
    Report,
    Table,
    heat,
    installed,
    interleaved,
    main,
    not_measured,
    seconds_of,
    speed_up,
)

SERVERS = 2
SIZES = (10**4, 10**5, 10**6, 10**7)
QUICK_SIZES = (10**4, 10**5)
CHUNK = 1 << 21
"""Elements of a chunk of dask's, as in ``benchmarks.fused``."""
SECONDS = 0.6
"""A line is repeated until NumPy has run about so long."""
HEATING_SECONDS = 1.0
"""So long a line is run before."""
FEATURES, NODES = 8, 4
"""Of a level of boosted trees, whose bins are bytes."""
GRID = 1000
"""Columns of the table of the heat equation."""
DEGREE = 10
"""Edges of a node."""
COLUMNS = 64
"""Of the table that is decomposed."""

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Line:
    """An operation, for arrays of any library."""

    run: Callable[..., Any]
    """Of the library's random generator and the arrays, by their names."""
    data: Callable[[Any, int], Arrays]
    """Arrays of NumPy, by a generator and a size."""
    goal: float = 1.0
    """How many times as fast as NumPy it should be from 1e5 on."""
    dask: bool = True
    """Whether dask has it."""


def floats(rng: Any, n: int) -> Arrays:
    """Normal ones."""
    return {"x": rng.standard_normal(n)}


def nothing(rng: Any, n: int) -> Arrays:
    """For draws: a length."""
    return {"n": n}


def labels(rng: Any, n: int) -> Arrays:
    """Bins, and a weight for each."""
    return {"k": rng.integers(0, 1000, n), "x": rng.standard_normal(n)}


def any_order(dtype: str) -> Callable[[Any, int], Arrays]:
    """Elements, and a permutation of their indices."""
    return lambda rng, n: {**floats(rng, n), "i": rng.permutation(n).astype(dtype)}


def graph(rng: Any, n: int) -> Arrays:
    """Edges with weights, and the ranks of their nodes."""
    nodes = max(1, n // DEGREE)
    sources, targets = rng.integers(0, nodes, (2, n))
    return {
        "ranks": rng.random(nodes), "sources": sources, "targets": targets,
        "weights": rng.random(n),
    }  # fmt: skip


def level(rng: Any, n: int) -> Arrays:
    """Features in bins, the node and the gradient of each row."""
    rows = n // FEATURES
    return {
        "bins": rng.integers(0, 64, (rows, FEATURES)).astype(np.uint8),
        "node": rng.integers(0, NODES, rows),
        "gradient": rng.standard_normal(rows),
    }


def tall(rng: Any, n: int) -> Arrays:
    """A table of a twentieth as many rows."""
    return {"t": rng.standard_normal((n // 20, COLUMNS))}


def page_rank(_: Any, ranks: Any, sources: Any, targets: Any, weights: Any) -> Any:
    """One step, as one types it."""
    sums = np.bincount(targets, weights=ranks[sources] * weights, minlength=len(ranks))
    return 0.15 / len(ranks) + 0.85 * sums


def stencil(_: Any, x: Any) -> Any:
    """One step of the heat equation on a line, in place."""
    x[1:-1] = 0.25 * (x[:-2] + 2 * x[1:-1] + x[2:])
    return x


def stencil_of_a_table(_: Any, t: Any) -> Any:
    """The same on a grid."""
    t[1:-1, 1:-1] = 0.25 * (t[:-2, 1:-1] + t[2:, 1:-1] + t[1:-1, :-2] + t[1:-1, 2:])
    return t


def scores(_: Any, t: Any) -> Any:
    """Along the first three principal components."""
    centered = t - t.mean(0)
    return np.asarray(centered @ np.linalg.eigh(np.asarray(centered.T @ centered))[1][:, -3:])


def histograms_of_a_tree(_: Any, bins: Any, node: Any, gradient: Any) -> list[Any]:
    """Sums of gradients by node and bin, for each feature, as one types it."""
    return [
        np.bincount(node * 64 + bins[:, f], weights=gradient, minlength=NODES * 64)
        for f in range(FEATURES)
    ]


def added(_: Any, k: Any, x: Any) -> Any:
    """Values added at indices that repeat."""
    z = np.zeros(1000, like=x)
    np.add.at(z, k, x)
    return z


LINES = {
    "random": Line(lambda rng, n: rng.random(n), nothing),
    "random.normal": Line(lambda rng, n: rng.normal(0.0, 1.0, n), nothing),
    "random.integers": Line(lambda rng, n: rng.integers(0, 1000, n), nothing),
    "cumsum": Line(lambda _, x: np.cumsum(x, axis=0), floats, 1.5),
    "sort float64": Line(lambda _, x: np.sort(x), floats, dask=False),
    "sort float32": Line(
        lambda _, x: np.sort(x),
        lambda rng, n: {"x": rng.standard_normal(n).astype("f4")},
        dask=False,
    ),
    "sort int64": Line(
        lambda _, x: np.sort(x),
        lambda rng, n: {"x": rng.integers(-(2**62), 2**62, n)},
        dask=False,
    ),
    "argsort": Line(lambda _, x: np.argsort(x), floats, dask=False),
    "unique of labels": Line(lambda _, k, x: np.unique(k), labels),
    "unique of floats": Line(lambda _, x: np.unique(x), floats),
    "median": Line(lambda _, x: np.median(x), floats, dask=False),
    "quantile": Line(lambda _, x: np.quantile(x, [0.1, 0.5, 0.9]), floats, dask=False),
    "bincount": Line(lambda _, k, x: np.bincount(k, minlength=1000), labels),
    "weighted bincount": Line(lambda _, k, x: np.bincount(k, weights=x, minlength=1000), labels),
    "histograms of a tree": Line(histograms_of_a_tree, level, dask=False),
    "histogram": Line(lambda _, x: np.histogram(x, 100, (-4.0, 4.0))[0], floats),
    "weighted histogram": Line(
        lambda _, k, x: np.histogram(x, 100, (-4.0, 4.0), weights=x)[0], labels
    ),
    "add.at": Line(added, labels, dask=False),
    "gather": Line(lambda _, x, i: x[i], any_order("int64")),
    "gather by int32": Line(lambda _, x, i: x[i], any_order("int32")),
    "gather in order": Line(
        lambda _, x, i: x[i], lambda rng, n: {**floats(rng, n), "i": np.sort(rng.integers(0, n, n))}
    ),
    "PageRank": Line(page_rank, graph, dask=False),
    "stencil": Line(stencil, floats),
    "stencil of a table": Line(
        stencil_of_a_table, lambda rng, n: {"t": rng.random((n // GRID, GRID))}
    ),
    "scores": Line(scores, tall, dask=False),
    "qr": Line(lambda _, t: np.linalg.qr(t), tall),
}  # fmt: skip
IN_PROCESS = "in process"


def measure(options: argparse.Namespace) -> Report:
    """Milliseconds of each line by each library, in turns."""
    sizes = [int(n) for n in options.sizes or (QUICK_SIZES if options.quick else SIZES)]
    lines = {k: v for k, v in LINES.items() if any(fnmatch.fnmatchcase(k, p) for p in options.only)}
    tables, ratios = [], []
    with dv.local(servers=1, in_process=True) as one, dv.local(servers=options.servers) as many:
        sessions = {IN_PROCESS: one, f"{options.servers} servers": many}
        columns = [*sessions, "NumPy", "dask.array"]
        for n in sorted(sizes, reverse=True):  # the long ones make a line hot
            rows = {}
            for name, line in lines.items():
                medians, speeds = timed(line, n, sessions, options)
                rows[name] = [*map(medians.get, columns), *speeds]
                goal = f"at least {line.goal:g}" if n >= 10**5 else ""
                ratios.append(Ratio(f"speed over NumPy, {name}, n = {n:.0e}", max(speeds), goal))
            wide = [*columns, *(f"x NumPy, {one}" for one in sessions)]
            tables.append(Table(f"ms, n = {n:.0e}", wide, rows))
    title = f"movements; tables of qr and scores have n / 20 rows of {COLUMNS}"
    return Report(title, [], ratios, not_measured("dask"), tables)


def timed(
    line: Line, n: int, sessions: Mapping[str, dv.Session], options: argparse.Namespace
) -> tuple[dict[str, float], list[float]]:
    """Milliseconds by library, and how many times as fast as NumPy each session is."""
    given = line.data(np.random.default_rng(1), n)
    peers = {"NumPy": partial(line.run, np.random.default_rng(1), **given)}
    if line.dask and installed("dask"):
        peers["dask.array"] = by_dask(line, given, options.servers)
    cases = [Case(name, evaluated(line, ps, given)) for name, ps in sessions.items()]
    cases += [Case(name, run) for name, run in peers.items()]
    for case in cases[: len(sessions)]:
        heat(case.run, options.quick, HEATING_SECONDS)
    seconds = max(min(seconds_of(peers["NumPy"]) for _ in range(2)), 1e-6)
    repeat = 3 if options.quick else min(max(3, int(SECONDS / seconds)), 25)
    found = interleaved(cases, repeat, in_a_row=1 if n > 10**5 else 3)
    medians = {name: timing.median * 1e3 for name, timing in found.items()}
    return medians, [speed_up(found[name], found["NumPy"]) for name in sessions]


def evaluated(line: Line, ps: dv.Session, given: Arrays) -> Callable[[], object]:
    """The line on servers, and its results computed."""
    placed = {k: v if isinstance(v, int) else ps.array(v) for k, v in given.items()}

    def run() -> None:
        made = line.run(ps.random, **placed)
        results = made if isinstance(made, list | tuple) else [made]
        dv.evaluate(*(one for one in results if isinstance(one, dv.DistArray)))

    return run


def by_dask(line: Line, given: Arrays, threads: int) -> Callable[[], object]:
    """The same expression by dask's functions, which NumPy's call."""
    da, dask = importlib.import_module("dask.array"), importlib.import_module("dask")
    placed = {}
    for name, array in given.items():
        rows = max(1, CHUNK // max(1, array[:1].size)) if np.ndim(array) else 0
        whole = tuple(array.shape[1:]) if rows else ()
        placed[name] = da.from_array(array, chunks=(rows, *whole)) if rows else array
    random = da.random.default_rng(1)

    def run() -> object:
        copies = {k: v.copy() if hasattr(v, "dask") else v for k, v in placed.items()}
        return dask.compute(line.run(random, **copies), scheduler="threads", num_workers=threads)

    return run


def options(parser: argparse.ArgumentParser) -> None:
    """Other sizes, and some operations alone."""
    parser.add_argument(
        "--servers", type=int, default=SERVERS, help="processes, or threads of dask"
    )
    parser.add_argument("--sizes", nargs="+", type=float, help="elements of the arrays")
    parser.add_argument(
        "--only", nargs="+", default=["*"], help="operations that a pattern matches"
    )


if __name__ == "__main__":
    main(__doc__, measure, options)
