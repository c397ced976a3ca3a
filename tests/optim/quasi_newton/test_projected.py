"""Minima over convex sets: Breeze's cases, its failures, and random quadratics."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from optim import (
    ADMM,
    Box,
    GradientDescent,
    Hyperplane,
    L1Ball,
    L2Ball,
    NonNegative,
    Outcome,
    ProjectedQuasiNewton,
    ProximalGradient,
    Simplex,
    SpectralProjectedGradient,
    minimize,
)
from tests.optim.lazy_array import LazyNamespace
from tests.optim.problems import NAMED, breeze_start, quadratic, quartic, rosenbrock, start_of
from tests.optim.reference_data import read_json
from tests.samples import sampled

EVERYWHERE = Box()
SOLVERS = {
    "SPG": lambda c, **options: SpectralProjectedGradient(projection=c, **options),
    "PQN": lambda c, **options: ProjectedQuasiNewton(projection=c, **options),
    "FISTA": lambda c, **options: ProximalGradient(penalty=c, **options),
    "ISTA": lambda c, **options: ProximalGradient(penalty=c, accelerated=False, **options),
    "ADMM": lambda c, **options: ADMM(penalty=c, relative_tolerance=1e-8, **options),
}
every_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
searching = pytest.mark.parametrize("solver", [SOLVERS["SPG"], SOLVERS["PQN"]], ids=["SPG", "PQN"])


def residual(project, fun, x):
    """Max norm of the projected gradient: 0 at a minimum over the set, and only there if convex."""
    return np.max(np.abs(project(x - fun(x)[1]) - x))


def breeze_quadratic(name, sign=1.0):
    """x'Hx/2 + sign * f'x of Breeze's tests."""
    fixtures = read_json("breeze_fixtures.json")
    linear = sign * np.array(fixtures["f" + name])
    hessian = np.reshape(fixtures["H" + name], (linear.size, linear.size))
    return lambda x: (0.5 * x @ hessian @ x + linear @ x, hessian @ x + linear)


@every_solver
def test_breeze_quadratic(solver):
    x0 = np.linspace(-9.0, 9.0, 10)
    result = solver(EVERYWHERE).minimize(quadratic, x0)
    np.testing.assert_allclose(result.x, 3.0, atol=1e-5)
    assert result.success


@every_solver
def test_breeze_quartic_below_its_minimum(solver):
    result = solver(Box(upper=2.0)).minimize(quartic, np.linspace(-9.0, 9.0, 10))
    np.testing.assert_allclose(result.x, 2.0, rtol=0.0, atol=1e-10)


@every_solver
def test_breeze_quadratic_with_l2(solver):
    def fun(x):
        value, gradient = quadratic(x)
        return value + 0.5 * x @ x, gradient + x

    np.testing.assert_allclose(solver(EVERYWHERE).minimize(fun, np.ones(10)).x, 2.0, atol=1e-5)


@searching
def test_breeze_exponentials(solver):
    a = np.array([0.5, -1.0, 2.0, 1.5])
    result = solver(EVERYWHERE).minimize(
        lambda x: (np.sum(np.exp(x * x - a * x)), (2.0 * x - a) * np.exp(x * x - a * x)),
        np.array([2.0, 1.0, -1.0, 0.0]),
    )
    np.testing.assert_allclose(result.x, a / 2.0, atol=1e-5)


@every_solver
def test_breeze_quadratic_5(solver):
    fun = breeze_quadratic("5", sign=-1.0)
    hessian = np.array([fun(row)[1] - fun(np.zeros(5))[1] for row in np.eye(5)])
    free = solver(EVERYWHERE, gradient_tolerance=1e-7).minimize(fun, np.zeros(5))
    np.testing.assert_allclose(free.x, np.linalg.solve(hessian, -fun(np.zeros(5))[1]), atol=1e-4)
    bound = solver(Box(0.0, 1.0)).minimize(fun, np.zeros(5))
    expected = read_json("breeze_fixtures.json")["_derived_H5_box01"]
    np.testing.assert_allclose(bound.x, expected, atol=1e-4)


@every_solver
def test_breeze_l1_ball(solver):
    expected = np.array(read_json("breeze_fixtures.json")["octaveL1_25"])
    ball = L1Ball(float(np.sum(np.abs(expected))))
    options = {"max_iterations": 5000}
    result = solver(ball, **options).minimize(breeze_quadratic("l1_25"), np.zeros(25))
    assert np.linalg.norm(result.x - expected) < 1e-4
    assert ball.value(result.x) == 0.0


@every_solver
def test_breeze_simplex(solver):
    expected = read_json("breeze_fixtures.json")["golden_simplex_25"]
    fun = breeze_quadratic("ml_25")
    result = solver(Simplex(), max_iterations=5000).minimize(fun, np.full(25, 1.0 / 25.0))
    np.testing.assert_allclose(result.x, expected, atol=1e-3)
    assert residual(Simplex(), fun, result.x) < 1e-4  # where gradients are 1000


@every_solver
def test_breeze_nnls(solver):
    fixtures = read_json("breeze_fixtures.json")
    gram = np.reshape(fixtures["nnls_ata_5"], (5, 5))
    moment = np.array(fixtures["nnls_atb_5"])
    result = solver(NonNegative()).minimize(
        lambda x: (0.5 * x @ gram @ x - moment @ x, gram @ x - moment), np.zeros(5)
    )
    np.testing.assert_allclose(result.x, fixtures["nnls_goodx_5"], atol=1e-3)


@pytest.mark.parametrize("solver", [SOLVERS["SPG"], SOLVERS["PQN"]])
def test_breeze_bowl_takes_fewer_evaluations(solver):
    weights = np.arange(1.0, 7.0)
    result = solver(EVERYWHERE, gradient_tolerance=1e-8).minimize(
        lambda x: (0.5 * x @ (weights * x), weights * x), np.ones(6)
    )
    assert result.fun < 1e-15
    assert result.nfev < 40  # Breeze: 187


@searching
def test_alglib_corner(solver):
    def fun(x):
        return 100.0 * (x[0] + 3.0) ** 4 + (x[1] - 3.0) ** 4, np.array(
            [400.0 * (x[0] + 3.0) ** 3, 4.0 * (x[1] - 3.0) ** 3]
        )

    np.testing.assert_array_equal(solver(Box(-1.0, 1.0)).minimize(fun, np.zeros(2)).x, [-1.0, 1.0])


@searching
@pytest.mark.parametrize("start", [1.5, 1500.0])
def test_breeze_issue_572(solver, start):
    result = solver(Box(1e-12, np.finfo(float).max)).minimize(
        lambda x: (x[0] + 1.0 / x[0], 1.0 - 1.0 / (x * x)), np.array([start])
    )
    assert abs(result.x[0] - 1.0) < 1e-4


@searching
def test_breeze_issue_497(solver):
    box = Box(np.array([-np.inf, -np.inf]), np.array([0.5, np.inf]))
    result = solver(box).minimize(rosenbrock, np.array([-1.2, 1.0]))
    np.testing.assert_allclose(result.x, [0.5, 0.25], atol=1e-6)


@every_solver
def test_quartic_from_far_away(solver):
    result = solver(EVERYWHERE, gradient_tolerance=1e-6).minimize(quartic, np.full(5, 1000.0))
    assert result.success
    assert result.fun < 1e-7


@searching
def test_rosenbrock_100_in_a_box(solver):
    free = solver(EVERYWHERE).minimize(rosenbrock, breeze_start(100))
    np.testing.assert_allclose(free.x, 1.0, atol=1e-5)
    box = Box(-1.5, 0.8)
    bound = solver(box).minimize(rosenbrock, breeze_start(100))
    np.testing.assert_allclose(bound.x[0::2], 0.8, atol=1e-6)
    np.testing.assert_allclose(bound.x[1::2], 0.64, atol=1e-6)


@every_solver
def test_not_finite_outside_a_ball(solver):
    def fun(x):
        return quadratic(x) if np.linalg.norm(x) <= 3.0 else (math.nan, np.full_like(x, math.nan))

    result = solver(EVERYWHERE, max_iterations=60).minimize(fun, np.zeros(4))
    assert np.isfinite(result.fun)
    assert result.fun < 36.0
    assert np.linalg.norm(result.x) <= 3.0


SLOW = {"Powell badly scaled", "Brown badly scaled", "Chained Rosenbrock n=100"}


@pytest.mark.parametrize(
    ("solver", "name"), sampled(["SPG", "PQN"], sorted(set(NAMED) - SLOW), every=2)
)
def test_known_minima(solver, name):
    entry = {e["name"]: e for e in read_json("test_functions.json")["functions"]}[name]
    minimum = entry["minimum_value"]
    solver = SOLVERS[solver](EVERYWHERE, max_iterations=5000)
    result = solver.minimize(NAMED[name], start_of(entry))
    # Dixon-Price has another, local minimum of value 2/3.
    least = min(result.fun - minimum, abs(result.fun - 2.0 / 3.0) if "Dixon" in name else math.inf)
    assert least < 2e-8


SETS = [Box(-0.5, 0.7), NonNegative(), Simplex(2.0), L1Ball(1.5), L2Ball(0.8)]


def random_quadratic(seed, n):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, n))
    hessian, b = a @ a.T + 0.1 * np.eye(n), 3.0 * rng.normal(size=n)
    return lambda x: (0.5 * x @ hessian @ x - b @ x, hessian @ x - b), rng.normal(size=n)


@pytest.mark.parametrize(("solver", "convex"), sampled(SOLVERS, SETS, every=3), ids=str)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 8))
@example(seed=30, n=5)
@example(seed=92, n=3)
def test_random_quadratics(solver, convex, seed, n):
    fun, x0 = random_quadratic(seed, n)
    result = SOLVERS[solver](convex, max_iterations=5000).minimize(fun, x0)
    assert result.success
    assert convex.value(result.x) == 0.0
    assert residual(convex, fun, result.x) < 1e-4 * (1.0 + np.max(np.abs(result.jac)))
    assert result.fun <= fun(convex(x0))[0]


@every_solver
def test_hyperplane(solver):
    plane = Hyperplane(np.array([1.0, 2.0, -1.0]), offset=4.0)
    result = solver(plane).minimize(quadratic, np.zeros(3))
    np.testing.assert_allclose(result.x, plane(np.full(3, 3.0)), atol=1e-5)


@searching
def test_every_iterate_lies_in_the_set_and_the_start_is_moved_there(solver):
    for convex in (Box(-0.25, 0.75), Simplex(), L2Ball(0.5)):
        fun, _ = random_quadratic(3, 6)
        states = list(solver(convex).iterations(fun, np.full(6, 9.0)))
        assert all(convex.value(state.x) == 0.0 for state in states)
        np.testing.assert_array_equal(states[0].x, convex(np.full(6, 9.0)))
        assert len(states) > 3


@searching
def test_any_function_is_a_projection(solver):
    result = solver(lambda x: np.clip(x, 0.0, 1.0)).minimize(quadratic, np.zeros(3))
    np.testing.assert_array_equal(result.x, 1.0)


@searching
def test_a_wrong_gradient_stalls_at_the_start(solver):
    result = solver(EVERYWHERE).minimize(lambda x: (x @ x, -2.0 * x), np.ones(3))
    assert result.outcome is Outcome.STALLED
    assert result.fun == 3.0


WEIGHTS = np.logspace(0.0, 2.0, 12)


def bowl(x):
    """A stretched quadratic on any array library: its minima over sets lie at their borders."""
    xp = x.__array_namespace__()
    d = x - 2.0
    scaled = xp.asarray(WEIGHTS) * d
    return 0.5 * (d @ scaled), scaled


@pytest.mark.parametrize("convex", [Box(0.0, 1.0), L2Ball(1.5)], ids=repr)
def test_messages_of_spectral_steps(convex):
    """One to judge each trial, one to find the next way."""
    xp = LazyNamespace()
    result = SOLVERS["SPG"](convex).minimize(bowl, xp.array(np.linspace(-2.0, 3.0, 12)))
    assert result.success
    assert xp.messages == result.nfev + result.nit + 1
    assert xp.deepest < 40


def test_messages_of_quasi_newton():
    """One for each evaluation; in an iteration five, and two for each inner iteration."""
    xp = LazyNamespace()
    solver = SOLVERS["PQN"](L2Ball(1.5), inner_iterations=3, gradient_tolerance=1e-6)
    result = solver.minimize(bowl, xp.array(np.linspace(-2.0, 3.0, 12)))
    assert result.success
    assert xp.messages <= 1 + result.nfev + result.nit * (5 + 2 * 3)
    assert xp.deepest < 50


@pytest.mark.parametrize(
    ("method", "options", "solver"),
    [
        ("SPG", {"projection": Box(0.0, 1.0)}, SOLVERS["SPG"](Box(0.0, 1.0))),
        ("pqn", {"projection": Simplex()}, SOLVERS["PQN"](Simplex())),
        ("proximal-gradient", {"penalty": L2Ball()}, SOLVERS["FISTA"](L2Ball())),
        ("admm", {"penalty": L2Ball()}, ADMM(penalty=L2Ball())),
        ("gradient_descent", {"max_iterations": 3}, GradientDescent(max_iterations=3)),
    ],
)
def test_minimize_knows_the_methods(method, options, solver):
    result = minimize(quadratic, np.zeros(3), method=method, options=options)
    np.testing.assert_array_equal(result.x, solver.minimize(quadratic, np.zeros(3)).x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: SOLVERS["SPG"](0.5),
            r"Gradient\(projection=0.5\): must be a function of a vector",
        ),
        (lambda: SOLVERS["PQN"](Box), r"give for instance Box\(0.0, 1.0\)"),
        (lambda: SOLVERS["FISTA"](0.1), r"ProximalGradient\(penalty=0.1\): must be an optim.Prox"),
        (lambda: ADMM(penalty=Box(), terms=(abs,)), r"ADMM\(terms\[0\]=.*L1Norm\(0.1\)"),
    ],
)
def test_refusals_speak(make, message):
    with pytest.raises(TypeError, match=message):
        make()
