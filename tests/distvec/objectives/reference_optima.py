"""The known optima of shared/data, found by objectives over rows in memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from distvec.losses import Hinge, Logistic, Loss, Objective, Squared, SquaredHinge
from distvec.losses.rows import standard_deviations
from optim import L1Norm, SquaredL2Norm
from tests.optim.reference_data import load, load_classes, optimum, read_json

LOSSES: dict[str, Loss] = {
    "logistic_l2": Logistic(),
    "logistic_l1": Logistic(),
    "squared_hinge_l2": SquaredHinge(),
    "hinge_l2": Hinge(),
    "ridge": Squared(),
    "lasso": Squared(),
}
GAPS = {"logistic_l1": 1e-6, "lasso": 1e-6, "hinge_l2": 1e-6}
"""Relative, of the objective above its minimum; 1e-8 for the others."""

Problem = tuple[str, str, float]
"""Data set, kind, and weight of the penalty."""


class Found(NamedTuple):
    gap: float
    nonzeros: int
    support_is_unique: bool
    expected: dict[str, Any]

    @property
    def is_right(self) -> bool:
        enough = abs(self.gap) <= GAPS.get(self.expected["kind"], 1e-8)
        return enough and (not self.support_is_unique or self.nonzeros == self.expected["nnz"])


def problems() -> list[Problem]:
    """All that reference.json has for losses of one margin."""
    return [
        (name, entry["kind"], entry["lam"])
        for name, entries in read_json("reference.json").items()
        if isinstance(entries, list)
        for entry in entries
        if entry["kind"] in LOSSES
    ]


def solve(name: str, kind: str, lam: float) -> Found:
    """The minimum, beside the known one."""
    rows = (load_classes if kind in ("ridge", "lasso") else load)(name)
    penalty = L1Norm(lam) if kind in ("logistic_l1", "lasso") else SquaredL2Norm(lam)
    objective = Objective(rows, loss=LOSSES[kind], penalty=penalty)
    if kind == "hinge_l2":
        x = by_smoothing(rows, penalty)
    elif kind == "lasso":
        x = in_scaled_variables(objective, lam)
    else:
        method = "trust-ncg" if isinstance(penalty, SquaredL2Norm) else None
        x = minimum(objective, method=method)
    expected = optimum(name, kind, lam)
    gap = float(objective.total(x)) / expected["optimum_value"] - 1.0
    nonzeros = int(np.count_nonzero(np.abs(x) > 1e-8))
    unique = expected.get("nnz_is_unique", False)
    if unique and nonzeros < expected["nnz"]:
        unique = are_independent(rows[0], np.abs(objective(x)[1]) > lam * (1.0 - 1e-6))
    return Found(gap, nonzeros, unique, expected)


def are_independent(matrix: Any, columns: np.ndarray) -> bool:
    """Whether no column depends on the others, which then could have its weight.

    reference.json calls a support unique where no feature with a gradient at the bound has the
    weight 0. Of agaricus two have columns that others sum up to 1 with.
    """
    return bool(np.linalg.matrix_rank(matrix[:, columns].toarray()) == columns.sum())


def minimum(objective: Objective, x0: Any = None, **options: Any) -> Any:
    return objective.minimize(x0, max_iterations=5000, gradient_tolerance=1e-11, **options).x


def by_smoothing(rows: Any, penalty: SquaredL2Norm) -> Any:
    """Of the hinge loss: each envelope's minimum is where the search for a closer one's starts."""
    x = None
    for smoothing in (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7):
        smooth = Objective(rows, loss=Hinge(smoothing=smoothing), penalty=penalty)
        x = minimum(smooth, x, method="trust-ncg")
    return x


def in_scaled_variables(objective: Objective, lam: float) -> Any:
    """Of features of very different sizes: the same penalty, of standardized variables."""
    deviations = standard_deviations(objective.data)
    scaled = Objective(
        (objective.data.matrix, objective.data.labels),
        loss=objective.loss,
        penalty=L1Norm(lam / deviations),
        standardization=True,
    )
    return minimum(scaled)
