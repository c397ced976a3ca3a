"""SGD: schedules, momentum, averaging, and noise that must not end a run at its worst point."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optim import SGD, Constant, Exponential, InversePower, InverseTime, Outcome, StepDecay, Warmup
from tests.optim.problems import quadratic


def noisy(seed, noise=0.5):
    """A quadratic whose value and gradient carry noise, replayable by its seed."""
    rng = np.random.default_rng(seed)

    def fun(x):
        value, gradient = quadratic(x)
        return value + noise * rng.normal(), gradient + noise * rng.normal(size=x.shape)

    return fun


def test_breeze_quadratic():
    result = SGD(step_size=InversePower(2.0), max_iterations=100).minimize(
        quadratic, np.arange(10.0)
    )
    assert np.linalg.norm(result.x - 3.0) < 1e-10


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Constant(0.5), [0.5, 0.5, 0.5]),
        (InverseTime(1.0, decay=1.0), [1.0, 1 / 2, 1 / 3]),
        (InversePower(4.0), [4.0, 4 / 2 ** (2 / 3), 4 / 3 ** (2 / 3)]),
        (Exponential(1.0, 0.5), [1.0, 0.5, 0.25]),
        (StepDecay(1.0, factor=0.1, every=2), [1.0, 1.0, 0.1]),
        (Warmup(Constant(1.0), 2), [0.5, 1.0, 1.0]),
    ],
)
def test_schedules(schedule, expected):
    assert [schedule(k) for k in range(3)] == pytest.approx(expected)
    result = SGD(step_size=schedule, max_iterations=3).minimize(quadratic, np.ones(2))
    assert [r.step_size for r in result.history[1:]] == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
def test_noise_does_not_end_a_run_at_its_worst_point(seed):
    result = SGD(step_size=0.05, max_iterations=1000).minimize(noisy(seed), np.zeros(5))
    values = [record.value for record in result.history]
    assert result.outcome is Outcome.LIMIT_ITERATIONS
    assert result.nit == 1000
    assert result.fun == min(values)
    assert quadratic(result.x)[0] < 0.5


@pytest.mark.parametrize("seed", range(3))
def test_window_of_best_improvement(seed):
    solver = SGD(step_size=0.05, max_iterations=5000, window=100, value_tolerance=1e-3)
    result = solver.minimize(noisy(seed), np.zeros(5))
    values = [record.value for record in result.history]
    assert result.outcome is Outcome.CONVERGED_VALUE
    assert 100 < result.nit < 5000
    assert result.fun == min(values)
    assert quadratic(result.x)[0] < 0.5


@pytest.mark.parametrize("seed", range(3))
def test_the_mean_iterate_beats_the_last(seed):
    solver = SGD(step_size=0.3, max_iterations=2000, average=True)
    result = solver.minimize(noisy(seed, noise=3.0), np.full(5, 3.0))
    plain = list(
        SGD(step_size=0.3, max_iterations=2000).iterations(noisy(seed, 3.0), np.full(5, 3.0))
    )
    assert quadratic(result.x)[0] < 0.1 * quadratic(plain[-1].x)[0]
    np.testing.assert_allclose(result.x, np.mean([state.x for state in plain[1:]], axis=0))


def test_momentum_by_hand():
    states = list(SGD(step_size=0.1, momentum=0.9, max_iterations=2).iterations(quadratic, [0.0]))
    first = 0.0 - 0.1 * -6.0
    second = first - 0.1 * (0.9 * -6.0 + 2.0 * (first - 3.0))
    assert [state.x[0] for state in states] == pytest.approx([0.0, first, second])
    solver = SGD(step_size=0.1, momentum=0.9, nesterov=True, max_iterations=1)
    assert list(solver.iterations(quadratic, [0.0]))[1].x[0] == pytest.approx(0.1 * 6.0 * 1.9)


def test_momentum_helps_on_an_ill_conditioned_quadratic():
    weights = np.logspace(0, 3, 10)

    def fun(x):
        return 0.5 * x @ (weights * x), weights * x

    plain = SGD(step_size=1e-3, max_iterations=300).minimize(fun, np.ones(10))
    for nesterov in (False, True):
        fast = SGD(step_size=1e-3, momentum=0.9, nesterov=nesterov, max_iterations=300)
        assert fast.minimize(fun, np.ones(10)).fun < 0.1 * plain.fun


def test_update_is_pure():
    solver = SGD(step_size=0.1, momentum=0.9, average=True, max_iterations=3)
    state = list(solver.iterations(quadratic, np.ones(2)))[-1]
    arguments = (*state.memory.vectors, state.x, state.gradient)
    before = [np.array(v) for v in arguments]
    (x, memory), (again, also) = (
        solver.update(state.memory.vectors, state.x, state.gradient, 3) for _ in range(2)
    )
    np.testing.assert_array_equal(x, again)
    np.testing.assert_array_equal(memory, also)
    assert all(np.array_equal(a, b) for a, b in zip(before, arguments, strict=True))


def test_divergence_ends_at_the_best_finite_point():
    result = SGD(step_size=1e200, max_iterations=50).minimize(quadratic, np.zeros(2))
    assert result.outcome is Outcome.NOT_FINITE
    assert math.isfinite(result.fun)
    assert result.fun == 18.0


def test_gradient_tolerance_is_opt_in():
    solver = SGD(step_size=0.4, gradient_tolerance=1e-8)
    assert solver.minimize(quadratic, np.zeros(2)).outcome is Outcome.CONVERGED_GRADIENT


def test_nesterov_needs_momentum():
    with pytest.raises(ValueError, match=r"SGD\(nesterov=True, momentum=0.0\): needs momentum"):
        SGD(nesterov=True)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), step=st.floats(1e-3, 0.9), momentum=st.floats(0.0, 0.95))
def test_never_worse_than_the_start(seed, step, momentum):
    x0 = np.random.default_rng(seed).normal(size=4) * 10.0
    result = SGD(step_size=step, momentum=momentum, max_iterations=30).minimize(quadratic, x0)
    assert result.fun <= quadratic(x0)[0]
    assert result.fun == min(record.value for record in result.history)
