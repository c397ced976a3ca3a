"""What gradients cost: as few messages, sweeps and vectors as those written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy import special

import distvec as dv

N, K = 5000, 6
Pair = tuple[Callable[[Any], Any], Callable[[Any], tuple[Any, Any]]]


@pytest.fixture
def twice() -> Iterator[list[dict[str, Any]]]:
    """The same arrays in two sessions: what one has computed, the other does not know."""
    with dv.local(2, in_process=True) as one, dv.local(2, in_process=True) as other:
        yield [inputs(one), inputs(other)]


def inputs(ps: dv.Session) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    found = {name: ps.array(rng.uniform(0.5, 1.5, N)) for name in "cdx"}
    found |= {"e": ps.array(rng.uniform(0.5, 1.5, N - 1)), "T": ps.array(rng.random((N, K)))}
    found |= {"w": ps.array(rng.standard_normal(K)), "S": ps.array(rng.standard_normal((K, 3)))}
    return found | {"y": ps.array(np.sign(rng.standard_normal(N)))}


def logistic(a: Any) -> Pair:
    """Rows of a table, weights of the model on the servers."""
    T, y = a["T"], a["y"]

    def by_hand(w: Any) -> Any:
        margins = y * (T @ w)
        slopes = -y * special.expit(-margins)
        return np.sum(np.logaddexp(0, -margins)), T.T @ slopes

    return lambda w: np.sum(np.logaddexp(0, -y * (T @ w))), by_hand


def logistic_of_elements(a: Any) -> Pair:
    y = a["y"]

    def by_hand(x: Any) -> Any:
        return np.sum(np.logaddexp(0, -y * x)), -y * special.expit(-y * x)

    return lambda x: np.sum(np.logaddexp(0, -y * x)), by_hand


def tridiagonal(a: Any) -> Pair:
    c, d, e = a["c"], a["d"], a["e"]

    def value(x: Any) -> Any:
        return 0.5 * np.sum(d * x**2) + np.sum(e * x[1:] * x[:-1]) - c @ x

    def by_hand(x: Any) -> Any:
        gradient = d * x - c
        gradient[1:] += e * x[:-1]
        gradient[:-1] += e * x[1:]
        return value(x), gradient

    return value, by_hand


def low_rank(a: Any) -> Pair:
    T, c, d = a["T"], a["c"], a["d"]

    def value(x: Any) -> Any:
        z = x @ T
        return 0.5 * (z @ z) + 0.5 * np.sum(d * x**2) - c @ x

    def by_hand(x: Any) -> Any:
        z = x @ T
        return value(x), T @ z + d * x - c

    return value, by_hand


def rosenbrock(a: Any) -> Pair:
    def value(x: Any) -> Any:
        return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    def by_hand(x: Any) -> Any:
        r = x[1:] - x[:-1] ** 2
        gradient = np.zeros_like(x)
        gradient[:-1] = -400 * r * x[:-1] - 2 * (1 - x[:-1])
        gradient[1:] += 200 * r
        return np.sum(100 * r**2 + (1 - x[:-1]) ** 2), gradient

    return value, by_hand


def log_barrier(a: Any) -> Pair:
    c = a["c"]

    def by_hand(x: Any) -> Any:
        return c @ x - 0.1 * np.sum(np.log(x) + np.log(2 - x)), c - 0.1 / x + 0.1 / (2 - x)

    return lambda x: c @ x - 0.1 * np.sum(np.log(x) + np.log(2 - x)), by_hand


def softmax_regression(a: Any) -> Pair:
    T, y = a["T"], a["y"]

    def value(S: Any) -> Any:
        scores = T @ S
        return np.sum(dv.logsumexp(scores, axis=1) - np.where(y > 0, scores[:, 0], scores[:, 1]))

    def by_hand(S: Any) -> Any:
        scores = T @ S
        wanted = np.where((y > 0)[:, None], np.array([1.0, 0, 0]), np.array([0.0, 1, 0]))
        return value(S), T.T @ (dv.softmax(scores, axis=1) - wanted)

    return value, by_hand


def huber_of_differences(a: Any) -> Pair:
    """Total variation, smoothed."""

    def value(x: Any) -> Any:
        return np.sum(np.sqrt(1e-3 + np.diff(x) ** 2)) + 0.5 * np.sum((x - a["c"]) ** 2)

    def by_hand(x: Any) -> Any:
        step = np.diff(x)
        pull = step / np.sqrt(1e-3 + step**2)
        gradient = x - a["c"]
        gradient[1:] += pull
        gradient[:-1] -= pull
        return value(x), gradient

    return value, by_hand


CASES = {
    logistic: "w",
    logistic_of_elements: "x",
    tridiagonal: "x",
    low_rank: "x",
    rosenbrock: "x",
    log_barrier: "x",
    huber_of_differences: "x",
    softmax_regression: "S",
}


def cost(*arrays: Any) -> dict[str, int]:
    plan = arrays[0].session.plan(*arrays)
    names = "messages sweeps vectors_read vectors_written bytes_read bytes_written".split()
    return {name: getattr(plan, name) for name in names}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("pending", [False, True], ids=["stored", "pending"])
def test_as_few_messages_sweeps_and_vectors_as_by_hand(
    twice: list[dict[str, Any]], case: Callable[[Any], Pair], pending: bool
) -> None:
    found = []
    for number, a in enumerate(twice):
        x = a[CASES[case]]
        x = x * 0.9 + 0.01 if pending else x  # as in a line search
        value, by_hand = case(a)
        pair = by_hand(x) if number else dv.value_and_grad(value)(x)
        counted = cost(*pair)
        dv.evaluate(*pair)
        found.append((pair, counted))
    (ours, counted), (theirs, expected) = found
    assert counted == expected, f"{ours[1].explain()}\nby hand:\n{theirs[1].explain()}"
    assert ours[0].item() == pytest.approx(theirs[0].item(), rel=1e-13)
    np.testing.assert_allclose(ours[1].numpy(), theirs[1].numpy(), rtol=1e-10, atol=1e-12)
