"""Newton's method with an l1 norm, beside OWL-QN of ``optim`` on the same objective."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.linear_model
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from distvec.losses import Logistic, Objective, SquaredHinge
from distvec.losses.rows import Rows
from distvec.sklearn import LogisticRegression
from distvec.sklearn.coordinate_descent import minimize_by_coordinates, takes_coordinates
from optim import ElasticNet

pytest.importorskip("numba")


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    columns=st.integers(1, 60),
    loss=st.sampled_from([Logistic(), SquaredHinge()]),
    l1=st.floats(0.01, 0.5),
    l2=st.sampled_from([0.0, 0.01]),
    intercept=st.booleans(),
    is_weighted=st.booleans(),
    is_sparse=st.booleans(),
    dtype=st.sampled_from(["float64", "float32"]),
)
def test_the_minimum_of_optim(
    seed, columns, loss, l1, l2, intercept, is_weighted, is_sparse, dtype
):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(40, columns)) * (rng.random((40, columns)) < 0.4)).astype(dtype)
    margins = X @ rng.normal(size=columns) + rng.normal(size=40)
    y = margins > 0.0
    if len(np.unique(y)) < 2:
        return
    weights = rng.integers(0, 3, 40) + 0.5 if is_weighted else None
    rows = Rows(sp.csr_array(X) if is_sparse else X, np.asarray(y, np.float64), weights)
    penalty = ElasticNet(l1=l1, l2=l2)
    objective = Objective(rows, loss=loss, penalty=penalty, intercept=intercept)
    assert takes_coordinates(objective.data, loss, "OWL-QN")
    start = np.zeros(objective.dimension)
    tolerance = 1e-9 if dtype == "float64" else 1e-5
    found = minimize_by_coordinates(
        objective.data, loss, start, l1, l2, max_iterations=200, gradient_tolerance=tolerance
    )
    expected = objective.minimize(start, "OWL-QN", gradient_tolerance=tolerance)
    value = objective(found.x)[0] + l1 * float(np.abs(found.x[:columns]).sum())
    scale = max(1.0, abs(expected.fun))
    assert found.converged
    assert found.value == pytest.approx(value, abs=1e-6 * scale)
    assert value <= expected.fun + (1e-9 if dtype == "float64" else 1e-5) * scale


def test_a_converged_start_takes_no_iteration():
    X = np.random.default_rng(0).normal(size=(60, 5))
    rows = Rows(X, np.where(X @ [1.0, -2.0, 0.0, 0.0, 0.5] > 0.2, 1.0, -1.0))
    limits = {"max_iterations": 100, "gradient_tolerance": 1e-8}
    first = minimize_by_coordinates(rows, Logistic(), np.zeros(6), 0.05, 0.0, **limits)
    again = minimize_by_coordinates(rows, Logistic(), first.x, 0.05, 0.0, **limits)
    assert (again.iterations, first.converged, again.x.tolist()) == (0, True, first.x.tolist())
    assert 0 < np.count_nonzero(first.x == 0.0) < 5


def test_coefficients_of_scikit_learn_for_text_like_rows():
    rng = np.random.default_rng(1)
    X = sp.random_array((200, 1000), density=0.03, rng=rng, format="csr")
    y = np.asarray(X @ rng.normal(size=1000)) > 0.0
    options = {"l1_ratio": 1.0, "C": 10.0, "solver": "liblinear", "tol": 1e-10}
    settings = {**options, "max_iter": 100_000, "random_state": 0}
    theirs = sklearn.linear_model.LogisticRegression(**settings).fit(X, y)
    ours = LogisticRegression(**options).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_array_equal(ours.coef_ == 0.0, theirs.coef_ == 0.0)


def test_the_limit_of_iterations_holds():
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = X @ [1.0, -2.0, 0.5] > 0.2
    with pytest.warns(ConvergenceWarning, match="limit of iterations"):
        model = LogisticRegression(l1_ratio=1.0, solver="saga", max_iter=1, tol=1e-12).fit(X, y)
    assert np.max(model.n_iter_) == 1
