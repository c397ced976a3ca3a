"""L-BFGS-B: Breeze's cases, what its users complained of, and optimality on random problems."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds
from scipy.optimize import minimize as scipy_minimize

from optim import LBFGS, LBFGSB, Box, Outcome, minimize
from tests.optim.problems import NAMED, breeze_start, quadratic, rosenbrock
from tests.optim.quasi_newton.test_owlqn import random_quadratic
from tests.samples import marked, sampled

LARGEST = np.finfo(float).max


def valley(x):
    """(x0 - x1^2)^2 / 2 + (x0 - 2)^2 / 2, minimum 0."""
    d = x[0] - x[1] ** 2
    return 0.5 * d * d + 0.5 * (x[0] - 2.0) ** 2, np.array([d + x[0] - 2.0, -2.0 * d * x[1]])


def alglib(x):
    return 100.0 * (x[0] + 3.0) ** 4 + (x[1] - 3.0) ** 4, np.array(
        [400.0 * (x[0] + 3.0) ** 3, 4.0 * (x[1] - 3.0) ** 3]
    )


def reciprocal(x):
    return np.sum(x + 1.0 / x), 1.0 - 1.0 / x**2


def projected_gradient_norm(fun, lower, upper, x):
    return np.max(np.abs(np.clip(x - fun(x)[1], lower, upper) - x))


def test_breeze_rosenbrock_in_a_wide_box():
    result = LBFGSB(bounds=[(-100, 1200), (-100, 100)]).minimize(rosenbrock, breeze_start(2))
    assert result.fun < 1e-10


@pytest.mark.parametrize("start", [(-1.2, 1.0), (12.0, 8.2)])
def test_breeze_unbounded(start):
    result = LBFGSB(bounds=[(None, None)] * 2).minimize(valley, np.array(start))
    assert result.fun < 1e-10


def test_breeze_corner_is_met_exactly():
    result = LBFGSB(bounds=[(-1, 1)] * 2).minimize(alglib, np.zeros(2))
    np.testing.assert_array_equal(result.x, [-1.0, 1.0])
    assert result.outcome is Outcome.CONVERGED_GRADIENT
    assert LBFGS().minimize(alglib, np.zeros(2)).fun < result.fun


@pytest.mark.parametrize("start", [1.5, 1500.0, 1e6, 1e-6])
def test_breeze_issue_572_huge_bounds(start):
    result = LBFGSB(bounds=[(1e-12, LARGEST)]).minimize(reciprocal, np.array([start]))
    assert result.success
    assert result.x[0] == pytest.approx(1.0, abs=1e-4)


def test_breeze_issue_497_rosenbrock_against_a_bound():
    result = LBFGSB(bounds=[(None, 0.5), (None, None)]).minimize(rosenbrock, breeze_start(2))
    assert result.x[0] == 0.5
    assert result.x[1] == pytest.approx(0.25, abs=1e-6)


def test_without_bounds_the_path_is_that_of_lbfgs():
    free = LBFGS().minimize(rosenbrock, breeze_start(20))
    result = LBFGSB().minimize(rosenbrock, breeze_start(20))
    np.testing.assert_array_equal(result.x, free.x)
    assert result.nfev == free.nfev


def test_nothing_is_evaluated_outside_and_the_start_is_moved_inside():
    seen = []

    def fun(x):
        seen.append(x)
        return rosenbrock(x)

    result = LBFGSB(bounds=Box(-0.5, 0.7)).minimize(fun, np.array([-9.0, 4.0]))
    np.testing.assert_array_equal(seen[0], [-0.5, 0.7])
    assert all(np.all((x >= -0.5) & (x <= 0.7)) for x in seen)
    assert result.x[0] == 0.7
    assert result.x[1] == pytest.approx(0.49, abs=1e-6)


def test_fixed_coordinates_stay():
    lower, upper = np.array([1.0, -np.inf, 2.0, -5.0]), np.array([1.0, np.inf, 2.0, 0.0])
    result = LBFGSB(bounds=Box(lower, upper)).minimize(quadratic, np.zeros(4))
    np.testing.assert_allclose(result.x, [1.0, 3.0, 2.0, 0.0])
    point = LBFGSB(bounds=Box(1.0, 1.0)).minimize(quadratic, np.zeros(2))
    assert (point.outcome, point.nit) == (Outcome.CONVERGED_GRADIENT, 0)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 15), open_ends=st.booleans())
def test_optimal_on_random_quadratics(seed, n, open_ends):
    fun, _, x0 = random_quadratic(seed, n)
    rng = np.random.default_rng(seed)
    lower, upper = -rng.exponential(size=n), rng.exponential(size=n)
    if open_ends:
        lower[::2], upper[1::3] = -np.inf, np.inf
    solver = LBFGSB(bounds=Box(lower, upper), gradient_tolerance=1e-8, value_tolerance=0.0)
    result = solver.minimize(fun, x0)
    assert np.all((lower <= result.x) & (result.x <= upper))
    assert projected_gradient_norm(fun, lower, upper, result.x) <= 1e-7
    assert result.fun <= fun(np.clip(x0, lower, upper))[0]
    expected = scipy_minimize(
        fun, x0, jac=True, method="L-BFGS-B", bounds=Bounds(lower, upper), options={"ftol": 0.0}
    )
    assert result.fun <= expected.fun + 1e-9 * max(abs(expected.fun), 1.0)


@pytest.mark.parametrize(("n", "condition"), sampled([5, 20, 100], [1e1, 1e3, 1e5], every=3))
def test_economy_against_scipy(n, condition):
    """Half of the coordinates end at bounds. Evaluations, over four problems."""
    ours = theirs = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        q, _ = np.linalg.qr(rng.normal(size=(n, n)))
        hessian = q @ np.diag(np.logspace(0.0, np.log10(condition), n)) @ q.T
        b = 3.0 * np.sqrt(condition) * rng.normal(size=n)

        def fun(x, hessian=hessian, b=b):
            return 0.5 * x @ hessian @ x - b @ x, hessian @ x - b

        bounds = [(-1.0, 1.0)] * n
        result = LBFGSB(bounds=bounds, gradient_tolerance=1e-6).minimize(fun, np.zeros(n))
        options = {"ftol": 0.0, "gtol": 1e-6, "maxiter": 10**4, "maxfun": 10**5}
        scipy = scipy_minimize(
            fun, np.zeros(n), jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        assert result.success
        assert result.fun <= scipy.fun + 1e-8 * abs(scipy.fun)
        ours, theirs = ours + result.nfev, theirs + scipy.nfev
    # SciPy's count differs by the machine's BLAS, as 86 and 89 of five coordinates.
    assert ours <= 1.2 * theirs + 12


def chain(x):
    """BIGGSB1 of CUTEst: (x_1 - 1)^2 + (1 - x_n)^2 and the squared differences of neighbours."""
    d = np.diff(x, prepend=1.0, append=1.0)
    return d @ d, 2.0 * (d[:-1] - d[1:])


def weeds(x):
    """WEEDS of CUTEst: a logistic curve through twelve measurements."""
    measured = np.array(
        "5.308 7.24 9.638 12.866 17.069 23.192 31.443 38.558 50.156 62.948 75.995 91.972".split()
    ).astype(float)
    t = np.arange(1.0, 13.0)
    decay = np.exp(-x[2] * t)
    bottom = 1.0 + x[1] * decay
    r = x[0] / bottom - measured
    steps = np.array([1.0 / bottom, -x[0] * decay / bottom**2, x[0] * x[1] * t * decay / bottom**2])
    return r @ r, 2.0 * steps @ r


def exponentials(x):
    """EXPLIN of CUTEst, less columns: exponentials of products of neighbours less a slope."""
    grown, slopes = np.exp(0.1 * x[:6] * x[1:7]), 10.0 * np.arange(1, x.size + 1)
    gradient = -slopes
    gradient[:6] += 0.1 * grown * x[1:7]
    gradient[1:7] += 0.1 * grown * x[:6]
    return grown.sum() - slopes @ x, gradient


@pytest.mark.parametrize(
    ("fun", "start", "bounds", "evaluations"),
    [
        (exponentials, np.zeros(12), [(0.0, 10.0)] * 12, 27),
        (chain, np.zeros(10), [(0.0, 0.9)] * 9 + [(None, None)], 18),
        (weeds, np.ones(3), [(0.0, None), (0.0, None), (0.0, 3.0)], 82),
    ],
)
def test_evaluations_of_cutest(fun, start, bounds, evaluations):
    """Steps to corners, bends of the path, and free coordinates held near bounds took more."""
    result = LBFGSB(bounds=bounds, gradient_tolerance=1e-5).minimize(fun, start)
    assert result.success
    assert result.nfev <= 1.2 * evaluations


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 8), steep=st.floats(-3.0, 12.0))
def test_the_first_line_ends_at_the_projected_gradient_step(seed, n, steep):
    """On a path that bends at bounds, a steep function was evaluated at one corner many times."""
    quadratic_part, _, x0 = random_quadratic(seed, n)
    rng, seen = np.random.default_rng(seed), []
    lower, upper = -rng.exponential(size=n), rng.exponential(size=n)
    x0 = np.clip(x0, lower, upper)

    def fun(x):
        seen.append(x)
        value, gradient = quadratic_part(x)
        return 10.0**steep * value, 10.0**steep * gradient

    states = LBFGSB(bounds=Box(lower, upper), max_iterations=1).iterations(fun, x0)
    first = next(states)
    assert len(list(states)) <= 1
    if len(seen) > 1:
        end = np.clip(x0 - first.gradient, lower, upper)
        np.testing.assert_allclose(seen[1], end, rtol=1e-12, atol=1e-12)
    assert len(np.unique(seen, axis=0)) == len(seen)


@pytest.mark.parametrize("upper", marked([0.5, 0.8, 2.0], long=[2.0]))
def test_chained_rosenbrock_with_bounds_on_every_third(upper):
    fun, x0 = NAMED["Chained Rosenbrock n=100"], breeze_start(100)
    bounds = [(-2.0, upper if i % 3 == 0 else None) for i in range(100)]
    result = LBFGSB(bounds=bounds).minimize(fun, x0)
    scipy = scipy_minimize(fun, x0, jac=True, method="L-BFGS-B", bounds=bounds)
    assert result.success
    assert result.fun <= scipy.fun + 1e-6


@pytest.mark.parametrize(
    "bounds",
    [
        [(0, 1), (None, 2.5)],
        np.array([[0, 1], [-np.inf, 2.5]]),
        Bounds([0, -np.inf], [1, 2.5]),
        Box(0.0, np.array([1, 2.5])),
    ],
)
@pytest.mark.parametrize("method", [None, "L-BFGS-B"])
def test_bounds_as_scipys_users_write_them(bounds, method):
    result = minimize(quadratic, [0.5, 0.5], method=method, bounds=bounds)
    np.testing.assert_array_equal(result.x, [1.0, 2.5])
    np.testing.assert_array_equal(result.jac, quadratic(result.x)[1])


def test_float32_stays():
    result = LBFGSB(bounds=[(0, 1)] * 3).minimize(quadratic, np.zeros(3, dtype=np.float32))
    assert result.x.dtype == np.float32
    np.testing.assert_array_equal(result.x, 1.0)


@pytest.mark.parametrize(
    ("bounds", "error", "message"),
    [
        ([(0, 1)], ValueError, r"lower has shape \(1,\), but x has \(2,\)"),
        ([(1, 0), (0, 1)], ValueError, "lower exceeds upper by 1.0"),
        ([0, 1], TypeError, "one pair .* got a sequence of other elements"),
        (3.0, TypeError, "one pair .* got float"),
    ],
)
def test_bounds_are_checked(bounds, error, message):
    with pytest.raises(error, match=message):
        LBFGSB(bounds=bounds).minimize(quadratic, np.ones(2))
