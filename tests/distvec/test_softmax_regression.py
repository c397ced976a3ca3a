"""Softmax regression as a user would type it: over a table of weights, by optim's solvers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distvec as dv
from optim import LBFGS, OWLQN, Adam, GroupLasso, ProximalGradient, check_gradient, minimize
from tests.optim.reference_data import load_classes, optimum

ROWS, FEATURES, CLASSES = 600, 7, 4
RNG = np.random.default_rng(0)
POINTS = RNG.standard_normal((ROWS, FEATURES))
LABELS = (
    POINTS @ RNG.standard_normal((FEATURES, CLASSES)) + RNG.gumbel(size=(ROWS, CLASSES))
).argmax(1)


def one_hot(labels: np.ndarray) -> np.ndarray:
    return (labels[:, None] == np.unique(labels)).astype(float)


def loss(points: Any, targets: Any, l2: float) -> Callable[[Any], tuple[Any, Any]]:
    """weights -> mean cross-entropy + l2 / 2 * |weights|^2, with its gradient."""
    n = len(points)

    def fun(weights: Any) -> tuple[Any, Any]:
        scores = points @ weights
        scores = scores - scores.max(axis=1, keepdims=True)
        logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        value = -np.sum(targets * logs) / n + 0.5 * l2 * np.sum(weights * weights)
        return value, points.T @ (np.exp(logs) - targets) / n + l2 * weights

    return fun


def on_servers(ps: dv.Session) -> Callable[[Any], tuple[Any, Any]]:
    return loss(ps.array(POINTS), ps.array(one_hot(LABELS)), 1e-2)


LOCAL = loss(POINTS, one_hot(LABELS), 1e-2)
START = np.zeros((FEATURES, CLASSES))
FEATURE = np.repeat(np.arange(FEATURES)[:, None], CLASSES, axis=1)

SOLVERS = [
    LBFGS(),
    OWLQN(l1=0.005),
    Adam(step_size=0.1, max_iterations=10),
    # A feature is of use for all classes or for none.
    ProximalGradient(penalty=GroupLasso(FEATURE, FEATURES, 0.02)),
]


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)
def test_weights_of_the_client(ps: dv.Session, solver: Any) -> None:
    """They go along with the question, and the gradient comes back with the answer."""
    expected = solver.minimize(LOCAL, START)
    fun = on_servers(ps)
    before = ps.counters.messages
    result = solver.minimize(fun, START)
    assert ps.counters.messages - before == result.nfev
    assert result.outcome is expected.outcome
    assert result.fun == pytest.approx(expected.fun, rel=1e-12)
    np.testing.assert_allclose(np.asarray(result.x), expected.x, rtol=1e-7, atol=1e-9)


def test_weights_on_servers(ps: dv.Session) -> None:
    """One message more takes them to all the rows, and one more the gradient to where they are."""
    expected = LBFGS().minimize(LOCAL, START)
    costs = []
    states = LBFGS().iterations(on_servers(ps), ps.array(START))
    for before, after in itertools.pairwise((ps.counters.messages, state) for state in states):
        costs.append((after[0] - before[0], after[1].evaluations - before[1].evaluations))
    result = after[1]
    assert all(messages == 2 + 3 * evaluations for messages, evaluations in costs[1:])
    assert result.x.shape == START.shape
    np.testing.assert_allclose(result.x.numpy(), expected.x, rtol=1e-7, atol=1e-9)


def test_scipys_way(ps: dv.Session) -> None:
    expected = minimize(LOCAL, START)
    for start in (START, ps.array(START)):
        result = minimize(on_servers(ps), start)
        assert result.success
        np.testing.assert_allclose(np.asarray(result.x), expected.x, rtol=1e-7, atol=1e-9)


def test_its_gradient(ps: dv.Session) -> None:
    found = check_gradient(on_servers(ps), RNG.standard_normal(START.shape))
    assert found, found


def test_dna_to_the_known_optimum(ps: dv.Session) -> None:
    features, labels = load_classes("dna")
    fun = loss(ps.array(features.toarray()), ps.array(one_hot(labels)), 1e-2)
    result = LBFGS().minimize(fun, np.zeros((features.shape[1], 3)))
    assert result.success
    assert result.fun == pytest.approx(
        optimum("dna", "softmax_l2", 1e-2)["optimum_value"], rel=1e-13
    )
