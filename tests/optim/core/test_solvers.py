"""Deterministic solvers where others fail: noise, steep walls, limits of evaluations."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optim import (
    LBFGS,
    LBFGSB,
    Box,
    ConjugateGradient,
    HagerZhang,
    Outcome,
    StrongWolfe,
    TruncatedNewton,
)
from tests.optim.problems import (
    breeze_start,
    logistic,
    quadratic,
    quartic,
    rosenbrock,
)

SOLVERS = {
    "L-BFGS": LBFGS(),
    "L-BFGS, Hager-Zhang": LBFGS(search=HagerZhang()),
    "CG": ConjugateGradient(),
    "CG, Hager-Zhang": ConjugateGradient(search=HagerZhang(c2=0.2)),
    "L-BFGS-B": LBFGSB(),
    "L-BFGS-B, wide": LBFGSB(bounds=Box(-1e8, 1e8)),
    "truncated Newton": TruncatedNewton(),
}
every_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)


@every_solver
def test_quartic_from_far_away(solver):
    solver = dataclasses.replace(solver, gradient_tolerance=1e-9)
    result = solver.minimize(quartic, np.full(5, 1000.0))
    assert result.success
    assert result.fun < 1e-11
    assert result.nfev < 120


@every_solver
@pytest.mark.parametrize("rounded_gradient", [False, True])
def test_value_rounded_to_float32_is_no_failure(solver, rounded_gradient):
    exact = LBFGS(gradient_tolerance=1e-10).minimize(logistic(False, False), np.zeros(30))
    solver = dataclasses.replace(solver, gradient_tolerance=1e-12, value_tolerance=0.0)
    result = solver.minimize(logistic(True, rounded_gradient), np.zeros(30))
    assert result.outcome in (Outcome.CONVERGED_GRADIENT, Outcome.STALLED)
    assert result.fun == min(record.value for record in result.history)
    noisy_search = isinstance(solver, ConjugateGradient) and solver.search == StrongWolfe(c2=0.2)
    assert result.fun == pytest.approx(exact.fun, rel=1e-5 if noisy_search else 2e-7)
    assert result.nfev < 700


@every_solver
@pytest.mark.parametrize("outside", [np.nan, np.inf, -np.inf])
def test_not_finite_outside_a_ball(solver, outside):
    def fun(x):
        if np.linalg.norm(x) > 3.0:
            return outside, np.full_like(x, outside)
        return quadratic(x)

    result = dataclasses.replace(solver, max_iterations=200).minimize(fun, np.zeros(4))
    assert result.fun == pytest.approx(9.0, abs=1e-3)  # the edge in the direction of (3, 3, 3, 3)
    assert np.linalg.norm(result.x) <= 3.0


@every_solver
def test_a_wrong_gradient_stalls_at_the_start(solver):
    result = solver.minimize(lambda x: (x @ x, -2.0 * x), np.ones(3))
    assert result.outcome is Outcome.STALLED
    assert result.fun == 3.0


@every_solver
def test_float32(solver):
    result = solver.minimize(quadratic, np.linspace(-3.0, 4.0, 10, dtype=np.float32))
    assert result.x.dtype == np.float32
    np.testing.assert_allclose(result.x, 3.0, rtol=1e-6)


def landscape(seed, n):
    """Waves, a quartic bowl, and a half-space where nothing is known."""
    rng = np.random.default_rng(seed)
    frequency, phase, wall = rng.normal(size=n) * 3.0, rng.normal(size=n), rng.normal(size=n)

    def fun(x):
        if wall @ x > 2.0:
            return np.nan, np.full_like(x, np.nan)
        waves = frequency * x + phase
        return np.sum(np.sin(waves)) + 0.05 * (x @ x) ** 2, (
            frequency * np.cos(waves) + 0.2 * (x @ x) * x
        )

    x0 = rng.normal(size=n) * 2.0
    return fun, x0 if wall @ x0 <= 2.0 else -x0


@every_solver
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 8))
def test_never_worse_than_the_start(solver, seed, n):
    fun, x0 = landscape(seed, n)
    result = dataclasses.replace(solver, max_iterations=60).minimize(fun, x0)
    assert result.fun == fun(result.x)[0]
    assert result.fun <= fun(x0)[0]
    if result.outcome is Outcome.CONVERGED_GRADIENT:
        assert np.max(np.abs(fun(result.x)[1])) <= 1e-8


def test_hessian_products_save_evaluations():
    def hessp(x, v):
        product = np.empty_like(v)
        a, b = x[0::2], x[1::2]
        product[0::2] = (2.0 - 400.0 * (b - 3.0 * a * a)) * v[0::2] - 400.0 * a * v[1::2]
        product[1::2] = -400.0 * a * v[0::2] + 200.0 * v[1::2]
        return product

    exact = TruncatedNewton(hessp=hessp).minimize(rosenbrock, breeze_start(100))
    differences = TruncatedNewton().minimize(rosenbrock, breeze_start(100))
    assert exact.success and differences.success
    assert exact.nfev < 0.6 * differences.nfev
    np.testing.assert_allclose(exact.x, 1.0, atol=1e-6)


def test_newton_needs_few_steps_where_it_is_at_home():
    """A convex problem of condition 1e6: no more than Newton's own number of steps."""
    scales = np.logspace(0.0, 6.0, 30)
    result = TruncatedNewton(hessp=lambda x, v: scales * np.cosh(x) * v).minimize(
        lambda x: (scales @ np.cosh(x), scales * np.sinh(x)), np.linspace(-1.0, 1.0, 30)
    )
    assert result.success
    assert result.nit <= 15


def test_conjugate_gradients_end_a_quadratic_in_n_steps():
    scales = np.logspace(0.0, 2.0, 6)
    solver = ConjugateGradient(search=StrongWolfe(c2=1e-6), gradient_tolerance=1e-8)
    result = solver.minimize(lambda x: (0.5 * x @ (scales * x), scales * x), np.ones(6))
    assert result.success
    assert result.nit <= 8


def test_a_saddle_is_left_along_negative_curvature():
    def fun(x):
        a, b = x
        return 0.25 * a**4 - 0.5 * a * a + 0.5 * b * b, np.array([a**3 - a, b])

    result = TruncatedNewton().minimize(fun, np.array([1e-3, 1.0]))
    assert result.success
    np.testing.assert_allclose(np.abs(result.x), [1.0, 0.0], atol=1e-5)


@pytest.mark.parametrize("size", [1e-150, 1e-162, 1e-170])
def test_squares_that_underflow_end_a_run(size):
    """Its radius and what its model foretells are 0 there, or nearly."""
    tight = {"gradient_tolerance": 0.0, "value_tolerance": 0.0}
    result = TruncatedNewton(**tight).minimize(lambda x: (float(x @ x), 2 * x), np.full(2, size))
    assert result.outcome in (Outcome.STALLED, Outcome.CONVERGED_GRADIENT)
    assert result.fun <= 2 * size * size


@every_solver
@pytest.mark.parametrize("error", [OverflowError, FloatingPointError, ZeroDivisionError])
def test_an_arithmetic_error_outside_a_ball_shortens_the_step(solver, error):
    def fun(x):
        if np.linalg.norm(x) > 3.0:
            raise error("too far out")
        return quadratic(x)

    result = dataclasses.replace(solver, max_iterations=200).minimize(fun, np.zeros(4))
    assert result.fun == pytest.approx(9.0, abs=1e-3)
    with pytest.raises(error, match="too far out"):
        solver.minimize(fun, np.full(4, 5.0))
