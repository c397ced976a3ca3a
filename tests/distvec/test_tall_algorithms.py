"""Algorithms over tall tables, as a user would type them: NumPy's results, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distvec as dv

RNG = np.random.default_rng(0)
POINTS = RNG.standard_normal((4000, 6)) @ RNG.standard_normal((6, 6)) * [9, 1, 5, 1, 3, 1] + 7
VALUES = RNG.standard_normal(4000)


def principal_components(points: Any, count: int) -> tuple[Any, ...]:
    """Scores, directions and shares of the variance; directions have a positive sum."""
    centred = points - points.mean(axis=0)
    u, s, directions = np.linalg.svd(centred, full_matrices=False)
    share = s**2 / (s**2).sum()
    signs = np.sign(directions.sum(axis=1, keepdims=True))
    scores = u * s * signs[:, 0]
    return scores[:, :count], (directions * signs)[:count], share[:count]


def ridge_regression(points: Any, values: Any, weight: float) -> tuple[Any, ...]:
    """By the singular values of the points."""
    u, s, vh = np.linalg.svd(points, full_matrices=False)
    return (vh.T @ (s / (s**2 + weight) * (u.T @ values)),)


def whitened(points: Any) -> tuple[Any, ...]:
    """With the covariance of the identity; by Cholesky."""
    centred = points - points.mean(axis=0)
    factor = np.linalg.cholesky(centred.T @ centred / len(points))
    return (np.linalg.solve(factor, centred.T).T,)


def leverages(points: Any) -> tuple[Any, ...]:
    """The diagonal of the matrix that projects on the columns."""
    q, _ = np.linalg.qr(points)
    return ((q**2).sum(axis=1),)


def log_density(points: Any) -> tuple[Any, ...]:
    """Of the normal distribution that fits best, at each point."""
    mean, covariance = points.mean(axis=0), np.cov(points, rowvar=False)
    away = points - mean
    distances = np.vecdot(away @ np.linalg.inv(covariance), away)
    _, log_volume = np.linalg.slogdet(covariance)
    return (-0.5 * (distances + log_volume + points.shape[1] * np.log(2 * np.pi)),)


CASES: dict[str, tuple[Callable[[Any, Any], tuple[Any, ...]], int]] = {
    "principal components": (lambda x, y: principal_components(x, 3), 4),
    "ridge regression": (lambda x, y: ridge_regression(x, y, 0.5), 3),
    "whitened": (lambda x, y: whitened(x), 3),
    "leverages": (lambda x, y: leverages(x), 2),
    "log density": (lambda x, y: log_density(x), 3),
    "fit": (lambda x, y: np.linalg.lstsq(x, y), 1),
}
"""Programs, one message to each server."""


@pytest.mark.parametrize("name", CASES)
def test_as_on_numpy(sessions: dict[int, dv.Session], name: str) -> None:
    algorithm, messages = CASES[name]
    expected = algorithm(POINTS, VALUES)
    bits = set()
    for count in (1, 3):
        ps = sessions[count]
        x, y = ps.array(POINTS).persist(), ps.array(VALUES).persist()
        ps.counters.reset()
        found = algorithm(x, y)
        dv.evaluate(*found)
        assert count == 1 or ps.counters.programs == messages
        for one, other in zip(found, expected, strict=True):
            assert one.shape == np.shape(other)
            np.testing.assert_allclose(one.numpy(), other, rtol=1e-8, atol=1e-8)
        bits.add(b"".join(one.numpy().tobytes() for one in found))
    assert len(bits) == 1
