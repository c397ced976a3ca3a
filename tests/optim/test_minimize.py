"""minimize(): SciPy's arguments and result, and refusals that say what to type."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import OptimizeResult

import optim
from optim import (
    LBFGS,
    LBFGSB,
    OWLQN,
    SGD,
    Box,
    ConjugateGradient,
    Outcome,
    TruncatedNewton,
    minimize,
)
from tests.optim.problems import breeze_start, quadratic, rosenbrock


def test_result_has_scipys_shape():
    result = minimize(rosenbrock, breeze_start(4))
    assert isinstance(result, OptimizeResult)
    assert result.success is True
    assert result.status == Outcome.CONVERGED_GRADIENT.value == 0
    assert result.message == Outcome.CONVERGED_GRADIENT.sentence
    assert isinstance(result.fun, float)
    np.testing.assert_allclose(result.x, 1.0, atol=1e-5)
    np.testing.assert_array_equal(result.jac, rosenbrock(result.x)[1])
    assert result.nfev == result.njev >= result.nit
    seconds = [record.seconds for record in result.history]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize(
    ("method", "options", "solver"),
    [
        ("L-BFGS", {"history": 4}, LBFGS(history=4)),
        ("lbfgs", {}, LBFGS()),
        ("OWL-QN", {"l1": 0.5}, OWLQN(l1=0.5)),
        ("owlqn", {"l1": 0.5, "max_iterations": 3}, OWLQN(l1=0.5, max_iterations=3)),
        ("SGD", {"step_size": 1e-4}, SGD(step_size=1e-4)),
        ("CG", {"max_iterations": 9}, ConjugateGradient(max_iterations=9)),
        ("trust-ncg", {"max_inner_iterations": 1}, TruncatedNewton(max_inner_iterations=1)),
        ("L-BFGS-B", {"bounds": Box(0.0, 2.0)}, LBFGSB(bounds=Box(0.0, 2.0))),
    ],
)
def test_options_are_the_constructors(method, options, solver):
    result = minimize(rosenbrock, breeze_start(4), method=method, options=options)
    expected = solver.minimize(rosenbrock, breeze_start(4))
    np.testing.assert_array_equal(result.x, expected.x)
    assert result.nfev == expected.nfev


def test_args_and_a_separate_gradient():
    result = minimize(
        lambda x, a, b: np.sum((x - a) ** 2) + b,
        np.zeros(3),
        args=(2.0, 1.0),
        jac=lambda x, a, b: 2.0 * (x - a),
    )
    np.testing.assert_allclose(result.x, 2.0)
    assert result.fun == pytest.approx(1.0)
    pair = minimize(lambda x, a: quadratic(x - a), np.zeros(3), args=1.0)
    np.testing.assert_allclose(pair.x, 4.0)


def test_hessp_gets_the_arguments_too():
    result = minimize(
        lambda x, a: (np.sum(a * np.cosh(x)), a * np.sinh(x)),
        np.ones(3),
        args=(2.0,),
        method="trust-ncg",
        hessp=lambda x, v, a: a * np.cosh(x) * v,
    )
    assert result.success
    np.testing.assert_allclose(result.x, 0.0, atol=1e-6)


def test_bounds_choose_the_method():
    result = minimize(quadratic, np.zeros(2), bounds=[(None, 1), (None, None)])
    np.testing.assert_allclose(result.x, [1.0, 3.0])


def test_tol():
    loose = minimize(rosenbrock, breeze_start(4), tol=1e-2)
    assert 1e-6 < np.max(np.abs(loose.jac)) <= 1e-2
    both = minimize(rosenbrock, breeze_start(4), tol=1e-2, options={"gradient_tolerance": 1e-6})
    assert np.max(np.abs(both.jac)) <= 1e-6


def test_callbacks_of_both_kinds():
    seen = []

    def scipys(intermediate_result):
        seen.append(intermediate_result.fun)
        assert intermediate_result.x.shape == (4,)
        if len(seen) == 2:
            raise StopIteration

    result = minimize(rosenbrock, breeze_start(4), callback=scipys)
    assert (result.nit, len(seen)) == (2, 2)
    result = minimize(rosenbrock, breeze_start(4), callback=lambda state: state.iteration == 3)
    assert result.outcome is Outcome.STOPPED_BY_CALLBACK
    assert result.nit == 3
    assert minimize(quadratic, np.zeros(2), callback=print_nothing).success


def print_nothing(state):
    """Answers None: the run goes on."""


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"bounds": [(0, 1)], "method": "CG"},
            NotImplementedError,
            r"minimize\(bounds=...\) is not available with method CG; use method L-BFGS-B",
        ),
        ({"constraints": [{}]}, NotImplementedError, "constraints.*leave constraints out"),
        ({"hess": np.eye(2)}, NotImplementedError, "hess.*give products with it.*trust-ncg"),
        ({"hessp": abs}, NotImplementedError, "hessp.*use method trust-ncg"),
        ({"method": "BFGS"}, ValueError, "'BFGS' is not one of L-BFGS, .*the nearest is L-BFGS"),
        ({"method": "nelder-mead"}, ValueError, "the nearest is L-BFGS.*differences of values"),
        ({"method": "SLSQP"}, ValueError, "the nearest is L-BFGS-B for bounds"),
        ({"method": 3}, ValueError, "method=3 is not one of"),
        ({"jac": "4-point"}, ValueError, "must be True, callable, or one of 2-point"),
        (
            {"options": {"maxiter": 3, "max_iterations": 3}},
            ValueError,
            "max_iterations is given twi",
        ),
        ({"options": {"memory": 3}}, ValueError, "allowed are max_iterations, .*history"),
    ],
)
def test_refusals_speak(arguments, error, message):
    with pytest.raises(error, match=message):
        minimize(quadratic, np.zeros(2), **arguments)


def test_fun_must_be_callable():
    with pytest.raises(TypeError, match="fun must be callable, got float"):
        minimize(1.0, np.zeros(2))


def test_a_solver_is_found_by_the_name_of_its_class():
    result = minimize(lambda x: (x @ x, 2 * x), np.ones(3), method="ConjugateGradient")
    assert result.success
    assert abs(result.x).max() < 1e-4


def _is_for_type_checkers(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def test_optim_imports_only_the_standard_library_numpy_and_the_result_type():
    folder = Path(optim.__file__).parent
    allowed = {*sys.stdlib_module_names, "numpy", "optim"}
    for path in folder.rglob("*.py"):
        text = path.read_text()
        tree = ast.parse(text)
        # Imports for type checkers never run.
        tree.body = [node for node in tree.body if not _is_for_type_checkers(node)]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert {name.name.split(".")[0] for name in node.names} <= allowed, path
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [name.name for name in node.names]
                scipy = (node.module, names) == ("scipy.optimize", ["OptimizeResult"])
                assert scipy or node.module.split(".")[0] in allowed, path
