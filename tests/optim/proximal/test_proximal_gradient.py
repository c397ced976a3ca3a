"""Smooth objectives plus penalties: proximal gradients and ADMM against subgradients and OWL-QN."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from optim import (
    ADMM,
    OWLQN,
    Box,
    ElasticNet,
    GroupLasso,
    Huber,
    L1Norm,
    L2Norm,
    Outcome,
    ProximalGradient,
    Simplex,
)
from tests.optim.lazy_array import LazyNamespace
from tests.optim.problems import breeze_start, quadratic, quartic, rosenbrock
from tests.optim.reference_data import Logistic, load, optimum, read_json
from tests.samples import sampled

SOLVERS = {
    "FISTA": lambda penalty, **options: ProximalGradient(penalty=penalty, **options),
    "ISTA": lambda p, **options: ProximalGradient(penalty=p, accelerated=False, **options),
    "ADMM": lambda p, **options: ADMM(penalty=p, relative_tolerance=1e-8, **options),
}
every_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
searching = pytest.mark.parametrize("solver", [SOLVERS["FISTA"], SOLVERS["ISTA"]], ids=["F", "I"])


def random_quadratic(seed, n):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, n))
    hessian, b = a @ a.T + 0.1 * np.eye(n), 3.0 * rng.normal(size=n)
    return lambda x: (0.5 * x @ hessian @ x - b @ x, hessian @ x - b), rng.normal(size=n)


@every_solver
def test_breeze_quadratic_with_l1(solver):
    result = solver(L1Norm(1.0)).minimize(quadratic, np.array([-1.1053, 0.0, 0.0]))
    np.testing.assert_allclose(result.x, 2.5, atol=1e-6)
    assert result.fun == pytest.approx(3 * (0.25 + 2.5))


@every_solver
def test_breeze_quadratic_program_with_l1(solver):
    fixtures = read_json("breeze_fixtures.json")
    hessian, linear = np.reshape(fixtures["Hl1_25"], (25, 25)), np.array(fixtures["fl1_25"])
    result = solver(L1Norm(2.0), max_iterations=5000).minimize(
        lambda x: (0.5 * x @ hessian @ x + linear @ x, hessian @ x + linear), np.zeros(25)
    )
    np.testing.assert_allclose(result.x, fixtures["_derived_l1_lambda2_solution_25"], atol=1e-4)


@every_solver
def test_an_intercept_crosses_zero(solver):
    target = np.array([-4.0, 2.0, 0.01])
    result = solver(L1Norm(np.array([0.0, 1.0, 1.0]))).minimize(
        lambda x: (0.5 * (x - target) @ (x - target), x - target), np.array([5.0, 1.0, 1.0])
    )
    np.testing.assert_allclose(result.x, [-4.0, 1.0, 0.0], atol=1e-5)
    assert result.x[2] == 0.0


@every_solver
def test_quartic_from_far_away(solver):
    result = solver(L1Norm(0.5), gradient_tolerance=1e-8).minimize(quartic, np.full(5, 1000.0))
    assert result.success
    np.testing.assert_allclose(result.x, 2.5, atol=1e-3)  # 4 (x - 3)^3 = -l1


@every_solver
def test_rosenbrock_100_with_l1(solver):
    best = OWLQN(l1=1e-3, gradient_tolerance=1e-9).minimize(rosenbrock, breeze_start(100))
    result = solver(L1Norm(1e-3), max_iterations=4000).minimize(rosenbrock, breeze_start(100))
    assert result.fun == pytest.approx(best.fun, rel=1e-4)


PENALTIES = [
    L1Norm(0.5),
    L2Norm(1.0),
    ElasticNet(0.5, 1.0),
    Huber(1.0, 0.3),
    GroupLasso(np.array([0, 0, 1, 1, -1]), groups=2),
]


@pytest.mark.parametrize(
    ("solver", "penalty"),
    sampled(SOLVERS, PENALTIES, every=3),
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
@example(seed=227)
@example(seed=304)
def test_random_quadratics(solver, penalty, seed):
    """Nothing nearby or on a coordinate's way to 0 is lower; no value is above the start's."""
    fun, x0 = random_quadratic(seed, 5)

    def objective(x):
        return fun(x)[0] + float(penalty.value(x))

    result = SOLVERS[solver](penalty, max_iterations=5000).minimize(fun, x0)
    assert result.success
    assert result.fun == pytest.approx(objective(result.x), rel=1e-12, abs=1e-12)
    assert result.fun <= objective(x0)
    rng = np.random.default_rng(seed)
    near = result.x + rng.normal(size=(30, 5)) * 10.0 ** rng.uniform(-5.0, 0.0, (30, 1))
    zeroed = [np.where(np.arange(5) == i, 0.0, result.x) for i in range(5)]
    for other in [*near, *zeroed, np.zeros(5)]:
        assert objective(other) >= result.fun - 1e-9 * (1.0 + abs(result.fun))


@pytest.mark.parametrize(("name", "lam"), [("heart_scale", 1e-3), ("heart_scale", 1e-4)])
@every_solver
def test_logistic_l1_reaches_the_certified_optimum(solver, name, lam):
    features, labels = load(name)
    reference = optimum(name, "logistic_l1", lam)
    result = solver(L1Norm(lam), gradient_tolerance=1e-8, max_iterations=3000).minimize(
        Logistic(features, labels), np.zeros(features.shape[1])
    )
    assert result.success
    assert abs(result.fun / reference["optimum_value"] - 1.0) < 1e-7


@searching
def test_values_never_rise(solver):
    result = solver(L1Norm(1e-3), max_iterations=300).minimize(rosenbrock, breeze_start(20))
    values = [record.value for record in result.history]
    assert np.all(np.diff(values) <= 1e-13 * values[0])


def test_acceleration_pays():
    weights = np.logspace(0.0, 3.0, 50)
    iterations = [
        solver(L1Norm(0.0), gradient_tolerance=1e-4, max_iterations=5000)
        .minimize(lambda x: (0.5 * x @ (weights * x), weights * x), np.ones(50))
        .nit
        for solver in (SOLVERS["FISTA"], SOLVERS["ISTA"])
    ]
    assert 2 * iterations[0] < iterations[1]


@searching
@pytest.mark.parametrize("outside", [np.nan, np.inf, -np.inf])
def test_not_finite_outside_a_ball(solver, outside):
    def fun(x):
        inside = np.linalg.norm(x) <= 3.0
        return quadratic(x) if inside else (outside, np.full_like(x, outside))

    result = solver(L1Norm(0.1), max_iterations=60).minimize(fun, np.zeros(4))
    assert np.linalg.norm(result.x) <= 3.0
    assert result.fun < 36.0
    assert all(np.isfinite(record.value) for record in result.history)


@searching
def test_a_wrong_gradient_stalls_at_the_start(solver):
    result = solver(L1Norm(0.0)).minimize(lambda x: (x @ x, -2.0 * x), np.ones(3))
    assert result.outcome is Outcome.STALLED
    assert result.fun == 3.0


WEIGHTS = np.logspace(0.0, 2.0, 12)


def bowl(x):
    """A stretched quadratic on any array library."""
    d = x - 2.0
    scaled = x.__array_namespace__().asarray(WEIGHTS) * d
    return 0.5 * (d @ scaled), scaled


@pytest.mark.parametrize("penalty", [ElasticNet(0.3, 0.1), Box(0.0, 1.0)], ids=repr)
@searching
def test_one_message_for_each_evaluation(solver, penalty):
    xp = LazyNamespace()
    result = solver(penalty).minimize(bowl, xp.array(np.linspace(-2.0, 3.0, 12)))
    assert result.success
    assert xp.messages == result.nfev
    assert xp.deepest < 50


def test_a_set_with_a_threshold_costs_more_messages():
    xp = LazyNamespace()
    result = ProximalGradient(penalty=Simplex()).minimize(bowl, xp.array(np.linspace(-2, 3, 12)))
    assert result.success
    assert xp.messages <= result.nfev * (1 + 2 * 6)


def test_growth_is_checked():
    with pytest.raises(ValueError, match=r"growth=0.5\): must be 1 or more"):
        ProximalGradient(penalty=L1Norm(), growth=0.5)
