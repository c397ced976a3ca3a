"""Algorithms over tables, as a user would type them: NumPy's results, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distvec as dv

ROWS, FEATURES, CLASSES = 3000, 6, 4
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, CLASSES, ROWS)
CENTRES = 3.0 * RNG.standard_normal((CLASSES, FEATURES))
POINTS = CENTRES[LABELS] + RNG.standard_normal((ROWS, FEATURES))

Iterates = Iterator[tuple[Any, ...]]
"""Yields the arrays of each iterate; what is yielded is evaluated before the next one."""


def k_means(points: Any, centres: Any) -> Iterates:
    """Lloyd's algorithm; the labels stay where the points are."""
    squares = (points**2).sum(axis=1)
    while True:
        distances = squares[:, None] - 2.0 * points @ centres.T + (centres**2).sum(axis=1)
        labels = distances.argmin(axis=1)
        one_hot = labels[:, None] == np.arange(centres.shape[0])
        centres = one_hot.T @ points / one_hot.sum(axis=0)[:, None]
        yield centres, distances.min(axis=1).sum()


def k_means_by_masks(points: Any, centres: Any) -> Iterates:
    """The same, with the mean of the points of each label."""
    while True:
        distances = (points**2).sum(axis=1)[:, None] - 2.0 * points @ centres.T
        labels = (distances + (centres**2).sum(axis=1)).argmin(axis=1)
        centres = np.stack([points[labels == k].mean(axis=0) for k in range(len(centres))])
        yield (centres,)


def sinkhorn(kernel: Any, a: Any, b: Any) -> Iterates:
    """Scales rows and columns to the sums a and b: Sinkhorn and Knopp (1967)."""
    v = np.ones_like(b)
    while True:
        u = a / (kernel @ v)
        v = b / (kernel.T @ u)
        yield u, v


def standardised_power_iteration(table: Any, v: Any) -> Iterates:
    """The first principal component, without the correlation matrix."""
    z = (table - table.mean(axis=0)) / table.std(axis=0)
    while True:
        v = z.T @ (z @ v)
        v = v / np.linalg.norm(v)
        yield (v,)


def logistic_newton(features: Any, labels: Any, w: Any) -> Iterates:
    """Iteratively reweighted least squares; the small system is solved where the user sits."""
    while True:
        p = 1.0 / (1.0 + np.exp(-(features @ w)))
        hessian = features.T @ (features * (p * (1.0 - p))[:, None])
        gradient = features.T @ (p - labels)
        w = w - np.linalg.solve(hessian, gradient)
        yield (w,)


def batch_normalised(table: Any, w: Any) -> Iterates:
    """Gradient descent on sum((z @ w - table.sum(1))^2) with columns normalised each time."""
    y = table.sum(axis=1)
    while True:
        z = (table - table.mean(axis=0)) / table.std(axis=0)
        w = w - 0.2 / len(y) * (z.T @ (z @ w - y))
        yield (w,)


def non_negative_factors(table: Any, left: Any, right: Any) -> Iterates:
    """Lee and Seung's (2001) updates of left @ right, where left is long."""
    while True:
        right = right * (left.T @ table) / (left.T @ left @ right)
        left = left * (table @ right.T) / (left @ (right @ right.T))
        yield left, right


KERNEL = np.exp(-3.0 * RNG.random((ROWS, CLASSES)))
ROW_SUMS, COLUMN_SUMS = np.full(ROWS, 1.0 / ROWS), np.array([0.1, 0.2, 0.3, 0.4])
SIGNS = (POINTS @ RNG.standard_normal(FEATURES) + RNG.standard_normal(ROWS) > 0.0).astype(float)
FACTORS = RNG.random((ROWS, 2)), RNG.random((2, FEATURES))

MESSAGES: list[tuple[Callable[..., Iterates], tuple[Any, ...], int, int]] = [
    # The arguments, of which so many are on the servers, and the messages of an iteration.
    (k_means, (POINTS, POINTS[:CLASSES]), 1, 1),
    (k_means, (POINTS, POINTS[:CLASSES]), 2, 1),
    (k_means_by_masks, (POINTS, POINTS[:CLASSES]), 1, 1),
    (sinkhorn, (KERNEL, ROW_SUMS, COLUMN_SUMS), 2, 1),
    # v is on the servers, as b is: it goes to the client and back.
    (sinkhorn, (KERNEL, ROW_SUMS, COLUMN_SUMS), 3, 3),
    (standardised_power_iteration, (POINTS, np.ones(FEATURES)), 1, 1),
    (logistic_newton, (POINTS, SIGNS, np.zeros(FEATURES)), 2, 1),
    # Means, then deviations, then the gradient.
    (batch_normalised, (POINTS, np.zeros(FEATURES)), 1, 3),
    (non_negative_factors, (np.abs(POINTS), *FACTORS), 2, 2),
]


@pytest.mark.parametrize(
    ("algorithm", "arguments", "on_servers", "messages"),
    MESSAGES,
    ids=lambda v: "" if isinstance(v, tuple) else getattr(v, "__name__", str(v)),
)
def test_messages_of_an_iteration(
    ps: dv.Session, algorithm: Any, arguments: Any, on_servers: int, messages: int
) -> None:
    placed = [ps.array(v) if i < on_servers else v for i, v in enumerate(arguments)]
    ours, theirs = algorithm(*placed), algorithm(*arguments)
    for iteration in range(8):
        before = ps.counters.messages
        arrays = next(ours)
        dv.evaluate(*(array for array in arrays if isinstance(array, dv.DistArray)))
        if iteration:  # the first one also computes what the others find
            assert ps.counters.messages - before == messages
        for mine, other in zip(arrays, next(theirs), strict=True):
            assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
            np.testing.assert_allclose(np.asarray(mine), other, rtol=1e-9, atol=1e-12)
