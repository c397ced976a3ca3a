"""A check of gradients by differences of values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optim.core.arrays import (
    Array,
    fetch,
    machine_epsilon,
    max_norm,
    quiet,
    size,
    vdot,
)
from optim.core.boundary import array_of, as_start, coordinate
from optim.core.plateau import rounding_of
from optim.core.problem import Problem
from optim.core.structure import is_structure


@dataclass(frozen=True)
class Derivative:
    """A directional derivative, computed twice; `allowed` is what they may differ."""

    direction: str
    by_gradient: float
    by_differences: float
    allowed: float

    @property
    def error(self) -> float:
        """The difference; inf where one is not a number."""
        error = abs(self.by_gradient - self.by_differences)
        return error if math.isfinite(error) else math.inf

    @property
    def ok(self) -> bool:
        """Whether they agree."""
        return self.error <= self.allowed


@dataclass(frozen=True)
class GradientCheck:
    """What `check_gradient` found; true if all derivatives agree; prints as a table."""

    derivatives: tuple[Derivative, ...]

    def __bool__(self) -> bool:
        return all(derivative.ok for derivative in self.derivatives)

    @property
    def worst(self) -> Derivative:
        """The derivative with the largest error, as a multiple of what is allowed."""
        return max(self.derivatives, key=lambda one: one.error / max(one.allowed, 1e-300))

    def __str__(self) -> str:
        wrong = [one for one in self.derivatives if not one.ok]
        heading = f"{len(wrong)} of {len(self.derivatives)} derivatives differ"
        if not wrong:
            return f"{heading}; the largest error is {self.worst.error:.3g}, {self.worst.direction}"
        columns = f"{'direction':16}{'by gradient':>16}{'by differences':>16}{'allowed error':>16}"
        rows = (
            f"{one.direction:16}{one.by_gradient:16.8g}{one.by_differences:16.8g}{one.allowed:16.2g}"
            for one in wrong
        )
        return "\n".join((heading, columns, *rows))


def check_gradient(
    fun: Callable[..., Any],
    x: Array,
    *,
    args: Sequence[Any] = (),
    jac: bool | Callable[..., Array] = True,
    coordinates: int = 20,
    directions: int = 5,
    rtol: float = 1e-5,
    seed: int = 0,
) -> GradientCheck:
    """Compare the gradient at `x` with central differences of the value.

    coordinates  partial derivatives to check, drawn at random where x has more elements
    directions   derivatives along random arrays of +1 and -1, which see all elements at once
    rtol         relative error allowed, beside the rounding of the differences

    `fun`, `args` and `jac` are as for `minimize`. Two evaluations, one message and one vector sent
    for each derivative, and one evaluation and message for the gradient.

        assert check_gradient(fun, x), check_gradient(fun, x)
    """
    problem = Problem(fun, args, jac, structured=is_structure(x))
    x = as_start(x)
    rng = np.random.default_rng(seed)
    with quiet():
        value, gradient = problem(x)
        number, x_norm = fetch(value, max_norm(x), also=(gradient,))
        epsilon = machine_epsilon(x)
        step = epsilon ** (1.0 / 3.0) * max(x_norm, 1.0)
        noise = rounding_of(number, epsilon) / step
        found = []
        for name, values in _directions(x, coordinates, directions, rng):
            v = array_of(values, x)
            above, below = problem(x + step * v)[0], problem(x - step * v)[0]
            slope, high, low = fetch(vdot(gradient, v), above, below)
            difference = (high - low) / (2.0 * step)
            allowed = rtol * max(abs(slope), abs(difference)) + noise
            found.append(Derivative(name, slope, difference, allowed))
    return GradientCheck(tuple(found))


def _directions(
    x: Array, coordinates: int, directions: int, rng: np.random.Generator
) -> Iterator[tuple[str, np.ndarray]]:
    """Names and elements of the derivatives to check."""
    n = size(x)
    for i in np.sort(rng.choice(n, min(n, coordinates), replace=False)):
        unit = np.zeros(n)
        unit[i] = 1.0
        yield f"x{coordinate(x, i)}", unit
    for k in range(directions):
        yield f"random {k}", rng.choice([-1.0, 1.0], n)
