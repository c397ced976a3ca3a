"""Estimators of ``distvec.sklearn`` beside scikit-learn's classes, with their default parameters.

All run on one thread, in turn: ``fit`` on dense rows, on rows with more columns than rows, and
on sparse rows with the lengths and frequencies of text. The objective of each is computed in
the same way, and ours is shown relative to scikit-learn's.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from benchmarks.harness import (
    Case,
    Ratio,
    Report,
    Table,
    Timing,
    installed,
    main,
    not_measured,
)

CASES: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
    "dense": [
        ("linear_model", "LogisticRegression", {"max_iter": 1000}),
        ("linear_model", "LinearRegression", {}),
        ("linear_model", "Ridge", {}),
        ("linear_model", "Lasso", {"alpha": 0.01}),
        ("linear_model", "ElasticNet", {"alpha": 0.01}),
        ("linear_model", "HuberRegressor", {"max_iter": 1000}),
        ("linear_model", "PoissonRegressor", {"max_iter": 1000}),
        ("linear_model", "GammaRegressor", {"max_iter": 1000}),
        ("svm", "LinearSVC", {}),
        ("cluster", "KMeans", {"random_state": 0, "max_iter": 20}),
        ("linear_model", "SGDClassifier", {"random_state": 0}),
        ("linear_model", "SGDRegressor", {"random_state": 0}),
    ],
    "wide": [
        ("linear_model", "LogisticRegression", {"max_iter": 1000}),
        ("linear_model", "Ridge", {}),
        ("linear_model", "Lasso", {"alpha": 0.05}),
        ("svm", "LinearSVC", {}),
    ],
    "sparse": [
        ("linear_model", "LogisticRegression", {"max_iter": 1000}),
        ("linear_model", "LogisticRegression", {"l1_ratio": 1.0, "solver": "liblinear"}),
        ("linear_model", "Ridge", {"solver": "sparse_cg"}),
        ("linear_model", "Lasso", {"alpha": 0.001}),
        ("linear_model", "PoissonRegressor", {"alpha": 1e-4, "max_iter": 1000}),
        ("svm", "LinearSVC", {}),
        ("cluster", "KMeans", {"random_state": 0, "max_iter": 10}),
        ("linear_model", "SGDClassifier", {"random_state": 0}),
        ("linear_model", "SGDRegressor", {"random_state": 0}),
    ],
    "small": [
        ("linear_model", "LogisticRegression", {"max_iter": 1000}),
        ("linear_model", "LinearRegression", {}),
        ("linear_model", "Ridge", {}),
        ("linear_model", "Lasso", {"alpha": 0.01}),
        ("linear_model", "QuantileRegressor", {"alpha": 0.01}),
        ("linear_model", "HuberRegressor", {"max_iter": 1000}),
        ("svm", "LinearSVC", {}),
    ],
}
"""By data: module of scikit-learn, class, parameters."""

SHAPES = {
    "dense": (20_000, 50),
    "wide": (200, 2000),
    "sparse": (5000, 47_000),
    "small": (1000, 20),
}
QUICK = {"dense": (2000, 20), "wide": (50, 200), "sparse": (500, 1000), "small": (200, 5)}
ROW_NONZEROS = 70


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark alone."""
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[], metavar="CLASS")


def measure(options: argparse.Namespace) -> Report:
    """Each class on each kind of data."""
    shapes = QUICK if options.quick else SHAPES
    title = "fit of distvec.sklearn beside scikit-learn, seconds of one thread, default tolerances"
    if not installed("sklearn"):
        return Report(title, [], [], not_measured("sklearn"))
    timings, ratios, rows = [], [], {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind, cases in CASES.items():
            X = features(kind, *shapes[kind])
            for module, name, parameters in cases:
                if options.only and name not in options.only:
                    continue
                labels = labels_for(name, X)
                ours = getattr(importlib.import_module("distvec.sklearn"), name)
                theirs = getattr(importlib.import_module(f"sklearn.{module}"), name)
                models = {
                    "distvec": ours(**parameters),
                    "scikit-learn": theirs(**parameters),
                }
                runs = [
                    Case(f"{kind} {name} {who}", functools.partial(one.fit, X, labels))
                    for who, one in models.items()
                ]
                found = cpu_times(runs, 1 if options.quick else options.repeat)
                timings += found
                label = f"{kind}: {name}" + (" l1" if parameters.get("l1_ratio") else "")
                mine, their = (value_of(name, one, X, labels) for one in models.values())
                ratio = found[1].median / found[0].median
                excess = (mine - their) / max(abs(their), 1e-300)
                rows[label] = [1e3 * found[0].median, 1e3 * found[1].median, ratio, excess]
    ratios = [
        Ratio("the least of scikit-learn's time over ours", min(row[2] for row in rows.values())),
        Ratio("the median", float(np.median([row[2] for row in rows.values()]))),
    ]
    columns = ["ours ms", "scikit-learn ms", "times faster", "objective, relative excess"]
    return Report(title, timings, ratios, {"shapes": shapes}, [Table("fit", columns, rows)])


def cpu_times(cases: list[Case], repeat: int) -> list[Timing]:
    """Seconds of the processor, in turn after a warm-up: neighbours of one thread do not count."""
    seconds: list[list[float]] = [[] for _ in cases]
    for round_ in range(1 + repeat):
        for case, times in zip(cases, seconds, strict=True):
            began = time.process_time()
            case.run()
            if round_:
                times.append(time.process_time() - began)
    return [Timing(case.name, times) for case, times in zip(cases, seconds, strict=True)]


def features(kind: str, count: int, columns: int) -> Any:
    """Random features; sparse ones like words: few columns are frequent, and rows have norm 1."""
    rng = np.random.default_rng(5)
    if kind != "sparse":
        return rng.standard_normal((count, columns)) + 0.5 * rng.standard_normal((count, 1))
    places = np.minimum(20.0 * rng.pareto(1.1, (count, ROW_NONZEROS)), columns - 1).astype(np.int32)
    ends = np.arange(0, count * ROW_NONZEROS + 1, ROW_NONZEROS, dtype=np.int32)
    numbers = rng.exponential(size=count * ROW_NONZEROS)
    matrix = sp.csr_array((numbers, places.ravel(), ends), shape=(count, columns))
    matrix.sum_duplicates()
    norms = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    return sp.csr_array(sp.diags_array(1.0 / norms) @ matrix)


def labels_for(name: str, X: Any) -> np.ndarray:
    """Labels that depend on three tenths of the columns."""
    rng = np.random.default_rng(6)
    weights = rng.standard_normal(X.shape[1]) * (rng.random(X.shape[1]) < 0.3)
    margins = np.asarray(X @ weights)
    margins = margins / margins.std() + 0.5 * rng.standard_normal(X.shape[0])
    if name in ("LogisticRegression", "LinearSVC", "SGDClassifier"):
        return margins > 0.0
    if name == "PoissonRegressor":
        return rng.poisson(np.exp(np.clip(margins, -3.0, 3.0))).astype(np.float64)
    return np.exp(0.3 * margins) if name == "GammaRegressor" else margins


def value_of(name: str, model: Any, X: Any, y: np.ndarray) -> float:
    """The objective that scikit-learn documents, at a model."""
    if name == "KMeans":
        return float(model.inertia_)
    x, count = np.ravel(model.coef_), len(y)
    margins = np.asarray(X @ x + model.intercept_).ravel()
    squares, absolute = float(x @ x), float(np.abs(x).sum())
    signs = np.where(y > 0, 1.0, -1.0)
    residuals = y - margins
    if name == "HuberRegressor":
        scale, sizes = model.scale_, np.abs(residuals)
        near = np.minimum(sizes, model.epsilon * scale)
        return float((scale + near * (2 * sizes - near) / scale).sum()) + model.alpha * squares
    values: dict[str, Callable[[], float]] = {
        "LogisticRegression": lambda: (
            model.C * np.logaddexp(0.0, -signs * margins).sum()
            + 0.5 * (1.0 - model.l1_ratio) * squares
            + model.l1_ratio * absolute
        ),
        "LinearSVC": lambda: (
            model.C * np.square(np.maximum(0.0, 1.0 - signs * margins)).sum()
            + 0.5 * (squares + float(np.sum(np.square(model.intercept_))))
        ),
        "SGDClassifier": lambda: (
            np.maximum(0.0, 1.0 - signs * margins).mean() + 0.5 * model.alpha * squares
        ),
        "SGDRegressor": lambda: 0.5 * np.mean(residuals**2) + 0.5 * model.alpha * squares,
        "LinearRegression": lambda: residuals @ residuals,
        "Ridge": lambda: residuals @ residuals + model.alpha * squares,
        "Lasso": lambda: residuals @ residuals / (2 * count) + model.alpha * absolute,
        "ElasticNet": lambda: (
            residuals @ residuals / (2 * count) + model.alpha * (0.5 * absolute + 0.25 * squares)
        ),
        "PoissonRegressor": lambda: (
            np.mean(np.exp(margins) - y * margins) + 0.5 * model.alpha * squares
        ),
        "GammaRegressor": lambda: (
            np.mean(margins + y * np.exp(-margins)) + 0.5 * model.alpha * squares
        ),
        "QuantileRegressor": lambda: (
            np.mean(np.maximum(0.5 * residuals, -0.5 * residuals)) + model.alpha * absolute
        ),
    }
    return float(values[name]())


if __name__ == "__main__":
    main(__doc__, measure, configure)
