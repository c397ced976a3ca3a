"""Compile the kernels of common programs ahead of time: ``python -m distvec.warm``.

A kernel is compiled where it is first needed, which takes about a second, and kept on disk. This
does it beforehand for what most programs run, for instance while the image of a server is built.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tqdm import tqdm

from distvec.array.array import DistArray
from distvec.array.collectives.counting import bincount
from distvec.array.collectives.histogram import histogram
from distvec.array.collectives.scan import accumulate, cumprod, cumsum, linear_recurrence
from distvec.array.collectives.sort import argsort, sort
from distvec.array.elementwise import evaluate
from distvec.opening import local
from distvec.session import Session
from optim import minimize
from ps_backend.kernels import LINEAR_FROM_LENGTH, NUMBA_FROM_LENGTH, compiled_at_once

METHODS = ("L-BFGS", "OWL-QN", "SGD")
_ITERATIONS = 4


def _run_creation(ps: Session) -> None:
    for name in ("zeros", "ones", "arange"):
        getattr(ps, name)(NUMBA_FROM_LENGTH).persist()
    ps.linspace(0.0, 1.0, NUMBA_FROM_LENGTH).persist()
    for name in ("uniform", "normal"):
        getattr(ps.random, name)(NUMBA_FROM_LENGTH, seed=0).persist()


def _run_combinations(ps: Session) -> None:
    x, y = _vectors(ps)
    for result in (x + y, x - y, x * y, 0.5 * x, x + 1.0, x + 0.5 * y, 2.0 * x + 0.5 * y):
        result.persist()
    updated = x.copy()
    updated += 0.5 * y
    updated.persist()


def _run_reductions(ps: Session) -> None:
    x, y = _vectors(ps)
    for scalar in (x.sum(), x.max(), x.min(), abs(x).max(), x @ y, np.linalg.norm(x - y)):
        float(scalar)
    moved = x + 0.5 * y
    evaluate(moved, moved @ x, moved @ moved)


def _of_middle_length(ps: Session) -> None:
    """What programs share from ``LINEAR_FROM_LENGTH`` on."""
    for dtype in ("float64", "float32"):
        x, y = (ps.random.normal(LINEAR_FROM_LENGTH, seed=k).astype(dtype) for k in range(2))
        evaluate(x, y)
        moved = x + 0.5 * y
        evaluate(moved, abs(moved).max(), moved @ x, moved @ moved)


def _run_scans(ps: Session) -> None:
    x = ps.random.uniform(LINEAR_FROM_LENGTH, seed=0).persist()
    for result in (cumsum(x), cumprod(x), accumulate(np.maximum, x), linear_recurrence(x, x)):
        evaluate(result)


def _run_indexing(ps: Session) -> None:
    places = ps.arange(LINEAR_FROM_LENGTH).persist()
    weights = ps.random.uniform(LINEAR_FROM_LENGTH, seed=0).persist()
    evaluate(weights[places], bincount(places % 8), bincount(places % 8, weights))
    evaluate(*histogram(weights, 8, (0.0, 1.0)))


def _run_sorts(ps: Session) -> None:
    """Runs are merged where there are two of them."""
    with local(servers=2, in_process=True) as both:
        x = both.random.uniform(LINEAR_FROM_LENGTH, seed=0).persist()
        for dtype in ("float64", "float32"):
            evaluate(sort(x.astype(dtype)), argsort(x.astype(dtype)))


def _run_solver(method: str) -> Callable[[Session], None]:
    def run(ps: Session) -> None:
        x, y = _vectors(ps)

        def fun(w: DistArray) -> tuple[float, DistArray]:
            """As over Spark, the gradient comes as a vector of its own."""
            difference = w - y
            gradient = (2.0 * difference * (1.0 + x * x)).persist()
            return float(gradient @ difference), gradient

        options: dict[str, Any] = {"max_iterations": _ITERATIONS}
        if method == "SGD":
            options |= {"momentum": 0.9, "step_size": 0.01}
        if method == "OWL-QN":
            options |= {"l1": 0.1}
        minimize(fun, ps.zeros(NUMBA_FROM_LENGTH).persist(), method=method, options=options)

    return run


def _vectors(ps: Session) -> tuple[DistArray, DistArray]:
    x, y = (ps.random.normal(NUMBA_FROM_LENGTH, seed=seed) for seed in range(2))
    return x.persist(), y.persist()


PROGRAMS: Mapping[str, Callable[[Session], None]] = {
    "making arrays": _run_creation,
    "linear combinations": _run_combinations,
    "reductions": _run_reductions,
    "middle lengths": _of_middle_length,
    "running results": _run_scans,
    "indices and counts": _run_indexing,
    "sorts": _run_sorts,
    **{method: _run_solver(method) for method in METHODS},
}


def warm(programs: Mapping[str, Callable[[Session], None]] = PROGRAMS) -> None:
    """Run each of ``programs`` once, on vectors just long enough to be compiled for."""
    with tqdm(programs.items(), unit="program") as bar:
        for name, run in bar:
            bar.set_postfix_str(name)
            with compiled_at_once(), local(servers=1, in_process=True) as ps:
                run(ps)


if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0]).parse_args()
    warm()
