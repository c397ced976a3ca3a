"""Success means stationary: what ends a run where the gradient is large, or nothing bounds it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from benchmarks.test_problems import problems
from optim import (
    LBFGS,
    LBFGSB,
    OWLQN,
    SGD,
    Adam,
    Backtracking,
    Box,
    ConjugateGradient,
    GradientDescent,
    HagerZhang,
    L1Norm,
    Outcome,
    ProjectedQuasiNewton,
    ProximalGradient,
    SpectralProjectedGradient,
    TruncatedNewton,
)
from tests.optim.reference_data import Logistic, load, optimum

SOLVERS = {
    "L-BFGS": LBFGS(),
    "L-BFGS, Hager-Zhang": LBFGS(search=HagerZhang()),
    "L-BFGS, backtracking": LBFGS(search=Backtracking()),
    "L-BFGS-B": LBFGSB(),
    "OWL-QN": OWLQN(l1=0.0),
    "CG": ConjugateGradient(),
    "truncated Newton": TruncatedNewton(),
    "gradient descent": GradientDescent(),
    "SPG": SpectralProjectedGradient(projection=lambda x: x),
    "PQN": ProjectedQuasiNewton(projection=lambda x: x, inner_iterations=10),
    "proximal gradient": ProximalGradient(penalty=Box()),
}
every_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)


def badly_scaled(size):
    """A logistic loss of three rows, one of whose features is larger by orders of magnitude."""
    rows, labels = np.array([[size, 1.0], [1.0, 2.0], [0.0, 1.0]]), np.array([1.0, -1.0, 1.0])

    def fun(w):
        margins = labels * (rows @ w)
        slopes = -0.5 * labels * (1.0 - np.tanh(0.5 * margins)) / 3.0
        return np.logaddexp(0.0, -margins).mean() + 5e-4 * w @ w, rows.T @ slopes + 1e-3 * w

    return fun


@pytest.mark.parametrize("tolerance", [0.0, 1e-9])
@pytest.mark.parametrize("size", [1e2, 1e10, 1e14, 1e150])
@every_solver
def test_success_is_near_the_optimum_whatever_the_scaling(solver, size, tolerance):
    best = 0.435384 if size == 1e2 else 0.428057
    solver = dataclasses.replace(solver, value_tolerance=tolerance, max_iterations=100)
    result = solver.minimize(badly_scaled(size), np.zeros(2))
    # A tolerance on the value that was asked for is met per iteration, not from the optimum.
    assert not result.success or result.fun < best + 2e-6 + 2e4 * tolerance, result.message


def test_the_badly_scaled_optimum_is_reached():
    result = LBFGS().minimize(badly_scaled(1e14), np.zeros(2))
    assert result.fun == pytest.approx(0.4280567342414231, abs=1e-12)


def test_small_steps_are_no_success_where_the_gradient_is_large():
    def cliff(x):
        return 1e8 * np.abs(x).sum() + x @ x, 1e8 * np.sign(x) + 2.0 * x

    solver = LBFGS(gradient_tolerance=0.0, step_tolerance=1e-6, value_tolerance=1e-6)
    result = solver.minimize(cliff, np.array([0.3, -0.2, 0.7]))
    assert not result.success


@pytest.mark.parametrize("tolerance", [1e-9, 1e-10])
@pytest.mark.parametrize("name", ["heart_scale", "svmguide1", "dna", "mushrooms", "rice"])
def test_the_gradient_tolerance_that_is_asked_for_is_kept(name, tolerance):
    features, labels = load(name)
    solver = LBFGS(gradient_tolerance=tolerance)
    result = solver.minimize(Logistic(features, labels, 1e-4), np.zeros(features.shape[1]))
    assert result.outcome is Outcome.CONVERGED_GRADIENT
    assert np.max(np.abs(result.jac)) <= tolerance


@pytest.mark.parametrize("kind", ["logistic_l2", "logistic_l1"])
@pytest.mark.parametrize(
    "name", ["heart_scale", "spark_svm", "svmguide1", "dna", "mushrooms", "rice", "agaricus"]
)
def test_defaults_reach_the_certified_optima(name, kind):
    features, labels = load(name)
    smooth = kind == "logistic_l2"
    solver = LBFGS() if smooth else OWLQN(l1=1e-4)
    loss = Logistic(features, labels, 1e-4 if smooth else 0.0)
    result = solver.minimize(loss, np.zeros(features.shape[1]))
    assert result.success
    assert abs(result.fun / optimum(name, kind, 1e-4)["optimum_value"] - 1.0) < 1e-8


def test_precision_is_used_up_before_the_default_tolerance():
    def rounded(x):
        value, gradient = 1e6 * (x - 1.0) @ (x - 1.0) + 1e6, 2e6 * (x - 1.0)
        return value, np.where(np.abs(gradient) < 1e-6, 1e-6, gradient)

    result = LBFGS().minimize(rounded, np.zeros(3))
    assert result.outcome is Outcome.CONVERGED_PRECISION
    assert result.success
    asked = LBFGS(gradient_tolerance=1e-9).minimize(rounded, np.zeros(3))
    assert asked.outcome is Outcome.STALLED
    assert not asked.success


BOTTOMLESS = {
    "parabola": lambda x: (-(x @ x), -2.0 * x),
    "cubic": lambda x: ((x**3).sum(), 3.0 * x * x),
    "saddle": lambda x: (x[0] ** 2 - x[1] ** 2, np.array([2.0, -2.0]) * x),
    "exponential": lambda x: (-np.exp(-x).sum(), np.exp(-x)),
}


@every_solver
@pytest.mark.parametrize("fun", BOTTOMLESS.values(), ids=BOTTOMLESS)
def test_unbounded_below_is_told_after_few_evaluations(fun, solver):
    result = solver.minimize(fun, np.array([-0.5, -1.0]))
    assert result.outcome is Outcome.UNBOUNDED, result.message
    assert not result.success
    assert "unbounded" in result.message
    assert result.nfev <= 124  # SciPy's on a line


@pytest.mark.parametrize(
    "name", ["L-BFGS", "L-BFGS, Hager-Zhang", "L-BFGS-B", "OWL-QN", "CG", "truncated Newton"]
)
def test_a_line_has_no_minimum(name):
    result = SOLVERS[name].minimize(lambda x: (x.sum(), np.ones_like(x)), np.zeros(3))
    assert result.outcome is Outcome.UNBOUNDED
    assert result.nfev <= 124


def steep(x):
    """Falls along the first coordinate for ever."""
    return -x[0] + x[1:] @ x[1:], np.concatenate(([-1.0], 2.0 * x[1:]))


@pytest.mark.parametrize(
    "fun", [steep, lambda x: (x.sum(), np.ones_like(x))], ids=["steep", "line"]
)
@pytest.mark.parametrize(
    "solver",
    [
        SpectralProjectedGradient(projection=lambda x: x),
        SpectralProjectedGradient(projection=lambda x: np.minimum(x, 1e300)),
        ProximalGradient(penalty=Box()),
        ProximalGradient(penalty=L1Norm(0.5)),
    ],
    ids=["SPG", "SPG, bounded above", "proximal gradient", "l1"],
)
def test_no_minimum_is_found_where_there_is_none(solver, fun):
    """Far out x - projection(x - g) rounds to 0, which is no sign of a minimum."""
    result = solver.minimize(fun, np.array([0.0, 1.0, 1.0, 1.0]))
    assert not result.success, (result.message, result.x)


@pytest.mark.parametrize("scale", [1.0, 1e20, 1e100])
@pytest.mark.parametrize("name", ["L-BFGS", "CG"])
def test_no_standard_problem_is_called_unbounded(name, scale):
    solver = dataclasses.replace(SOLVERS[name], max_iterations=30)
    for problem in list(problems().values())[::5]:

        def fun(x, problem=problem):
            value, gradient = problem.objective(x)
            return scale * value, scale * gradient

        assert solver.minimize(fun, problem.x0).outcome is not Outcome.UNBOUNDED, problem.name


def test_a_deep_minimum_far_away_is_found():
    depth, curvature = 1e10, 1e-6
    solver = LBFGS(gradient_tolerance=1e-3)
    result = solver.minimize(
        lambda x: (0.5 * curvature * x @ x - depth * x.sum(), curvature * x - depth), np.zeros(2)
    )
    assert result.success
    np.testing.assert_allclose(result.x, depth / curvature)


def test_a_diverging_stochastic_run_is_no_success():
    def fun(x):
        return x @ x, 2.0 * x

    result = SGD(step_size=1.5, window=20, max_iterations=100).minimize(fun, np.ones(3))
    assert not result.success
    good = Adam(step_size=0.1, window=20, value_tolerance=1e-3, max_iterations=1000)
    assert good.minimize(fun, np.ones(3)).success
