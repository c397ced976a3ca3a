"""What value and gradient of each loss cost per non-zero, beside those of the logistic one.

All run in one process on one thread, in turn. Rows are uniformly random sparse ones, of several
sizes, and dense ones beside NumPy's BLAS by hand: two products with the whole matrix, which is read
twice for it. A loss with tables of k columns in all does k times the work: its cost is that per
non-zero and column.
"""

from __future__ import annotations

import argparse
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

import distvec.losses
from benchmarks.harness import Case, Ratio, Report, Table, Timing, interleaved, main
from benchmarks.sparse_rows import NONZEROS, uniform_rows
from distvec.losses import Loss, Rows

DENSE_COLUMNS = 100
CLASSES, GROUP = 10, 20
"""How many classes there are, and rows in a group."""

_BATCH = 2500


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark alone."""
    parser.add_argument("--features", type=int, default=1_000_000)
    parser.add_argument("--dense-rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--only", nargs="+", default=[], metavar="LOSS", help="beside Logistic")


def measure(options: argparse.Namespace) -> Report:
    """Sparse rows, from few to many, then dense ones."""
    features, repeat, dense_rows = options.features, options.repeat, options.dense_rows
    counts = [20, 200, 2000, 20_000, 100_000, 200_000]
    if options.quick:
        features, repeat, dense_rows, counts = 20_000, 3, 2000, [20, 2000]
    names = [name for name in shelf() if not options.only or name in ("Logistic", *options.only)]
    with threadpool_limits(1, user_api="blas"):
        costs = {
            f"{count * NONZEROS:.0e}": costs_of(names, sparse_rows(count, features), repeat)
            for count in counts
        }
        dense, by_hand = costs_of_dense(names, dense_rows, repeat)
    costs["dense"] = dense
    ratios = {name: [cost[name] / cost["Logistic"] for cost in costs.values()] for name in names}
    most = {name: max(ratios[name][-3:]) for name in names}
    costliest = max(names, key=lambda name: most[name])
    return Report(
        f"value and gradient of losses: {NONZEROS} non-zeros a row of {features:,} features; "
        f"dense rows, {dense_rows:,} x {DENSE_COLUMNS}",
        [],
        [
            Ratio(f"{costliest} over Logistic, at most", most[costliest], "at most 1.5"),
            Ratio("dense rows: Logistic over BLAS by hand", dense["Logistic"] / by_hand),
        ],
        tables=[
            Table(
                "ns a non-zero, by how many there are",
                list(costs),
                {name: [cost[name] for cost in costs.values()] for name in names}
                | {"BLAS by hand": [None] * len(counts) + [by_hand]},
            ),
            Table("times the cost of Logistic", list(costs), ratios),
        ],
    )


def shelf() -> dict[str, type[Loss]]:
    """The losses that there are, by name."""
    kinds = (getattr(distvec.losses, name) for name in distvec.losses.__all__)
    return {
        kind.__name__: kind
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, Loss) and not inspect.isabstract(kind)
    }


def costs_of(names: list[str], matrix: Any, repeat: int) -> dict[str, float]:
    """Nanoseconds a non-zero of each loss."""
    cases = [case_of(name, matrix) for name in names]
    return {name: _cost(timing) for name, timing in interleaved(cases, repeat).items()}


def costs_of_dense(names: list[str], rows: int, repeat: int) -> tuple[dict[str, float], float]:
    """The same of dense rows, and what BLAS takes by hand."""
    rng = np.random.default_rng(3)
    matrix = rng.standard_normal((rows, DENSE_COLUMNS))
    labels, weights = np.sign(rng.standard_normal(rows)), rng.standard_normal(DENSE_COLUMNS) / 30
    by_hand = Case("by hand", functools.partial(_by_hand, matrix, labels, weights), matrix.size)
    timings = interleaved([by_hand, *(case_of(name, matrix) for name in names)], repeat)
    return {name: _cost(timings[name]) for name in names}, _cost(timings["by hand"])


def case_of(name: str, matrix: Any) -> Case:
    """Value and gradient of a loss at small random parameters; its labels are such as it takes."""
    rng = np.random.default_rng(4)
    count, columns = matrix.shape
    loss = shelf()[name]()
    labels = LABELS[loss.labels](rng, count)
    if loss.labels == "classes":
        loss = loss.bind(np.arange(float(CLASSES)).tolist())
    if loss.order == "time":
        labels = np.sort(np.abs(labels))
    rows = Rows(
        matrix,
        labels,
        groups=np.arange(count) // GROUP if loss.order == "group" else None,
        events=(rng.random(count) < 0.5).astype(np.float64) if loss.order == "time" else None,
    ).for_many_products()
    scale = 1.0 / np.sqrt(matrix.size / count)
    arrays = tuple(scale * rng.standard_normal((columns, *one.row)) for one in loss.parameters)
    width = sum(int(np.prod(one.row)) for one in loss.parameters)
    run = functools.partial(loss.sums, rows, arrays, intercept=False)
    return Case(name, run, operations=matrix.size * width)


LABELS: Mapping[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "signs": lambda rng, count: np.sign(rng.standard_normal(count)),
    "real": lambda rng, count: rng.standard_normal(count),
    "counts": lambda rng, count: rng.poisson(1.0, count).astype(np.float64),
    "positive": lambda rng, count: rng.exponential(1.0, count) + 1e-3,
    "classes": lambda rng, count: rng.integers(CLASSES, size=count).astype(np.float64),
}
"""Labels of so many rows, by what a loss takes."""


def sparse_rows(count: int, features: int) -> sp.csr_array:
    """Uniformly random rows over the features that they have, as a partition keeps them."""
    parts = [
        uniform_rows(low // _BATCH, min(_BATCH, count - low), features)[1]
        for low in range(0, count, _BATCH)
    ]
    matrix = sp.csr_array(sp.vstack(parts))
    columns, local = np.unique(matrix.indices, return_inverse=True)
    arrays = (matrix.data, local.astype(np.int32), matrix.indptr.astype(np.int32))
    return sp.csr_array(arrays, shape=(count, columns.size))


def _by_hand(matrix: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> None:
    """The logistic loss in four lines of NumPy."""
    against = -labels * (matrix @ weights)
    np.logaddexp(0.0, against).sum()
    slopes = -labels / (1.0 + np.exp(-against))
    _ = matrix.T @ slopes


def _cost(timing: Timing) -> float:
    """The median, in nanoseconds a non-zero and column."""
    return timing.median / timing.operations * 1e9


if __name__ == "__main__":
    main(__doc__, measure, configure)
