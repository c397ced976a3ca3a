"""The known optima of shared/data, found over rows in Spark and parameters on servers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession

from distvec.losses import Hinge, Loss, Softmax
from distvec.spark import Objective, PSContext
from optim import L1Norm, SquaredL2Norm
from tests.distvec.objectives.reference_optima import GAPS, LOSSES, Problem, are_independent
from tests.optim.reference_data import load, load_classes, optimum, read_json

_LOSSES = LOSSES | {"softmax_l2": Softmax()}
_AS_THEY_ARE = ("ridge", "lasso", "softmax_l2")
"""Kinds whose labels are no signs."""


def problems(most: float) -> list[Problem]:
    """Those of data sets with at most so many non-zeros, the smallest first."""
    about, known = read_json("datasets.json"), read_json("reference.json")
    train = {name: one.get("parts", {}).get("train", {}) for name, one in about.items()}
    sizes = {name: part["nnz"] for name, part in train.items() if part.get("nnz", most) < most}
    return [
        (name, entry["kind"], entry["lam"])
        for name in sorted(sizes.keys() & known.keys(), key=sizes.__getitem__)
        for entry in known[name]
        if entry["kind"] in _LOSSES
    ]


class Optima:
    """Solves them, one data set after the other: what they need of one is made once."""

    def __init__(self, spark: SparkSession, ps: PSContext) -> None:
        self._spark, self._ps = spark, ps
        self._objectives: dict[Any, Objective] = {}

    def solve(self, name: str, kind: str, lam: float) -> tuple[str, str]:
        """What was found, and what of it is wrong, if anything."""
        loss, has_l1 = _LOSSES[kind], kind in ("logistic_l1", "lasso")
        penalty = L1Norm(lam) if has_l1 else SquaredL2Norm(lam)
        objective = self._objective(name, kind, loss).with_penalty(penalty)
        if kind == "hinge_l2":
            x = self._by_smoothing(name, penalty)
        elif kind == "lasso":
            x = self._in_scaled_variables(name, objective, lam)
        else:
            x = _minimum(objective, method=None if has_l1 else "trust-ncg")
        expected = optimum(name, kind, lam)
        gap = float(objective.total(x)) / expected["optimum_value"] - 1.0
        allowed = GAPS.get(kind, 1e-8)
        wrong = [] if abs(gap) <= allowed else [f"more than {allowed:g}"]
        if expected.get("nnz_is_unique"):
            found = int(np.count_nonzero(np.abs(x.numpy()) > 1e-8))
            if found != expected["nnz"] and not _may_be_less(name, objective, x, lam):
                wrong.append(f"{found} non-zeros, not {expected['nnz']}")
        if _bits(objective, x) != _bits(in_jobs(objective), x):
            wrong.append("other bits by jobs")
        return f"gap {gap:.1e}", ", ".join(wrong)

    def close(self) -> None:
        """Let go of all rows."""
        for one in self._objectives.values():
            one.close()
        self._objectives.clear()

    def _objective(self, name: str, kind: str, loss: Loss, **options: Any) -> Objective:
        key = (name, kind in _AS_THEY_ARE, str(loss), *options)
        if key not in self._objectives:
            if any(known[0] != name for known in self._objectives):
                self.close()
            rows = _frame(self._spark, name, kind)
            self._objectives[key] = Objective(rows, loss=loss, ps=self._ps, **options)
        return self._objectives[key]

    def _by_smoothing(self, name: str, penalty: SquaredL2Norm) -> Any:
        """Each envelope's minimum is where the search for a closer one's starts."""
        x = None
        for smoothing in (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7):
            smooth = self._objective(name, "hinge_l2", Hinge(smoothing=smoothing))
            x = _minimum(smooth.with_penalty(penalty), x, method="trust-ncg")
        return x

    def _in_scaled_variables(self, name: str, objective: Objective, lam: float) -> Any:
        """Of features of very different sizes: the same penalty, of standardized variables."""
        scaled = self._objective(name, "lasso", objective.loss, standardization=True)
        deviations = scaled._deviations(objective.loss.parameters[0])
        return _minimum(scaled.with_penalty(L1Norm(lam / deviations)))


def in_jobs(objective: Objective) -> Objective:
    """The same rows, evaluated by jobs; the tasks that stay make way."""
    other = objective.with_penalty(objective.penalty)
    objective._evaluator.standing_tasks.close()
    other._evaluator = replace(objective._evaluator, standing_tasks=None)
    return other


def _bits(objective: Objective, x: Any) -> tuple[Any, ...]:
    value, gradient = objective(x)
    found = [gradient]
    if objective.loss.has_products:
        found.append(objective.hessp(x, x))
    return float(value), *(one.numpy().tobytes() for one in found)


def _may_be_less(name: str, objective: Objective, x: Any, lam: float) -> bool:
    """Whether the columns at the bound depend on one another, so that the support is not unique."""
    _, gradient = objective(x)
    return not are_independent(load(name)[0], np.abs(gradient.numpy()) > lam * (1.0 - 1e-6))


def _minimum(objective: Objective, x0: Any = None, **options: Any) -> Any:
    return objective.minimize(x0, max_iterations=5000, gradient_tolerance=1e-11, **options).x


def _frame(spark: SparkSession, name: str, kind: str) -> DataFrame:
    """The rows, with labels of the kind; classes are 0, 1, ..."""
    x, labels = (load_classes if kind in _AS_THEY_ARE else load)(name)
    if kind == "softmax_l2":
        labels = np.unique(labels, return_inverse=True)[1]
    rows = [
        (Vectors.sparse(x.shape[1], x.indices[a:b].tolist(), x.data[a:b].tolist()), float(label))
        for a, b, label in zip(x.indptr, x.indptr[1:], labels, strict=False)
    ]
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, 2), ["features", "label"])
