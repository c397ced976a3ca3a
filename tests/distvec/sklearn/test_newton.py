"""Newton's method with the whole Hessian, beside the solvers of ``optim`` on the same objective."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from distvec import losses
from distvec.losses import Logistic, Objective, Poisson, SquaredHinge
from distvec.losses.rows import Rows
from distvec.sklearn import HuberRegressor, LinearSVC, LogisticRegression
from distvec.sklearn.generalized import _HuberFunction
from distvec.sklearn.newton import MeanLoss, minimize_by_newton, pays, weighted_gram
from optim import SquaredL2Norm


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    columns=st.integers(1, 6),
    loss=st.sampled_from([Logistic(), SquaredHinge(), Poisson()]),
    l2=st.floats(1e-4, 1.0),
    intercept=st.booleans(),
    is_weighted=st.booleans(),
    has_copies=st.booleans(),
)
def test_the_minimum_of_optim(seed, columns, loss, l2, intercept, is_weighted, has_copies):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, columns))
    if has_copies:
        X = np.hstack([X, X])
    margins = X @ rng.normal(size=X.shape[1]) + rng.normal(size=40)
    y = rng.poisson(np.exp(np.minimum(margins, 3.0))) if loss == Poisson() else margins > 0.0
    weights = rng.integers(0, 3, 40).astype(float) + (rng.random() < 0.5) if is_weighted else None
    rows = Rows(X, np.asarray(y, np.float64), weights)
    if loss != Poisson() and len(np.unique(y)) < 2:
        return
    objective = Objective(rows, loss=loss, penalty=SquaredL2Norm(l2), intercept=intercept)
    assert pays(objective.data, loss, "L-BFGS")
    start = np.zeros(objective.dimension)
    function = MeanLoss(objective.data, loss, l2, intercept=intercept)
    found = minimize_by_newton(function, start, max_iterations=100, gradient_tolerance=1e-9)
    expected = objective.minimize(start, "trust-ncg", gradient_tolerance=1e-9)
    value, gradient = objective(found.x)
    assert found.value == pytest.approx(value, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(found.gradient, gradient, atol=1e-9 * max(1.0, abs(value)))
    assert found.converged
    assert value <= expected.fun + 1e-10 * max(1.0, abs(expected.fun))


def test_separable_classes_without_penalty_end_with_the_classes_apart():
    X = np.linspace(-1.0, 1.0, 40)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(C=np.inf).fit(X, X[:, 0] > 0.1)
    assert model.score(X, X[:, 0] > 0.1) == 1.0
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("kind", [LogisticRegression, LinearSVC])
def test_the_limit_of_iterations_holds(kind):
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = X @ [1.0, -2.0, 0.5] > 0.2
    with pytest.warns(ConvergenceWarning, match="limit of iterations"):
        model = kind(max_iter=1, tol=1e-12).fit(X, y)
    assert np.max(model.n_iter_) == 1


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    columns=st.integers(1, 5),
    epsilon=st.floats(1.0, 3.0),
    intercept=st.booleans(),
    is_weighted=st.booleans(),
)
def test_the_positive_hessian_of_huber(seed, columns, epsilon, intercept, is_weighted):
    rng = np.random.default_rng(seed)
    weights = rng.random(30) if is_weighted else np.ones(30)
    rows = Rows(rng.normal(size=(30, columns)), rng.standard_t(2.0, 30), weights)
    function = _HuberFunction(rows, weights, epsilon, 0.3, intercept)
    x = rng.normal(size=columns + intercept + 1)
    products = np.column_stack([function.hessp(x, v) for v in np.eye(len(x))])
    products[-1, -1] += 2.0 * max(0.0, -function(x)[1][-1])  # its part that can be negative
    np.testing.assert_allclose(function.hessian(x), products, rtol=1e-9, atol=1e-9)


def test_a_gram_matrix_is_summed_by_blocks(monkeypatch):
    rng = np.random.default_rng(3)
    matrix, weights = rng.normal(size=(50, 4)), rng.random(50) * (rng.random(50) < 0.4)
    for size in (50, 7):
        monkeypatch.setattr(losses.rows, "BLOCK_ROWS", size)
        found = weighted_gram(matrix, weights)
        np.testing.assert_allclose(found, matrix.T @ (weights[:, None] * matrix), rtol=1e-12)


def test_huber_takes_few_iterations_and_keeps_the_limit_of_them():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 8))
    y = X @ rng.normal(size=8) + rng.standard_t(2.0, 200)
    X[X < -0.5] = 0.0
    dense, sparse = (HuberRegressor(tol=1e-4).fit(rows, y) for rows in (X, sp.csr_array(X)))
    assert dense.n_iter_ == sparse.n_iter_ <= 12
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-10)
    with pytest.warns(ConvergenceWarning, match="limit of iterations"):
        assert HuberRegressor(tol=1e-9, max_iter=2).fit(X, y).n_iter_ == 2
