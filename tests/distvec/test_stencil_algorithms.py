"""Algorithms of slices, as a user would type them: NumPy's results, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distvec as dv

N = 3000
RNG = np.random.default_rng(0)
LOWER, UPPER = RNG.uniform(-1.0, 1.0, (2, N - 1))
DIAGONAL = RNG.uniform(2.5, 4.0, N)
TARGET = RNG.standard_normal(N)
STEPS = np.repeat(RNG.standard_normal(10), N // 10)
NOISY = STEPS + 0.1 * RNG.standard_normal(N)

Iterates = Iterator[tuple[Any, ...]]
"""Yields the vectors of each iterate; what is yielded is evaluated before the next one."""


def jacobi(lower: Any, diagonal: Any, upper: Any, b: Any) -> Iterates:
    """Of a tridiagonal system."""
    x = b / diagonal
    while True:
        rest = b.copy()
        rest[1:] -= lower * x[:-1]
        rest[:-1] -= upper * x[1:]
        x = rest / diagonal
        yield (x,)


def heat(u: Any) -> Iterates:
    """The heat equation by explicit steps, with fixed ends."""
    while True:
        u = u.copy()
        u[1:-1] += 0.25 * (u[2:] - 2.0 * u[1:-1] + u[:-2])
        yield (u,)


def heat_in_place(u: Any) -> Iterates:
    """With ends that let nothing out; `u` itself changes."""
    while True:
        flow = 0.25 * (u[1:] - u[:-1])
        u[:-1] += flow
        u[1:] -= flow
        yield (u,)


def wave(u: Any) -> Iterates:
    """The wave equation by leapfrog steps."""
    before = u
    while True:
        after = 2.0 * u - before
        after[1:-1] += 0.5 * (u[2:] - 2.0 * u[1:-1] + u[:-2])
        before, u = u, after
        yield u, before


def red_black(u: Any, b: Any) -> Iterates:
    """Gauss and Seidel's of -u'' = b: the odd elements, and then the even ones."""
    while True:
        u[1:-1:2] = 0.5 * (b[1:-1:2] + u[:-2:2] + u[2::2])
        u[2:-1:2] = 0.5 * (b[2:-1:2] + u[1:-2:2] + u[3::2])
        yield (u,)


def difference(x: Any) -> Any:
    return x[1:] - x[:-1]


def adjoint_difference(v: Any, like: Any) -> Any:
    """The transpose of ``difference``."""
    result = np.zeros_like(like)
    result[1:] += v
    result[:-1] -= v
    return result


def shrunk(v: Any, threshold: float) -> Any:
    return np.sign(v) * np.maximum(np.abs(v) - threshold, 0.0)


def total_variation(y: Any) -> Iterates:
    """|x - y|^2 / 2 + |difference(x)|_1 / 2 by linearised ADMM."""
    x, z = y, difference(y)
    u = np.zeros_like(z)
    while True:
        residual = difference(x) - z + u
        x = x - 0.25 * (x - y + 0.7 * adjoint_difference(residual, x))
        slopes = difference(x)
        z = shrunk(slopes + u, 0.5 / 0.7)
        u = u + slopes - z
        yield x, z, u


def neighbours(x: Any) -> Any:
    """The sum of the elements beside each."""
    result = np.zeros_like(x)
    result[1:] += x[:-1]
    result[:-1] += x[1:]
    return result


def total_variation_by_systems(y: Any) -> Iterates:
    """The same, where x solves its tridiagonal system by four steps of Jacobi's."""
    x, z = y, difference(y)
    u = np.zeros_like(z)
    diagonal = 1.0 + 2.0 * neighbours(np.ones_like(y))
    while True:
        right = y + 2.0 * adjoint_difference(z - u, y)
        for _ in range(4):
            x = (right + 2.0 * neighbours(x)) / diagonal
        slopes = difference(x)
        z = shrunk(slopes + u, 0.5 / 2.0)
        u = u + slopes - z
        yield x, z, u


COSTS: list[tuple[Callable[..., Iterates], tuple[np.ndarray, ...], tuple[int, int, int]]] = [
    # Of an iteration: messages, vectors read, vectors written. What the generator still holds is
    # stored as well.
    (jacobi, (LOWER, DIAGONAL, UPPER, TARGET), (1, 5, 2)),
    (heat, (STEPS,), (1, 1, 1)),
    (heat_in_place, (STEPS,), (1, 2, 2)),
    (wave, (STEPS,), (1, 2, 1)),
    (red_black, (STEPS, TARGET), (2, 4, 2)),
    # The residual, which has the length of z, then x, and then its differences.
    (total_variation, (NOISY,), (3, 8, 5)),
    (total_variation_by_systems, (NOISY,), (5, 12, 8)),
]


@pytest.mark.parametrize(
    ("algorithm", "vectors", "cost"), COSTS, ids=lambda v: getattr(v, "__name__", "")
)
def test_cost_of_an_iteration(
    ps: dv.Session, algorithm: Any, vectors: Any, cost: tuple[int, int, int]
) -> None:
    ours = algorithm(*(ps.array(v) for v in vectors))
    theirs = algorithm(*(v.copy() for v in vectors))
    for iteration in range(8):
        ps.counters.reset()
        found = next(ours)
        dv.evaluate(*found)
        counted = ps.counters
        if iteration:  # the first one also computes what the others find
            assert (counted.messages, counted.vectors_read, counted.vectors_written) == cost
            assert counted.peer_bytes < 1000, "one element from a neighbour for each slice"
        for mine, other in zip(found, next(theirs), strict=True):
            np.testing.assert_allclose(mine.numpy(), other, rtol=1e-10, atol=1e-12)
