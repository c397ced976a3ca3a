"""OWL-QN: Breeze's cases, its failures, the intercept, and optimality by the subgradient."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optim import LBFGS, OWLQN, Outcome
from tests.optim.problems import breeze_start, quadratic, quartic, rosenbrock


def penalised(fun, l1):
    return lambda x: fun(x)[0] + np.sum(l1 * np.abs(x))


def subgradient_distance(fun, l1, x):
    """Max norm of the least subgradient of the penalised objective."""
    g = fun(x)[1]
    at_kink = np.maximum(np.abs(g) - l1, 0.0)
    return np.max(np.where(x == 0.0, at_kink, np.abs(g + l1 * np.sign(x))))


@pytest.mark.parametrize("start", [[-1.1053, 0.0, 0.0], [7.0, -2.0, 0.1]])
def test_breeze_quadratic(start):
    result = OWLQN(l1=1.0, history=4, max_iterations=100).minimize(quadratic, np.array(start))
    np.testing.assert_allclose(result.x, 2.5, atol=1e-6)
    assert result.fun == pytest.approx(3 * (0.25 + 2.5))


def test_without_penalty_it_is_smooth():
    result = OWLQN(l1=0.0).minimize(rosenbrock, breeze_start(10))
    np.testing.assert_allclose(result.x, 1.0, atol=1e-5)


def test_rosenbrock_100_with_l1():
    solver = OWLQN(l1=1e-3, max_iterations=1000, gradient_tolerance=1e-8)
    result = solver.minimize(rosenbrock, breeze_start(100))
    assert result.success
    assert subgradient_distance(rosenbrock, 1e-3, result.x) <= 1e-7
    assert result.fun < 0.1  # x near 1: a penalty of 0.1 at most
    values = [record.value for record in result.history]
    assert np.all(np.diff(values) <= 1e-12)


def test_not_finite_outside_a_ball():
    def fun(x):
        return quadratic(x) if np.linalg.norm(x) <= 3.0 else (np.nan, np.full_like(x, np.nan))

    result = OWLQN(l1=0.1, max_iterations=50).minimize(fun, np.zeros(4))
    assert np.isfinite(result.fun)
    assert all(np.isfinite(record.value) for record in result.history)
    assert np.linalg.norm(result.x) <= 3.0
    assert result.fun < 36.0


def test_quartic_from_far_away():
    solver = OWLQN(l1=0.5, gradient_tolerance=1e-9)
    result = solver.minimize(quartic, np.full(5, 1000.0))
    assert result.success
    np.testing.assert_allclose(result.x, 3.0 - 0.5, atol=1e-4)  # 4 (x - 3)^3 = -l1


def test_an_intercept_crosses_zero_in_one_stride():
    target = np.array([-4.0, 2.0, 0.01])
    l1 = np.array([0.0, 1.0, 1.0])

    def fun(x):
        return 0.5 * (x - target) @ (x - target), x - target

    states = list(OWLQN(l1=l1).iterations(fun, np.array([5.0, 1.0, 1.0])))
    path = [state.x[0] for state in states]
    assert 0.0 not in path
    assert path[-1] == pytest.approx(-4.0, abs=1e-6)
    np.testing.assert_allclose(states[-1].x[1], 1.0, atol=1e-6)
    assert states[-1].x[2] == 0.0


def test_a_penalised_coordinate_can_change_its_sign():
    def fun(x):
        return 0.5 * (x + 4.0) @ (x + 4.0), x + 4.0

    np.testing.assert_allclose(OWLQN(l1=1.0).minimize(fun, np.full(3, 5.0)).x, -3.0, atol=1e-6)


def test_a_huge_penalty_gives_zero():
    result = OWLQN(l1=100.0).minimize(quadratic, np.array([1.0, -2.0]))
    np.testing.assert_array_equal(result.x, 0.0)
    assert result.outcome is Outcome.CONVERGED_GRADIENT


def test_penalty_is_checked():
    with pytest.raises(ValueError, match=r"l1 has shape \(3,\), but x has \(2,\)"):
        OWLQN(l1=np.ones(3)).minimize(quadratic, np.ones(2))
    with pytest.raises(ValueError, match="weights must be 0 or more"):
        OWLQN(l1=np.array([1.0, -1.0])).minimize(quadratic, np.ones(2))
    with pytest.raises(ValueError, match="must be 0 or more"):
        OWLQN(l1=-1.0)


def random_quadratic(seed, n):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, n))
    hessian = a @ a.T + 0.1 * np.eye(n)
    b = rng.normal(size=n) * 3.0
    l1 = rng.choice([0.0, 0.5, 2.0], n)
    return lambda x: (0.5 * x @ hessian @ x - b @ x, hessian @ x - b), l1, rng.normal(size=n)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 12))
def test_optimal_on_random_quadratics(seed, n):
    fun, l1, x0 = random_quadratic(seed, n)
    result = OWLQN(l1=l1, gradient_tolerance=1e-8, value_tolerance=0.0).minimize(fun, x0)
    assert subgradient_distance(fun, l1, result.x) <= 1e-7
    assert result.fun == pytest.approx(penalised(fun, l1)(result.x), rel=1e-12, abs=1e-12)
    assert result.fun <= penalised(fun, l1)(x0)


def test_scalar_and_vector_weights_agree():
    fun, _, x0 = random_quadratic(3, 8)
    scalar = OWLQN(l1=0.3).minimize(fun, x0)
    vector = OWLQN(l1=np.full(8, 0.3)).minimize(fun, x0)
    np.testing.assert_array_equal(scalar.x, vector.x)
    zero = OWLQN(l1=np.zeros(8)).minimize(fun, x0)
    np.testing.assert_allclose(zero.x, LBFGS().minimize(fun, x0).x, atol=1e-4)
