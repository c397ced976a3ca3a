"""What a stochastic step costs on lazy arrays: one message, and a graph that does not grow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optim import AdaGrad, FiniteSum
from tests.optim.lazy_array import LazyNamespace
from tests.optim.problems import quadratic
from tests.optim.registry import START, cases

STOCHASTIC = [case for case in cases() if case.stochastic]


@pytest.mark.parametrize("case", STOCHASTIC, ids=str)
def test_one_message_per_step(case):
    xp = LazyNamespace()
    solver = case.make(step_size=1e-3, max_iterations=50)
    result = solver.minimize(quadratic, xp.array(START))
    assert xp.messages == 1 + 50 + solver.average, "the start, the steps, the mean"
    assert result.nfev == 51 + solver.average
    assert xp.deepest < 40


@pytest.mark.parametrize("case", STOCHASTIC, ids=str)
@pytest.mark.parametrize("full_every", [1, 3])
def test_one_message_per_step_with_batches(case, full_every):
    xp = LazyNamespace()
    shifts = [xp.array(shift * np.ones(12)) for shift in (-1.0, 0.0, 2.0)]
    objective = FiniteSum(lambda x, i: quadratic(x - shifts[i]), 3)
    solver = case.make(step_size=1e-3, max_iterations=31, full_every=full_every)
    counts = [xp.messages for _ in solver.iterations(objective, xp.array(START))]
    assert counts == list(range(1, 33))
    xp.messages = 0
    solver.minimize(objective, xp.array(START))
    assert xp.messages == 1 + 31 + 1, "the start, the steps, the whole at the end"
    assert xp.deepest < 60


@pytest.mark.parametrize("case", STOCHASTIC, ids=str)
def test_the_same_path_as_on_numpy(case):
    solver = replace(case.make(), max_iterations=20)
    ours = solver.minimize(quadratic, START)
    lazy = solver.minimize(quadratic, LazyNamespace().array(START))
    np.testing.assert_allclose(lazy.x.compute(), ours.x, rtol=1e-12)
    np.testing.assert_allclose(lazy.jac.compute(), ours.jac, rtol=1e-12, atol=1e-12)


def test_an_array_of_weights_costs_one_message_more():
    xp = LazyNamespace()
    weights = xp.array(np.where(np.arange(12) % 3, 0.5, 0.0))
    AdaGrad(l1=weights, max_iterations=20).minimize(quadratic, xp.array(START))
    assert xp.messages == 1 + 1 + 20
