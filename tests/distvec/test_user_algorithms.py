"""Algorithms as a user would type them: NumPy's results, and the fewest messages there can be."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distvec as dv

N = 3000
CURVATURE = np.linspace(1.0, 10.0, N)
TARGET = np.sin(np.arange(N) * 0.7)
START = np.linspace(-1.0, 1.0, N)

Iterates = Iterator[tuple[Any, ...]]
"""Yields the vectors of each iterate; what is yielded is evaluated before the next one."""


def conjugate_gradient(a: Any, b: Any, x: Any) -> Iterates:
    """``diag(a) x = b``: Hestenes and Stiefel (1952)."""
    r = b - a * x
    p, rr = r, r @ r
    while True:
        q = a * p
        alpha = rr / (p @ q)
        x = x + alpha * p
        r = r - alpha * q
        rr, previous = r @ r, rr
        p = r + (rr / previous) * p
        yield x, r, p


def polak_ribiere(a: Any, b: Any, x: Any) -> Iterates:
    """Polak and Ribiere's (1969), never negative, of ``sum(a x^2 / 2 - cos(x) - b x)``."""

    def gradient(x: Any) -> Any:
        return a * x + np.sin(x) - b

    g = gradient(x)
    d = -g
    while True:
        x = x + 0.15 * d
        new = gradient(x)
        beta = np.maximum((new @ (new - g)) / (g @ g), 0.0)
        d, g = -new + beta * d, new
        yield x, d, g


def adam(a: Any, b: Any, x: Any) -> Iterates:
    """Kingma and Ba (2015), algorithm 1."""
    m, v = np.zeros_like(x), np.zeros_like(x)
    for t in itertools.count(1):
        g = a * x - b
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        x = x - 0.05 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        yield x, m, v


def adam_in_place(a: Any, b: Any, x: Any) -> Iterates:
    m, v = np.zeros_like(x), np.zeros_like(x)
    for t in itertools.count(1):
        g = a * x
        g -= b
        m *= 0.9
        m += 0.1 * g
        v *= 0.999
        g *= g
        v += 0.001 * g
        x -= 0.05 / (1 - 0.9**t) * m / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        del g
        yield x, m, v


def momentum(a: Any, b: Any, x: Any) -> Iterates:
    velocity = np.zeros_like(x)
    while True:
        velocity = 0.9 * velocity - 0.02 * (a * x - b)
        x = x + velocity
        yield x, velocity


def nesterov(a: Any, b: Any, x: Any) -> Iterates:
    velocity = np.zeros_like(x)
    while True:
        ahead = x + 0.9 * velocity
        velocity = 0.9 * velocity - 0.02 * (a * ahead - b)
        x = x + velocity
        yield x, velocity


def adagrad(a: Any, b: Any, x: Any) -> Iterates:
    total = np.zeros_like(x)
    while True:
        g = a * x - b
        total = total + g * g
        x = x - 0.5 * g / (np.sqrt(total) + 1e-8)
        yield x, total


def rmsprop(a: Any, b: Any, x: Any) -> Iterates:
    mean = np.zeros_like(x)
    while True:
        g = a * x - b
        mean = 0.9 * mean + 0.1 * g**2
        x = x - 0.01 * g / np.sqrt(mean + 1e-8)
        yield x, mean


def power_iteration(a: Any, b: Any, x: Any) -> Iterates:
    """Of diag(a) + b b'; the norm belongs to the vector that the next step multiplies."""
    y = x + b
    while True:
        x = y / np.linalg.norm(y)
        y = a * x + (b @ x) * b
        yield x, y


def proximal_gradient(a: Any, b: Any, x: Any) -> Iterates:
    """ISTA: a gradient step, then the soft threshold."""
    while True:
        z = x - 0.1 * (a * x - b)
        x = np.sign(z) * np.maximum(np.abs(z) - 0.05, 0.0)
        yield (x,)


def proximal_gradient_by_where(a: Any, b: Any, x: Any) -> Iterates:
    while True:
        z = x - 0.1 * (a * x - b)
        x = np.where(z > 0.05, z - 0.05, np.where(z < -0.05, z + 0.05, 0.0))
        yield (x,)


def barzilai_borwein(a: Any, b: Any, x: Any) -> Iterates:
    """Barzilai and Borwein (1988), the long step."""
    g = a * x - b
    step: Any = 0.05
    while True:
        new_x = x - step * g
        new_g = a * new_x - b
        s, y = new_x - x, new_g - g
        step = (s @ s) / (s @ y)
        x, g = new_x, new_g
        yield x, g


MESSAGES: list[tuple[Callable[[Any, Any, Any], Iterates], int]] = [
    # One more where a coefficient is an inner product of what the iteration itself computes.
    (conjugate_gradient, 2),
    (polak_ribiere, 2),
    (adam, 1),
    (adam_in_place, 1),
    (momentum, 1),
    (nesterov, 1),
    (adagrad, 1),
    (rmsprop, 1),
    (power_iteration, 2),
    (proximal_gradient, 1),
    (proximal_gradient_by_where, 1),
    (barzilai_borwein, 1),
]


@pytest.mark.parametrize(("algorithm", "most"), MESSAGES, ids=lambda v: getattr(v, "__name__", v))
def test_messages_of_an_iteration(ps: dv.Session, algorithm: Any, most: int) -> None:
    ours = algorithm(*(ps.array(v) for v in (CURVATURE, TARGET, START)))
    theirs = algorithm(CURVATURE, TARGET, START.copy())
    for _ in range(15):
        before = ps.counters.messages
        vectors = next(ours)
        dv.evaluate(*vectors)
        assert ps.counters.messages - before == most
        expected = next(theirs)
        for mine, other in zip(vectors, expected, strict=True):
            scale = np.abs(other).max(initial=1.0)
            np.testing.assert_allclose(mine.numpy(), other, rtol=1e-10, atol=1e-12 * scale)
