"""How many passes over the data the stochastic solvers take, beside scikit-learn's SGDClassifier.

Logistic regression with l2 = 1e-4, no intercept, on rows in memory: a9a and the first 1000 rows of
RCV1 where `--data` has them, as NAME/train.svm.bz2 of LIBSVM's format, which scikit-learn reads;
rows made like the latter where it has none. What is counted is passes until the objective is 1e-3,
relative, above its optimum, which is found once by Newton's method. A batch is its share of a pass,
the whole objective is one; looking whether it is low enough, twice in a pass, is free for all.

Steps follow from L, the bound of the curvature of a row's loss: |row|^2 / 4 + l2, the largest.
scikit-learn takes one row at a time and its default schedule, which knows l2 alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from benchmarks.harness import Report, Table, installed, main, not_measured
from benchmarks.sparse_rows import text_rows
from distvec.losses import Logistic, Objective
from optim import SAG, SGD, SVRG, AdaGrad, Adam, Cosine, ElasticNet, StochasticSolver

L2, GAP = 1e-4, 1e-3
MADE = "rows made like RCV1"
PEER = "scikit-learn SGDClassifier"


@dataclass(frozen=True)
class Recipe:
    """A solver, given L and the number of batches in a pass, and the rows in a batch."""

    batch: int
    solver: Callable[[float, int], StochasticSolver]


# By data set and solver; a cosine ends after so many passes. Steps may be longer than 1 / L where
# batches are flatter than rows.
RECIPES: dict[str, dict[str, Recipe]] = {
    "a9a": {
        "SGD": Recipe(64, lambda curved, n: SGD(step_size=Cosine(4.0 / curved, 10 * n))),
        "AdaGrad": Recipe(64, lambda curved, n: AdaGrad(step_size=0.3)),
        "Adam": Recipe(64, lambda curved, n: Adam(step_size=Cosine(0.01, 10 * n))),
        "SVRG": Recipe(64, lambda curved, n: SVRG(step_size=4.0 / curved)),
        "SAG": Recipe(128, lambda curved, n: SAG(step_size=1.0 / curved)),
    },
    "rcv1_vw": {
        "SGD": Recipe(16, lambda curved, n: SGD(step_size=Cosine(8.0 / curved, 20 * n))),
        "AdaGrad": Recipe(64, lambda curved, n: AdaGrad(step_size=0.3)),
        "Adam": Recipe(32, lambda curved, n: Adam(step_size=Cosine(0.05, 30 * n))),
        "SVRG": Recipe(16, lambda curved, n: SVRG(step_size=16.0 / curved)),
        "SAG": Recipe(16, lambda curved, n: SAG(step_size=8.0 / curved)),
    },
}


@dataclass(frozen=True)
class Run:
    """Passes until the objective was reached, None if never; the gap at the end; seconds."""

    passes: float | None
    gap: float
    seconds: float


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark alone."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=beside, metavar="FOLDER")
    parser.add_argument("--passes", type=float, default=50.0, help="at most")
    parser.add_argument("--seeds", type=int, default=3)


def measure(options: argparse.Namespace) -> Report:
    """Each data set that is there."""
    seeds, most = (1, 2.0) if options.quick else (options.seeds, options.passes)
    paths = {name: options.data / name / "train.svm.bz2" for name in RECIPES}
    there = {name: path for name, path in paths.items() if path.exists() and installed("sklearn")}
    problems = {name: Problem.read(path) for name, path in there.items()}
    with threadpool_limits(1, user_api="blas"):
        tables = [
            problem.table(RECIPES[name], range(seeds), most)
            for name, problem in (problems or {"rcv1_vw": Problem.made()}).items()
        ]
    title = f"passes over the data until the objective is {GAP:g} above its optimum, relative"
    title = f"{title}: l2 = {L2:g}, medians of {seeds} seeds"
    return Report(title, [], [], not_measured("sklearn"), tables=tables)


@dataclass(frozen=True)
class Problem:
    """Rows with their labels of +1 and -1, the objective, and its least value."""

    name: str
    rows: sp.csr_array
    labels: np.ndarray
    objective: Objective
    optimum: float

    @classmethod
    def read(cls, path: Path) -> Problem:
        """From a file of LIBSVM's format; the larger label is +1."""
        from sklearn.datasets import load_svmlight_file

        rows, labels = load_svmlight_file(str(path))
        return cls.of(path.parent.name, rows, labels)

    @classmethod
    def made(cls) -> Problem:
        """Of rows that need no file."""
        labels, rows = text_rows(0, 1000, 47_236)
        return cls.of(MADE, rows, labels)

    @classmethod
    def of(cls, name: str, rows: sp.csr_array, given: np.ndarray) -> Problem:
        """With the optimum, which is found here."""
        # SGDClassifier refuses indices of 64 bits, which its own reader gives.
        rows.indices, rows.indptr = rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
        labels = np.where(given == given.max(), 1.0, -1.0)
        objective = Objective((rows, labels), loss=Logistic(), penalty=ElasticNet(0.0, L2))
        found = objective.minimize(method="trust-ncg", gradient_tolerance=1e-9)
        return cls(name, rows, labels, objective, float(found.fun))

    @property
    def curvature(self) -> float:
        """The bound L for all rows."""
        return 0.25 * float(self.rows.multiply(self.rows).sum(axis=1).max()) + L2

    def gap(self, x: Any) -> float:
        """How far the objective at `x` is above its optimum, relative."""
        return float(self.objective(np.asarray(x))[0]) / self.optimum - 1.0

    def table(self, recipes: Mapping[str, Recipe], seeds: range, most: float) -> Table:
        """The medians of each solver, and of scikit-learn's."""
        found = {
            f"{solver}, batches of {recipe.batch}": _median(
                [self.until(_passes(self, recipe, seed), most) for seed in seeds]
            )
            for solver, recipe in recipes.items()
        }
        if installed("sklearn"):
            found[PEER] = _median([self.until(passes_of_peer(self, seed), most) for seed in seeds])
        shape = f"{self.rows.shape[0]:,} rows of {self.rows.shape[1]:,} features"
        columns = ["passes", "gap at the end", "seconds"]
        return Table(f"{self.name}: {shape}", columns, found)

    def until(self, points: Iterator[tuple[float, Any]], most: float) -> Run:
        """Until the gap is small enough, or the data was read too often."""
        seconds, began = 0.0, time.perf_counter()
        for passes, x in points:
            seconds += time.perf_counter() - began
            gap = self.gap(x)
            if gap <= GAP or passes >= most:
                break
            began = time.perf_counter()
        return Run(passes if gap <= GAP else None, gap, seconds)


def _passes(problem: Problem, recipe: Recipe, seed: int) -> Iterator[tuple[float, Any]]:
    fixed = isinstance(recipe.solver(1.0, 1), SAG)
    batches = problem.objective.minibatches(recipe.batch, fixed=fixed, seed=seed)
    return passes(problem, recipe, batches)


def passes(problem: Problem, recipe: Recipe, batches: Any) -> Iterator[tuple[float, Any]]:
    """What was read of the data, and the iterate, twice in each pass over the batches."""
    count = batches.batches_per_epoch
    solver = replace(recipe.solver(problem.curvature, count), max_iterations=10**9)
    snapshots = isinstance(solver, SVRG)
    if not snapshots:
        solver = replace(solver, full_every=0)
    for state in solver.iterations(batches, batches.start()):
        if state.iteration % (count // 2):
            continue
        whole = 1 + state.iteration // (solver.full_every * count) if snapshots else 0
        yield (state.evaluations - whole) / count + whole, state.x


def passes_of_peer(problem: Problem, seed: int) -> Iterator[tuple[float, np.ndarray]]:
    """The same of scikit-learn, after each pass."""
    from sklearn.linear_model import SGDClassifier

    classifier = SGDClassifier(
        loss="log_loss", alpha=L2, fit_intercept=False, random_state=seed, shuffle=True
    )
    passes = 0
    while True:
        classifier.partial_fit(problem.rows, problem.labels, classes=[-1.0, 1.0])
        passes += 1
        yield float(passes), classifier.coef_[0]


def _median(runs: list[Run]) -> list[float | None]:
    """By passes; a run that never got there counts as the longest."""
    ordered = sorted(runs, key=lambda run: (run.passes is None, run.passes or run.gap))
    middle = ordered[len(ordered) // 2]
    return [middle.passes, middle.gap, middle.seconds]


if __name__ == "__main__":
    main(__doc__, measure, configure)
