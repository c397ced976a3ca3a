"""Step-size searches on functions of one variable."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optim import Backtracking, HagerZhang, StrongWolfe
from optim.core.problem import Point
from optim.line_search import Ray, Sample, Trial
from optim.line_search.ray import CurvaturePair
from optim.quasi_newton.lbfgs import History

EPSILON = 2.0**-52


def ray_of(phi, first=1.0, budget=math.inf):
    """The ray of a function t -> (value, slope), and the list of its trials."""
    value, slope = phi(0.0)
    tried = []

    def at(t):
        tried.append(t)
        v, s = phi(t)
        return Trial(t, v, s, t * slope, Point(t, v, s, abs(s)), CurvaturePair(t, s, 1.0, 1.0))

    ray = Ray(Sample(0.0, value, slope), first, at, EPSILON * abs(value), 1.0, 1.0, EPSILON, budget)
    return ray, tried


def wolfe(ray, trial, c1=1e-4, c2=0.9):
    start = ray.start
    armijo = trial.value <= start.value + c1 * trial.step_size * start.slope
    return armijo and abs(trial.slope) <= c2 * abs(start.slope)


FUNCTIONS = {
    "parabola": lambda t: ((t - 1.0) ** 2, 2.0 * (t - 1.0)),
    "quartic": lambda t: ((t - 1.0) ** 4, 4.0 * (t - 1.0) ** 3),
    "More-Thuente 1": lambda t: (-t / (t * t + 2.0), (t * t - 2.0) / (t * t + 2.0) ** 2),
    "sine": lambda t: (-math.sin(t), -math.cos(t)),
}


@pytest.mark.parametrize("first", [1e-6, 1e-3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_strong_wolfe_from_any_first_step(name, first):
    ray, tried = ray_of(FUNCTIONS[name], first)
    trial = StrongWolfe()(ray)
    assert wolfe(ray, trial)
    assert len(tried) <= 15
    assert tried == list(dict.fromkeys(tried))


def approximate_wolfe(ray, trial, c1, c2):
    """Wolfe's conditions, or the approximate ones of Hager and Zhang with their epsilon."""
    slope, value = ray.start.slope, ray.start.value
    curvature = trial.slope >= c2 * slope
    armijo = trial.value <= value + c1 * trial.step_size * slope
    approximate = trial.slope <= (2.0 * c1 - 1.0) * slope
    return curvature and (armijo or (approximate and trial.value <= value + 1e-6 * abs(value)))


@pytest.mark.parametrize("first", [1e-6, 1e-3, 1.0, 1e3])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("c2", [0.1, 0.9])
def test_hager_zhang_from_any_first_step(name, first, c2):
    ray, tried = ray_of(FUNCTIONS[name], first)
    trial = HagerZhang(c1=0.05, c2=c2)(ray)
    assert approximate_wolfe(ray, trial, 0.05, c2)
    assert len(tried) <= 25
    assert tried == list(dict.fromkeys(tried))


def test_hager_zhang_ends_where_values_are_flat_but_slopes_are_not():
    """A parabola whose values are lost in a large constant: only slopes tell where it ends."""

    def phi(t):
        return float(np.float32(1e4 + (t - 1.0) ** 2)), 2.0 * (t - 1.0)

    ray, tried = ray_of(lambda t: (phi(t)[0], 1e-6 * phi(t)[1]), first=7.0)
    trial = HagerZhang()(ray)
    assert abs(trial.step_size - 1.0) < 0.9
    assert len(tried) <= 5


def bowl(minimum, power, wave):
    """A bowl with waves on it, along a ray."""

    def phi(t):
        u = t / minimum - 1.0
        value = u ** (2 * power) + wave * math.cos(u)
        slope = 2 * power * u ** (2 * power - 1) - wave * math.sin(u)
        return value, slope / minimum

    return phi


@settings(max_examples=200, deadline=None)
@given(
    minimum=st.floats(1e-8, 1e8),
    power=st.integers(1, 4),
    first=st.floats(1e-3, 1e3),
    wave=st.floats(0.0, 0.5),
)
def test_wavy_bowls(minimum, power, first, wave):
    ray, _ = ray_of(bowl(minimum, power, wave), first)
    trial = StrongWolfe()(ray)
    assert trial is not None
    assert wolfe(ray, trial)
    trial = HagerZhang()(ray)
    assert trial is not None
    assert approximate_wolfe(ray, trial, 0.1, 0.9)


def test_bracketing_reaches_far():
    ray, tried = ray_of(lambda t: (-t, -1.0) if t < 1e12 else (t - 2e12, 1.0))
    trial = StrongWolfe()(ray)
    assert trial.value < -1e11
    assert len(tried) <= 40


@pytest.mark.parametrize("search", [StrongWolfe(), Backtracking(), HagerZhang()])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_not_finite_counts_as_high(search, bad):
    ray, _ = ray_of(lambda t: ((t - 1) ** 2, 2 * (t - 1)) if t < 1.5 else (bad, bad), first=1e4)
    trial = search(ray)
    assert trial.value < 1.0


def test_the_best_armijo_point_is_kept():
    """A kink has no point of small slope; the search ends close to it, below the start."""
    ray, _ = ray_of(lambda t: (abs(t - 1.0) * 5.0, math.copysign(5.0, t - 1.0)), first=0.3)
    trial = StrongWolfe()(ray)
    assert trial.value < 0.1 * 5.0


@pytest.mark.parametrize("search", [StrongWolfe(), Backtracking(), HagerZhang()])
def test_uphill_everywhere_gives_none(search):
    ray, tried = ray_of(lambda t: (1.0 + t, 1.0 if t else -1.0))
    assert search(ray) is None
    assert len(tried) <= 60


@pytest.mark.parametrize("search", [StrongWolfe(), Backtracking(), HagerZhang()])
def test_budget(search):
    ray, tried = ray_of(lambda t: (1.0 + t, 1.0 if t else -1.0), budget=3)
    assert search(ray) is None
    assert len(tried) == 3


def test_slopes_decide_where_values_are_noise():
    def phi(t):
        return float(np.float32(1.0 + 1e-9 * (t - 1.0) ** 2)) + (1e-7 if t else 0.0), 2e-9 * (t - 1)

    ray, tried = ray_of(phi, first=1.5)
    trial = StrongWolfe()(ray)
    assert abs(trial.slope) <= 0.9 * 2e-9
    assert len(tried) < 10


def test_backtracking_interpolates():
    ray, tried = ray_of(lambda t: ((t - 1.0) ** 2, 2.0 * (t - 1.0)), first=4.0)
    assert Backtracking()(ray).step_size == pytest.approx(1.0)
    assert len(tried) == 2


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 6))
def test_two_loop_recursion_is_the_bfgs_matrix(seed, n):
    """Against the dense update of the inverse Hessian (Nocedal & Wright 6.17)."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, n))
    hessian = a @ a.T + np.eye(n)
    history = History(5)
    for s in rng.normal(size=(3, n)):
        y = hessian @ s
        history = history.push(CurvaturePair(s, y, float(s @ y), float(y @ y)), EPSILON)
    h = history.scale * np.eye(n)
    for pair in history.pairs:
        v = np.eye(n) - np.outer(pair.y, pair.s) / pair.sy
        h = v.T @ h @ v + np.outer(pair.s, pair.s) / pair.sy
    q = rng.normal(size=n)
    np.testing.assert_allclose(history.inverse_hessian_times(q), h @ q, rtol=1e-8, atol=1e-10)


def test_history_keeps_positive_curvature_only_and_forgets_the_oldest():
    pair, bad = CurvaturePair(1.0, 1.0, 1.0, 1.0), CurvaturePair(1.0, -1.0, -1.0, 1.0)
    assert not History(3).push(bad, EPSILON)
    assert not History(3).push(CurvaturePair(0.0, 0.0, 0.0, 0.0), EPSILON)
    assert not History(0).push(pair, EPSILON)
    history = History(2)
    for sy in (1.0, 2.0, 3.0):
        history = history.push(CurvaturePair(1.0, 1.0, sy, 1.0), EPSILON)
    assert [pair.sy for pair in history.pairs] == [2.0, 3.0]
