"""Solvers on functions that return the value alone: the arrays' library finds the gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import rosen_der

import distvec as dv
from distvec.autodiff.steps import NotDifferentiable
from optim import LBFGS, OWLQN, Adam, Box, TruncatedNewton, minimize

START = np.tile([-1.2, 1.0], 600)


def rosenbrock(x: Any) -> Any:
    return np.sum(100 * (x[1::2] - x[::2] ** 2) ** 2 + (1 - x[::2]) ** 2)


@pytest.mark.parametrize("method", ["L-BFGS", "CG", "L-BFGS-B"])
def test_no_gradient_is_given(ps: dv.Session, method: str) -> None:
    bounds = {"bounds": Box(-3.0, 3.0)} if method == "L-BFGS-B" else {}
    x0 = ps.array(np.linspace(-1, 2, 1200))
    result = minimize(lambda x: np.sum(np.cosh(x - 1)), x0, method=method, tol=1e-8, **bounds)
    assert result.success
    np.testing.assert_allclose(result.x.numpy(), 1.0, rtol=1e-6)


def test_the_path_is_that_with_the_gradient_by_hand(ps: dv.Session) -> None:
    def by_hand(x: Any) -> Any:
        pairs = x.numpy().reshape(-1, 2)
        slopes = np.ravel([rosen_der(pair) for pair in pairs])
        return rosenbrock(x), ps.array(slopes)

    solver = LBFGS(max_iterations=6)
    ours = [state.value for state in solver.iterations(rosenbrock, ps.array(START))]
    theirs = [state.value for state in solver.iterations(by_hand, ps.array(START))]
    assert ours == pytest.approx(theirs, rel=1e-9)


def test_an_iteration_costs_the_messages_of_one_by_hand(ps: dv.Session) -> None:
    x0, c = ps.zeros(3000).persist(), ps.array(np.linspace(1, 9, 3000))

    def value(x: Any) -> Any:
        return 0.5 * np.sum(c * (x - 1) ** 2)

    def pair(x: Any) -> Any:
        return 0.5 * np.sum(c * (x - 1) ** 2), c * (x - 1)

    counted = []
    for function in (value, pair):
        ps.counters.reset()
        LBFGS(max_iterations=8, gradient_tolerance=0.0).minimize(function, x0)
        found = ps.counters.snapshot()
        counted.append([found[name] for name in ("messages", "sweeps", "vectors_read")])
    assert counted[0] == counted[1]


def test_newton_takes_products_with_the_hessian_and_no_differences(ps: dv.Session) -> None:
    c = ps.array(np.linspace(1, 100, 2000))
    result = TruncatedNewton().minimize(lambda x: np.sum(np.cosh(x - 1) * c), ps.zeros(2000))
    assert result.success and result.nfev <= result.nit + 2
    np.testing.assert_allclose(result.x.numpy(), 1.0, rtol=1e-7)


def test_parameters_in_a_dict_arguments_and_penalties(ps: dv.Session) -> None:
    T = ps.random.normal((2000, 3), seed=1).persist()
    y = (T @ np.array([1.0, -2.0, 0.0]) + 0.5).persist()

    def loss(parameters: Any, y: Any) -> Any:
        margins = T @ parameters["weights"] + parameters["intercept"]
        return np.mean((margins - y) ** 2)

    start = {"weights": ps.zeros(3), "intercept": ps.zeros(1)}
    result = LBFGS(gradient_tolerance=1e-10).minimize(loss, start, args=(y,))
    np.testing.assert_allclose(result.x["weights"].numpy(), [1, -2, 0], atol=1e-6)
    np.testing.assert_allclose(result.x["intercept"].numpy(), [0.5], atol=1e-6)
    sparse = OWLQN(l1=0.1).minimize(lambda w: np.mean((T @ w - y) ** 2), ps.zeros(3))
    assert sparse.success and sparse.x.numpy()[2] == 0.0
    assert Adam(max_iterations=3).minimize(loss, start, args=(y,)).nit == 3


def test_what_is_read_within_the_function_is_said(ps: dv.Session) -> None:
    with pytest.raises(TypeError, match="must return the pair"):
        minimize(lambda x: float(np.sum(x**2)), ps.ones(3))
    with pytest.raises(NotDifferentiable, match="needs a value that depends on its argument"):
        minimize(lambda x: np.sum(x**2) / x.sum().item(), ps.ones(3))
