"""The certified optima of reference.json on real data, with NumPy arrays."""

from __future__ import annotations

import numpy as np
import pytest

from optim import LBFGS, LBFGSB, OWLQN, ConjugateGradient, TruncatedNewton
from tests.optim.reference_data import Logistic, load, optimum

SMOOTH = ["heart_scale", "spark_svm", "svmguide1", "dna", "mushrooms", "a9a", "rcv1_vw"]
SPARSE = [(name, lam) for name in [*SMOOTH, "rice", "agaricus"] for lam in (1e-3, 1e-4)]
SPARSE.remove(("rcv1_vw", 1e-4))
SPARSE += [("usps", 1e-3)]
LONG = [("rcv1_vw", 1e-4), ("usps", 1e-4), ("news20", 1e-3), ("news20", 1e-4)]


@pytest.mark.parametrize("lam", [1e-2, 1e-4])
@pytest.mark.parametrize("name", SMOOTH)
def test_logistic_l2(name, lam):
    features, labels = load(name)
    best = optimum(name, "logistic_l2", lam)["optimum_value"]
    solver = LBFGS(gradient_tolerance=1e-8)
    result = solver.minimize(Logistic(features, labels, lam), np.zeros(features.shape[1]))
    assert result.success
    assert abs(result.fun / best - 1.0) < 1e-8


@pytest.mark.parametrize("name", ["heart_scale", "spark_svm", "dna", "mushrooms"])
@pytest.mark.parametrize(
    "solver", [LBFGSB(), ConjugateGradient(), TruncatedNewton()], ids=lambda s: type(s).__name__
)
def test_other_smooth_solvers(solver, name):
    features, labels = load(name)
    best = optimum(name, "logistic_l2", 1e-2)["optimum_value"]
    result = solver.minimize(Logistic(features, labels, 1e-2), np.zeros(features.shape[1]))
    assert result.success
    assert abs(result.fun / best - 1.0) < 1e-8


def test_logistic_l1_by_bounds():
    """The penalty as a smooth problem of twice the size: w = u - v with u, v >= 0."""
    features, labels = load("heart_scale")
    reference = optimum("heart_scale", "logistic_l1", 1e-3)
    loss, n = Logistic(features, labels), features.shape[1]

    def fun(parts):
        value, gradient = loss(parts[:n] - parts[n:])
        return value + 1e-3 * parts.sum(), np.concatenate([gradient, -gradient]) + 1e-3

    solver = LBFGSB(bounds=[(0, None)] * (2 * n), gradient_tolerance=1e-9)
    result = solver.minimize(fun, np.zeros(2 * n))
    assert abs(result.fun / reference["optimum_value"] - 1.0) < 1e-8


@pytest.mark.parametrize(
    ("name", "lam"), SPARSE + [pytest.param(*one, marks=pytest.mark.long) for one in LONG]
)
def test_logistic_l1(name, lam):
    features, labels = load(name)
    reference = optimum(name, "logistic_l1", lam)
    # Rounding hides gradients below 1e-8 of the large sets.
    gradient_tolerance = 1e-8 if (name, lam) in LONG else 1e-9
    solver = OWLQN(l1=lam, gradient_tolerance=gradient_tolerance, max_iterations=5000)
    result = solver.minimize(Logistic(features, labels), np.zeros(features.shape[1]))
    assert result.success
    assert abs(result.fun / reference["optimum_value"] - 1.0) < 1e-8
    if reference["nnz_is_unique"]:
        assert np.count_nonzero(np.abs(result.x) > 1e-8) == reference["nnz"]
