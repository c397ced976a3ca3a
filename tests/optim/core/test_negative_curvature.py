"""Spectral steps where the objective is not convex: they stay where something is known."""

from __future__ import annotations

import numpy as np
import pytest

from optim import Box, GradientDescent, HighestOf, NonMonotone, Outcome, SpectralProjectedGradient

SOLVERS = {
    "gradient descent": GradientDescent(),
    "projected": SpectralProjectedGradient(projection=lambda x: x),
    "in a wide box": SpectralProjectedGradient(projection=Box(-20.0, 20.0)),
}


def waves(x):
    """Falls along valleys that get steeper with the distance from 0."""
    inner = x[:-1] ** 2 - x[1:] / 2.0
    gradient = np.zeros_like(x)
    gradient[:-1] = -2.0 * np.sin(inner) * x[:-1]
    gradient[1:] += 0.5 * np.sin(inner)
    return np.cos(inner).sum(), gradient


def wells(x):
    """Two minima for each coordinate, and a maximum between."""
    return ((x**2 - 1.0) ** 2 + 0.1 * x).sum(), 4.0 * x * (x**2 - 1.0) + 0.1


def sines(x):
    return np.sin(x).sum(), np.cos(x)


def styblinski_tang(x):
    return 0.5 * (x**4 - 16.0 * x**2 + 5.0 * x).sum(), 0.5 * (4.0 * x**3 - 32.0 * x + 5.0)


def hole(x):
    """Flat but for a hole around 0."""
    depth = 1.0 / (1.0 + x @ x)
    return -depth, 2.0 * x * depth**2


STARTS = {
    waves: lambda rng: 1.0 + 0.05 * rng.uniform(-1.0, 1.0, 10),
    wells: lambda rng: 0.1 * rng.uniform(-1.0, 1.0, 10),
    sines: lambda rng: rng.uniform(-4.0, 4.0, 10),
    styblinski_tang: lambda rng: rng.uniform(-1.0, 1.0, 10),
    hole: lambda rng: rng.uniform(-4.0, 4.0, 10),
}


@pytest.mark.parametrize("fun", STARTS, ids=lambda fun: fun.__name__)
@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_no_start_stalls_where_the_curvature_is_negative(solver, fun):
    for seed in range(40):
        x0 = STARTS[fun](np.random.default_rng(seed))
        result = solver.minimize(fun, x0)
        slow = result.outcome is Outcome.LIMIT_ITERATIONS  # in a valley that is all but flat
        assert result.success or (slow and abs(fun(result.x)[1]).max() < 1e-6), (seed, result)
        assert slow or result.nfev < 500, seed


def test_a_step_reaches_no_farther_than_the_size_of_x_where_nothing_is_curved():
    steps = []

    def line(x):
        steps.append(float(x[0]))
        return -x[0], np.array([-1.0])

    GradientDescent(max_iterations=6).minimize(line, np.zeros(1))
    assert np.all(np.diff(steps) <= 10.0 * np.maximum(np.abs(steps[:-1]), 1.0) + 1e-9)
    assert steps[-1] > 1e5  # but they grow


def test_the_highest_of_the_last_values_is_still_to_be_had():
    search = NonMonotone(reference=HighestOf(10))
    assert GradientDescent(search=search).minimize(styblinski_tang, np.ones(4)).success
