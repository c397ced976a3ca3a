"""L-BFGS: Breeze's cases, the cases where Breeze fails, and known minima."""

from __future__ import annotations

import numpy as np
import pytest

from optim import LBFGS, Outcome
from tests.optim.problems import (
    NAMED,
    breeze_start,
    logistic,
    quadratic,
    quartic,
    rosenbrock,
    start_of,
)
from tests.optim.reference_data import read_json


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_quadratic(dtype):
    rng = np.random.default_rng(0)
    x0 = (rng.uniform(0.01, 10.0, 10) * rng.choice([-1, 1], 10)).astype(dtype)
    result = LBFGS(history=4, max_iterations=100).minimize(quadratic, x0)
    assert np.linalg.norm(result.x - 3.0) < (1e-10 if dtype == np.float64 else 1e-5)
    assert result.x.dtype == dtype
    assert result.outcome in (Outcome.CONVERGED_GRADIENT, Outcome.CONVERGED_VALUE)


def test_strided_start_is_not_written_to():
    base = np.arange(40.0)
    x0 = base[3::4]
    result = LBFGS().minimize(quadratic, x0)
    np.testing.assert_allclose(result.x, 3.0)
    np.testing.assert_array_equal(base, np.arange(40.0))


def test_breeze_rosenbrock_100():
    result = LBFGS(history=6, max_iterations=40).minimize(rosenbrock, breeze_start(100))
    assert np.linalg.norm(result.x - 1.0) / 100 < 1e-5
    assert result.nit <= 36
    assert result.nfev <= 46


def test_l2_penalty_by_the_objective():
    def fun(x):
        value, gradient = quadratic(x)
        return value + 0.5 * x @ x, gradient + x

    np.testing.assert_allclose(LBFGS(history=4).minimize(fun, np.arange(10.0)).x, 2.0, atol=1e-6)


def test_quartic_from_far_away():
    result = LBFGS(gradient_tolerance=1e-9).minimize(quartic, np.full(5, 1000.0))
    assert result.success
    assert result.fun < 1e-11
    assert result.nfev < 100


@pytest.mark.parametrize("tolerance", [1e-9, 1e-12])
def test_value_rounded_to_float32(tolerance):
    """The exact gradient leads on where values are flat: the approximate Wolfe condition."""
    exact = LBFGS(gradient_tolerance=1e-10).minimize(logistic(False, False), np.zeros(30))
    solver = LBFGS(gradient_tolerance=tolerance, value_tolerance=0.0)
    result = solver.minimize(logistic(True, False), np.zeros(30))
    assert result.outcome in (Outcome.CONVERGED_GRADIENT, Outcome.STALLED)
    assert result.fun == pytest.approx(exact.fun, rel=1e-7)
    assert result.fun == min(record.value for record in result.history)


def test_value_and_gradient_rounded_to_float32_end_at_the_best():
    solver = LBFGS(gradient_tolerance=1e-16)
    exact = LBFGS(gradient_tolerance=1e-10).minimize(logistic(False, False), np.zeros(30))
    result = solver.minimize(logistic(True, True), np.zeros(30))
    assert result.outcome in (Outcome.CONVERGED_GRADIENT, Outcome.STALLED)
    assert result.fun == pytest.approx(min(record.value for record in result.history), rel=1e-14)
    assert result.fun == pytest.approx(exact.fun, rel=2e-7)
    assert result.nfev < 1500


@pytest.mark.parametrize("outside", [np.nan, np.inf, -np.inf])
def test_not_finite_outside_a_ball(outside):
    def fun(x):
        if np.linalg.norm(x) > 3.0:
            return outside, np.full_like(x, outside)
        return quadratic(x)

    inside = LBFGS().minimize(lambda x: fun(x + 2.5), np.zeros(1))
    np.testing.assert_allclose(inside.x, 0.5, atol=2e-2)  # x = 3 - 2.5 lies on the ball's edge
    edge = LBFGS(max_iterations=200).minimize(fun, np.zeros(4))
    assert np.isfinite(edge.fun)
    assert edge.fun < 36.0
    assert np.linalg.norm(edge.x) <= 3.0


def test_a_wrong_gradient_stalls_at_the_start():
    result = LBFGS().minimize(lambda x: (x @ x, -2.0 * x), np.ones(3))
    assert result.outcome is Outcome.STALLED
    assert result.fun == 3.0


@pytest.mark.parametrize("name", NAMED)
def test_known_minima(name):
    entry = {e["name"]: e for e in read_json("test_functions.json")["functions"]}[name]
    fun, x0 = NAMED[name], start_of(entry)
    assert fun(x0)[0] == pytest.approx(entry["value_at_start"], rel=1e-10)
    result = LBFGS().minimize(fun, x0)
    assert result.success
    assert result.fun - entry["minimum_value"] < 1e-9


def test_tolerances():
    loose = LBFGS(gradient_tolerance=0.0, gradient_rtol=1e-2).minimize(rosenbrock, breeze_start(4))
    assert loose.outcome is Outcome.CONVERGED_GRADIENT
    assert 1e-6 < np.max(np.abs(loose.jac)) <= 1e-2 * loose.history[0].gradient_norm
    value = LBFGS(gradient_tolerance=0.0, value_tolerance=1e-3)
    assert value.minimize(rosenbrock, breeze_start(4)).outcome is Outcome.CONVERGED_VALUE
    step = LBFGS(gradient_tolerance=0.0, value_tolerance=0.0, step_tolerance=1e-3)
    assert step.minimize(rosenbrock, breeze_start(4)).outcome is Outcome.CONVERGED_STEP
    tight = LBFGS(gradient_tolerance=1e-12, value_tolerance=0.0)
    assert tight.minimize(rosenbrock, breeze_start(4)).outcome is Outcome.CONVERGED_GRADIENT
