"""Against the recorded runs of Breeze 2.1: as low at least, with no more evaluations.

Where a name says that Breeze fails, the right answer is asked for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest

from optim import (
    LBFGS,
    LBFGSB,
    OWLQN,
    ConjugateGradient,
    Solver,
    TruncatedNewton,
    check_gradient,
    with_l1,
    with_l2,
)
from tests.optim.problems import Objective, breeze_start, quadratic, quartic, rosenbrock
from tests.optim.quasi_newton.test_lbfgsb import LARGEST, alglib, reciprocal
from tests.optim.reference_data import DATA, read_json


@dataclass(frozen=True)
class Case:
    """A run of Breeze, with our solver; `value` is the right one where Breeze has a wrong one."""

    solver: Solver
    fun: Objective
    x0: np.ndarray
    value: float | None = None


FREE_FIRST = np.array([0.0, 1.0, 1.0])
TARGET = np.array([-4.0, 3.0, 3.0])


def to_target(x):
    return (x - TARGET) @ (x - TARGET), 2.0 * (x - TARGET)


CASES = {
    "lbfgs_quad10_m4_tol1e-9": Case(LBFGS(history=4), quadratic, breeze_start(10)),
    "lbfgs_rosenpairs100_m6_max40": Case(LBFGS(history=6), rosenbrock, breeze_start(100)),
    "lbfgs_rosenpairs2_m1": Case(LBFGS(history=1), rosenbrock, breeze_start(2)),
    "lbfgs_quartic_from1000_FAILS": Case(LBFGS(), quartic, np.full(5, 1000.0), 0.0),
    "owlqn_simple_l1=1": Case(OWLQN(l1=1.0), quadratic, np.array([-1.1053, 0.0, 0.0])),
    "owlqn_quad10_l1=1": Case(OWLQN(l1=1.0), quadratic, breeze_start(10)),
    "owlqn_unpenalised0_cross_zero": Case(
        OWLQN(l1=FREE_FIRST), to_target, np.array([5.0, 0.0, 0.0])
    ),
    "owlqn_rosenpairs100_l1=1e-3_STOPS_BADLY": Case(
        OWLQN(l1=1e-3), rosenbrock, breeze_start(100), 0.1
    ),
    "lbfgsb_alglib": Case(LBFGSB(bounds=[(-1, 1)] * 2), alglib, np.zeros(2)),
    "lbfgsb_issue572_1.5": Case(LBFGSB(bounds=[(1e-12, LARGEST)]), reciprocal, np.array([1.5])),
    "trunc_newton_quad10_l2=1_emp": Case(
        TruncatedNewton(gradient_tolerance=1e-6), with_l2(quadratic, 1.0), breeze_start(10)
    ),
    "trunc_newton_rosenpairs2_emp_CRASHES": Case(
        TruncatedNewton(), rosenbrock, breeze_start(2), 0.0
    ),
}


def recorded():
    path = DATA / "breeze_traces.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    runs = [json.loads(line) for line in path.read_text().splitlines()]
    return {run["case"]: run for run in runs}


@pytest.mark.parametrize("name", CASES)
def test_against_the_recorded_run(name):
    case, run = CASES[name], recorded()[name]
    start, end = run["rows"][0], run["rows"][-1]
    result = case.solver.minimize(case.fun, case.x0)
    assert result.history[0].value == pytest.approx(start["f"], rel=1e-12)
    assert result.success
    if case.value is not None:
        assert result.fun <= case.value + 1e-8
    else:
        assert result.fun <= end["f"] + 1e-9
        np.testing.assert_allclose(result.x[:6], end["x"], atol=2e-6)
        assert result.nfev <= run["evals"]


def test_the_sparse_rosenbrock_of_breeze_is_stationary():
    case = CASES["owlqn_rosenpairs100_l1=1e-3_STOPS_BADLY"]
    result = case.solver.minimize(case.fun, case.x0)
    value, gradient = with_l1(rosenbrock, 1e-3)(result.x)
    assert value == pytest.approx(result.fun)
    assert np.max(np.abs(gradient)) <= 1e-6


@pytest.mark.parametrize("name", CASES)
def test_the_gradients_of_these_cases_are_right(name):
    case = CASES[name]
    x = np.clip(case.x0, 0.1, 2.0) + 0.01
    check = check_gradient(case.fun, x)
    assert check, check


def quadratic_form(hessian, linear):
    """x.H x / 2 - linear.x"""
    b = np.array(linear)
    h = np.reshape(hessian, (b.size, b.size))
    return lambda x: (0.5 * x @ h @ x - b @ x, h @ x - b)


SMOOTH_SOLVERS = [LBFGS(), LBFGSB(), ConjugateGradient(), TruncatedNewton()]


@pytest.mark.parametrize("solver", SMOOTH_SOLVERS, ids=lambda s: type(s).__name__)
def test_quadratic_program(solver):
    constants = read_json("breeze_fixtures.json")
    result = solver.minimize(quadratic_form(constants["H5"], constants["f5"]), np.zeros(5))
    expected = np.linalg.solve(np.reshape(constants["H5"], (5, 5)), constants["f5"])
    np.testing.assert_allclose(result.x, expected, rtol=0.0, atol=1e-4)


def test_quadratic_program_in_the_unit_box():
    constants = read_json("breeze_fixtures.json")
    solver = LBFGSB(bounds=[(0, 1)] * 5)
    result = solver.minimize(quadratic_form(constants["H5"], constants["f5"]), np.zeros(5))
    np.testing.assert_allclose(result.x, constants["_derived_H5_box01"], rtol=0.0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "solution"), [("nnls", "nnls_goodx_5"), ("nnls2", "nnls2_refx_5")]
)
def test_non_negative_least_squares(name, solution):
    constants = read_json("breeze_fixtures.json")
    fun = quadratic_form(constants[f"{name}_ata_5"], constants[f"{name}_atb_5"])
    result = LBFGSB(bounds=[(0, None)] * 5, gradient_tolerance=1e-9).minimize(fun, np.zeros(5))
    expected = np.array(constants[solution])
    assert result.fun <= fun(expected)[0] + 1e-9
    if name == "nnls":
        np.testing.assert_allclose(result.x, expected, rtol=0.0, atol=1e-3)


def test_quadratic_program_with_l1():
    constants = read_json("breeze_fixtures.json")
    fun = quadratic_form(constants["Hl1_25"], -np.array(constants["fl1_25"]))
    result = OWLQN(l1=2.0, gradient_tolerance=1e-8).minimize(fun, np.zeros(25))
    expected = constants["_derived_l1_lambda2_solution_25"]
    np.testing.assert_allclose(result.x, expected, rtol=0.0, atol=1e-4)
