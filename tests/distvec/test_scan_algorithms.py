"""Algorithms of running results, as a user would type them: on NumPy and on servers alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distvec as dv

N = 5000
RNG = np.random.default_rng(0)
NOISE = RNG.standard_normal(N)
RETURNS = 0.01 * NOISE
TREND = np.linspace(-2.0, 2.0, N) ** 3 + NOISE


def exponential_average(x: Any, weight: float) -> Any:
    """Each value counts ``weight``, the average before it the rest; it begins with the first."""
    return dv.linear_recurrence(1.0 - weight, weight * x, x[0])


def adjusted_average(x: Any, weight: float) -> Any:
    """The same, where the values so far count as if there had been none before."""
    seen = dv.linear_recurrence(1.0 - weight, np.ones_like(x))
    return dv.linear_recurrence(1.0 - weight, x) / seen


def maximum_drawdown(returns: Any) -> Any:
    """The largest loss from a peak of the value, as a share of the peak."""
    value = np.cumprod(1.0 + returns)
    return np.max(1.0 - value / np.maximum.accumulate(value))


def best_stretch(x: Any) -> Any:
    """The largest sum of consecutive elements, by Kadane's rule."""
    total = np.cumulative_sum(x, include_initial=True)
    return np.max(total - np.minimum.accumulate(total))


def true_in_a_row(mask: Any) -> Any:
    """How many elements up to each one are true without a break."""
    place = np.cumsum(np.ones_like(mask, dtype=np.int64))
    return place - np.maximum.accumulate(np.where(mask, 0, place))


def sum_of_each_run(x: Any, begins: Any) -> Any:
    """The sum since the last element where a run begins, which the first one does."""
    total = np.cumsum(x)
    before = np.where(begins, total - x, -1)  # what is not negative never falls
    return total - np.maximum.accumulate(before)


def filtered(x: Any, b: tuple[float, float], a: float) -> Any:
    """``scipy.signal.lfilter(b, (1, a), x)``."""
    drive = b[0] * x
    drive[1:] += b[1] * x[:-1]
    return dv.linear_recurrence(-a, drive)


def isotonic(y: Any) -> Any:
    """The nearest ascending sequence: the slopes of the greatest convex function below the points
    ``(i, y[0] + ... + y[i - 1])``. Where the slopes fall a point is above it, and is left out."""
    height = np.cumulative_sum(y, include_initial=True)
    place = np.cumulative_sum(np.ones_like(y, dtype=np.int64), include_initial=True)
    while True:
        slope = np.diff(height) / np.diff(place)
        rises = slope[:-1] <= slope[1:]
        if np.all(rises):
            break
        kept = np.ones_like(place, dtype=np.bool_)
        kept[1:-1] = rises
        place, height = place[kept], height[kept]
    found = np.full_like(y, -np.inf)
    found[place[:-1]] = slope
    return np.maximum.accumulate(found)


def pooled(y: np.ndarray) -> np.ndarray:
    """Isotonic regression by pooling adjacent violators, one after the other."""
    means: list[float] = []
    weights: list[int] = []
    for value in y:
        means.append(float(value))
        weights.append(1)
        while len(means) > 1 and means[-2] > means[-1]:
            weight = weights[-2] + weights[-1]
            mean = (weights[-2] * means[-2] + weights[-1] * means[-1]) / weight
            means[-2:], weights[-2:] = [mean], [weight]
    return np.repeat(means, weights)


MESSAGES: list[tuple[Callable[..., Any], tuple[Any, ...], int]] = [
    (exponential_average, (NOISE, 0.1), 3),  # one for the first element
    (adjusted_average, (NOISE, 0.1), 2),
    (maximum_drawdown, (RETURNS,), 3),
    (best_stretch, (NOISE,), 4),
    (true_in_a_row, (NOISE > -1.0,), 3),
    (sum_of_each_run, (np.abs(NOISE).round(3) * 1024, NOISE > 1.0), 3),
    (filtered, (NOISE, (0.5, 0.25), -0.8), 2),
]


@pytest.mark.parametrize(
    ("algorithm", "operands", "messages"), MESSAGES, ids=lambda v: getattr(v, "__name__", "")
)
def test_as_on_numpy(
    ps: dv.Session, algorithm: Callable[..., Any], operands: tuple[Any, ...], messages: int
) -> None:
    first, *others = operands
    arrays = [ps.array(one).persist() if isinstance(one, np.ndarray) else one for one in operands]
    expected = algorithm(first.copy(), *others)
    ps.counters.reset()
    found = algorithm(*arrays).persist()
    assert ps.counters.messages == messages
    assert ps.counters.peer_bytes < 500, "of the borders of blocks alone"
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("y", [TREND, -TREND, NOISE, np.sort(NOISE), np.ones(2000), NOISE[:1]])
def test_isotonic_regression(sessions: dict[int, dv.Session], y: np.ndarray) -> None:
    expected = pooled(y)
    np.testing.assert_allclose(isotonic(y), expected, rtol=1e-9, atol=1e-12)
    for servers in (1, 3):
        found = isotonic(sessions[servers].array(y)).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert (np.diff(found) >= 0).all()
