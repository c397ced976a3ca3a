"""ADMM: consensus, relaxation, residuals, budget, messages; its minima are tested with others."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.test_problems import problems
from optim import ADMM, LBFGS, LBFGSB, Box, L1Norm, Outcome, Simplex, SmoothTerm
from optim.proximal.operators import Proximal
from tests.optim.lazy_array import LazyNamespace
from tests.optim.problems import breeze_start, quadratic, rosenbrock
from tests.samples import sampled


class Squares(Proximal):
    """|x - target|^2 weight / 2: a term whose prox has a closed form."""

    def __init__(self, target, weight):
        self.target, self.weight = target, weight

    def __call__(self, x):
        d = x - self.target
        return 0.5 * (d @ (self.weight * d)), self.weight * d

    def value(self, x):
        return self(x)[0]

    def prox(self, x, step):
        scaled = step * self.weight
        return (x + scaled * self.target) / (1.0 + scaled)


def terms_of(rng, count, n):
    return [Squares(rng.normal(size=n) * 3.0, rng.uniform(0.5, 3.0, n)) for _ in range(count)]


def summed(terms):
    def fun(x):
        parts = [term(x) for term in terms]
        return sum(value for value, _ in parts), sum(gradient for _, gradient in parts)

    return fun


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("relaxation", [1.0, 1.6, 1.9])
@pytest.mark.parametrize("smooth", [False, True])
def test_consensus(count, relaxation, smooth):
    """The terms' minimum in closed form: soft thresholding of their weighted mean."""
    terms = terms_of(np.random.default_rng(count), count, 6)
    total = sum(term.weight for term in terms)
    moment = sum(term.weight * term.target for term in terms)
    expected = np.sign(moment) * np.maximum(np.abs(moment) - 0.7, 0.0) / total
    parts = tuple(SmoothTerm(term) if smooth else term for term in terms)
    solver = ADMM(penalty=L1Norm(0.7), terms=parts, relaxation=relaxation)
    result = solver.minimize(summed(terms), np.zeros(6))
    assert result.success
    assert result.nit < 100
    assert result.nfev == result.nit + 1
    np.testing.assert_allclose(result.x, expected, atol=1e-5)


def test_relaxation_saves_iterations():
    terms = tuple(terms_of(np.random.default_rng(0), 5, 20))
    nit = [
        ADMM(penalty=L1Norm(0.5), terms=terms, relaxation=alpha)
        .minimize(summed(terms), np.zeros(20))
        .nit
        for alpha in (1.0, 1.6)
    ]
    assert nit[1] < nit[0]


@pytest.mark.parametrize("rho", [1e-3, 1.0, 1e3])
def test_rho_adapts(rho):
    result = ADMM(penalty=L1Norm(1.0), rho=rho).minimize(quadratic, np.zeros(4))
    assert result.success
    assert result.nit < 60
    np.testing.assert_allclose(result.x, 2.5, atol=1e-5)


def test_residuals_stop():
    solver = ADMM(penalty=Simplex(), gradient_tolerance=0.0, relative_tolerance=1e-9)
    result = solver.minimize(quadratic, np.arange(5.0))
    assert result.outcome is Outcome.CONVERGED_RESIDUALS
    assert result.success
    np.testing.assert_allclose(result.x, 0.2, atol=1e-8)
    loose = ADMM(penalty=Simplex(), gradient_tolerance=0.0, relative_tolerance=1e-2)
    assert loose.minimize(quadratic, np.arange(5.0)).nit < result.nit


def test_the_residuals_are_those_of_the_definition():
    solver = ADMM(penalty=L1Norm(0.7), terms=tuple(terms_of(np.random.default_rng(1), 3, 4)))
    states = list(solver.iterations(summed(solver.terms), np.ones(4)))
    before, after = states[0], states[1]
    answers = [term.prox(before.x, 1.0) for term in solver.terms]  # no multipliers yet, rho = 1
    residuals = after.memory.residuals
    apart = math.sqrt(sum((x - after.x) @ (x - after.x) for x in answers))
    assert residuals.primal == pytest.approx(apart)
    assert residuals.dual == pytest.approx(math.sqrt(3) * np.linalg.norm(after.x - before.x))
    assert not residuals.small
    assert states[-1].memory.residuals.small or states[-1].gradient_norm <= 1e-6


def test_another_inner_solver():
    inner = LBFGS(history=2, max_iterations=3, gradient_tolerance=0.0)
    result = ADMM(penalty=Box(-2.0, 0.5), inner=inner).minimize(rosenbrock, breeze_start(4))
    np.testing.assert_allclose(result.x[0::2], 0.5, atol=1e-4)
    np.testing.assert_allclose(result.x[1::2], 0.25, atol=1e-4)


@pytest.mark.parametrize("limit", [1, 2, 3, 8, 25])
def test_limit_of_evaluations_counts_the_inner_ones(limit):
    seen = []

    def fun(x):
        seen.append(x.tobytes())
        return rosenbrock(x)

    result = ADMM(penalty=L1Norm(1e-3), max_evaluations=limit).minimize(fun, breeze_start(4))
    assert result.outcome is Outcome.LIMIT_EVALUATIONS
    assert result.nfev == len(seen) == limit
    assert result.fun <= 48.4 + 1e-3 * 4.4


def test_nothing_is_evaluated_twice():
    seen = []

    def fun(x):
        seen.append(x.tobytes())
        return rosenbrock(x)

    ADMM(penalty=L1Norm(1e-3), max_iterations=10).minimize(fun, breeze_start(6))
    assert len(seen) == len(set(seen)) > 20


def test_closed_forms_cost_one_message_an_iteration():
    xp = LazyNamespace()
    terms = tuple(
        Squares(xp.array(term.target), xp.array(term.weight))
        for term in terms_of(np.random.default_rng(2), 4, 6)
    )
    result = ADMM(penalty=L1Norm(0.7), terms=terms).minimize(summed(terms), xp.array(np.zeros(6)))
    assert result.success
    assert result.nit > 5
    assert xp.messages == 1 + result.nit
    assert xp.deepest < 60


def test_inner_runs_cost_messages_of_their_own():
    xp = LazyNamespace()
    result = ADMM(penalty=L1Norm(0.7)).minimize(quadratic, xp.array(np.zeros(6)))
    assert result.success
    # L-BFGS: one for each evaluation, the first of which is known, and one for each direction.
    inner = result.nfev - result.nit - 1
    assert xp.messages <= 1 + result.nit + 2 * (inner + result.nit)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rho": 0.0}, r"ADMM\(rho=0.0\): must be a positive finite number"),
        ({"relaxation": 2.0}, r"relaxation=2.0\): must lie between 0 and 2; 1.0 turns it off"),
        ({"rho": -1.0}, "must be 0 or more"),
    ],
)
def test_parameters_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        ADMM(penalty=L1Norm(), **options)


def test_an_inner_solver_that_does_nothing_is_no_convergence():
    result = ADMM(penalty=Box(), max_iterations=50).minimize(
        lambda x: (x @ x, -2.0 * x), np.ones(3)
    )
    assert not result.success
    assert result.fun == 3.0


def finite_at_ones_only(x):
    inside = bool(np.all(x == 1.0))
    return (float(x @ x), 2.0 * x) if inside else (math.nan, np.full_like(x, math.nan))


def test_nowhere_finite_but_at_the_start_is_a_stall():
    result = ADMM(penalty=L1Norm(0.1)).minimize(finite_at_ones_only, np.ones(3))
    assert result.outcome is Outcome.STALLED
    np.testing.assert_array_equal(result.x, 1.0)
    limited = ADMM(penalty=L1Norm(0.1), max_evaluations=5)
    result = limited.minimize(finite_at_ones_only, np.ones(3))
    assert (result.outcome, result.nfev) == (Outcome.LIMIT_EVALUATIONS, 5)


def test_a_smooth_term_is_its_function():
    term = SmoothTerm(quadratic)
    assert term.value(np.zeros(2)) == 18.0
    np.testing.assert_allclose(term.prox(np.zeros(2), 0.5), 1.5, rtol=1e-8)


PENALTY_2 = problems()["Penalty II n=10"].objective
ENDS = [(-1.0, 1.0), (0.0, 1.0), (-1e3, 1e3), (-0.5, 0.5), (0.1, 0.4), (0.0, 0.3), (-2.0, 0.1)]


STARTS = [(4, None), (4, 1), (10, None), (10, 1)]
"""Coordinates, and the seed of random ones; without one they are all 0.5."""


@pytest.mark.parametrize(("ends", "start"), sampled(ENDS, STARTS, every=4))
def test_no_cycle_where_fun_is_not_convex(ends, start):
    """Penalty II, with a box that holds some coordinates or none: rho must not fall too low."""
    (lower, upper), (n, seed) = ends, start
    x0 = np.full(n, 0.5)
    if seed is not None:
        x0 = np.random.default_rng(seed).uniform(max(lower, -2.0), min(upper, 2.0), n)
    box = Box(lower, upper)
    solver = ADMM(penalty=box, max_iterations=200)
    result = solver.minimize(PENALTY_2, x0)
    # Of several minima, the one nearby; the values are of the order of 1 where runs cycle.
    expected = LBFGSB(bounds=box, max_iterations=300).minimize(PENALTY_2, result.x).fun
    assert result.fun <= expected * 1.05 + 1e-5


@pytest.mark.parametrize("size", [1.0, 1e3])
def test_a_minimum_inside_of_the_box_of_a_function_that_is_not_convex(size):
    result = ADMM(penalty=Box(-size, size)).minimize(PENALTY_2, np.full(4, 0.5))
    assert result.success, result.message
    assert result.nit <= 200
    assert result.fun == pytest.approx(9.37629e-6, rel=1e-5)
