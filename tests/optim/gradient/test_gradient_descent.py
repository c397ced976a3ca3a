"""Gradient descent and the searches that let values rise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optim import (
    Box,
    GradientDescent,
    HighestOf,
    L1Norm,
    MeanOf,
    NonMonotone,
    Outcome,
    ProjectedQuasiNewton,
    ProximalGradient,
    SpectralProjectedGradient,
    StepBounds,
    StrongWolfe,
)
from optim.gradient.spectral_projected_gradient import NextStep
from optim.line_search import Ray, Sample, Trial
from optim.line_search.ray import CurvaturePair
from tests.optim.lazy_array import LazyNamespace
from tests.optim.line_search.test_line_search import ray_of
from tests.optim.problems import NAMED, breeze_start, quadratic, quartic, rosenbrock, start_of
from tests.optim.reference_data import read_json

REFERENCES = [HighestOf(), HighestOf(1), MeanOf(), MeanOf(0.0)]
SLOW = {"Powell badly scaled", "Brown badly scaled", "Chained Rosenbrock n=100"}


@pytest.mark.parametrize("name", sorted(set(NAMED) - SLOW))
def test_known_minima(name):
    entry = {e["name"]: e for e in read_json("test_functions.json")["functions"]}[name]
    result = GradientDescent(max_iterations=5000).minimize(NAMED[name], start_of(entry))
    assert result.success
    assert result.fun - entry["minimum_value"] < 2e-8


@pytest.mark.parametrize("reference", REFERENCES, ids=repr)
def test_every_reference(reference):
    solver = GradientDescent(search=NonMonotone(reference=reference), max_iterations=5000)
    np.testing.assert_allclose(solver.minimize(quadratic, np.arange(5.0)).x, 3.0, atol=1e-6)
    result = solver.minimize(rosenbrock, breeze_start(100))
    np.testing.assert_allclose(result.x, 1.0, atol=1e-4)
    assert result.fun == min(record.value for record in result.history)


@pytest.mark.parametrize("reference", [HighestOf(1), MeanOf(0.0)], ids=repr)
def test_monotone_references_never_rise(reference):
    solver = GradientDescent(search=NonMonotone(reference=reference), max_iterations=200)
    values = [record.value for record in solver.minimize(rosenbrock, breeze_start(10)).history]
    assert np.all(np.diff(values) <= 1e-13 * values[0])
    rising = GradientDescent(max_iterations=200).minimize(rosenbrock, breeze_start(10))
    assert np.any(np.diff([record.value for record in rising.history]) > 0.0)


def test_quartic_from_far_away():
    result = GradientDescent(gradient_tolerance=1e-9).minimize(quartic, np.full(5, 1000.0))
    assert result.success
    assert result.nfev < 100


@pytest.mark.parametrize("seed", [1, 17, 31, 44, 57])
def test_a_run_ends_where_value_and_gradient_are_both_low(seed):
    """Values rise now and then: a small gradient above the lowest value is not the end."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(20, 20))
    hessian, b = a @ a.T + 0.1 * np.eye(20), 3.0 * rng.normal(size=20)
    solver = GradientDescent(max_iterations=5000, gradient_tolerance=1e-6)
    result = solver.minimize(
        lambda x: (0.5 * x @ hessian @ x - b @ x, hessian @ x - b), rng.normal(size=20)
    )
    assert result.outcome is Outcome.CONVERGED_GRADIENT
    assert np.max(np.abs(result.jac)) <= 1e-6
    assert result.fun <= min(record.value for record in result.history) + 1e-13 * abs(result.fun)


def test_another_search_inside():
    solver = GradientDescent(search=NonMonotone(search=StrongWolfe()))
    result = solver.minimize(quartic, np.arange(4.0))
    assert result.success
    np.testing.assert_allclose(result.x, 3.0, atol=1e-2)


@pytest.mark.parametrize(
    "make",
    [
        GradientDescent,
        lambda **options: SpectralProjectedGradient(projection=Box(-0.5, 0.5), **options),
        lambda **options: ProjectedQuasiNewton(projection=Box(-0.5, 0.5), **options),
        lambda **options: ProximalGradient(penalty=L1Norm(0.01), **options),
    ],
    ids=["GradientDescent", "SPG", "PQN", "ProximalGradient"],
)
def test_values_rounded_to_float32_are_no_failure(make):
    rng = np.random.default_rng(7)
    features = rng.normal(size=(200, 10))
    signed = features * np.sign(features @ rng.normal(size=10) + rng.normal(size=200))[:, None]

    def fun(w, rounded=True):
        margins = signed @ w
        value = np.logaddexp(0.0, -margins).mean() + 5e-4 * w @ w
        gradient = signed.T @ (-0.5 * (1.0 - np.tanh(0.5 * margins))) / 200 + 1e-3 * w
        if not rounded:
            return value, gradient
        return float(np.float32(value)), gradient.astype(np.float32).astype(float)

    exact = make().minimize(lambda w: fun(w, rounded=False), np.zeros(10))
    result = make(gradient_tolerance=1e-15, value_tolerance=0.0).minimize(fun, np.zeros(10))
    assert result.outcome in (Outcome.STALLED, Outcome.CONVERGED_GRADIENT)
    assert result.fun == pytest.approx(exact.fun, rel=2e-7)
    assert result.fun == min(record.value for record in result.history)


@pytest.mark.parametrize("outside", [np.nan, np.inf, -np.inf])
def test_not_finite_outside_a_ball(outside):
    def fun(x):
        inside = np.linalg.norm(x) <= 3.0
        return quadratic(x) if inside else (outside, np.full_like(x, outside))

    result = GradientDescent(max_iterations=100).minimize(fun, np.zeros(4))
    assert np.linalg.norm(result.x) <= 3.0
    assert result.fun < 36.0


def test_one_message_per_iteration():
    xp = LazyNamespace()
    weights = xp.array(np.logspace(0.0, 2.0, 12))
    result = GradientDescent().minimize(
        lambda x: (x @ (weights * x), 2.0 * weights * x), xp.array(np.ones(12))
    )
    assert result.success
    assert result.nit > 10
    assert xp.messages == result.nfev
    assert xp.deepest < 20


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), count=st.integers(1, 5))
def test_highest_of_the_last(values, count):
    reference = HighestOf(count)
    for i, value in enumerate(values):
        reference = reference.after(value)
        assert reference.level == max(values[max(0, i + 1 - count) : i + 1])


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), memory=st.floats(0.0, 0.99))
def test_mean_weighted_by_age(values, memory):
    reference = MeanOf(memory)
    for value in values:
        reference = reference.after(value)
    weights = memory ** np.arange(len(values))[::-1]
    expected = np.average(values, weights=weights)
    assert reference.level == pytest.approx(expected, rel=1e-9, abs=1e-6)


@settings(max_examples=50)
@given(first=st.floats(1e-3, 1e6), rise=st.floats(0.0, 3.0))
def test_a_trial_may_rise_to_the_reference_but_not_above(first, rise):
    ray, tried = ray_of(lambda t: ((t - 1.0) ** 2, 2.0 * (t - 1.0)), first)
    level = HighestOf(2).after(1.0 + rise).after(1.0)
    trial = NonMonotone()(ray, level)
    assert trial.value <= 1.0 + rise
    assert trial.step_size == tried[-1]
    strict, _ = ray_of(lambda t: ((t - 1.0) ** 2, 2.0 * (t - 1.0)), first)
    assert NonMonotone()(strict, HighestOf(1).after(1.0)).value < 1.0


def test_a_trial_that_is_not_finite_never_passes():
    ray, _ = ray_of(lambda t: ((t - 1) ** 2, 2 * (t - 1)) if t < 1.5 else (-math.inf, 1.0), 1e4)
    trial = NonMonotone()(ray, HighestOf().after(1e9))
    assert math.isfinite(trial.value)
    assert isinstance(ray, Ray)
    assert isinstance(trial, Trial)
    assert isinstance(ray.start, Sample)


def test_step_bounds():
    bounds = StepBounds(shortest=1e-3, longest=1e3)

    def first(ss, sy, yy, gradient_norm=1e-3):
        pair = CurvaturePair(None, None, sy, yy)
        return bounds.spectral(ss, pair, last=2.0, gradient_norm=gradient_norm, x_norm=5.0)

    assert first(2.0, 4.0, 9.0) == NextStep(0.5, sure=True)
    assert first(1.0, 1e9, 1e18).size == 1e-3
    assert first(1.0, 1e-9, 1e-18, gradient_norm=0.0).size == 1e3
    assert first(1.0, 1e-9, 1e-18, gradient_norm=0.1) == NextStep(50.0, sure=False)
    assert first(1.0, -1.0, 4.0) == NextStep(0.5, sure=False)
    assert first(1.0, 0.0, 0.0) == NextStep(20.0, sure=False)
    assert first(1.0, math.nan, math.nan).size == 20.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HighestOf(0), r"HighestOf\(count=0\)"),
        (lambda: MeanOf(1.0), r"MeanOf\(memory=1.0\)"),
    ],
)
def test_refusals_speak(make, message):
    with pytest.raises(ValueError, match=message):
        make()
