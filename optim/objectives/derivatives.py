"""Derivatives by finite differences: gradients, products with the Hessian, a check of gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from optim.core.arrays import Array, fetch, machine_epsilon, max_norm, namespace, quiet, size, vdot
from optim.core.problem import Problem
from optim.core.progress import rounding_of
from optim.core.trees import array_of, as_start, as_user_structure, coordinate, is_structure, like


def hessian_product(
    fun: Callable[..., Any],
    x: Array,
    *,
    args: Sequence[Any] = (),
    jac: bool | Callable[..., Array] = True,
) -> Callable[[Array], Array]:
    """v -> the Hessian of `fun` at `x` times v, by differences of gradients.

    `fun`, `args` and `jac` are as for `minimize`. One evaluation now, and one for each product,
    which has about half of the digits of the gradients.
    """
    problem = Problem(fun, args, jac, structured=is_structure(x))
    x = as_start(x)
    product = difference_hessian(problem.gradient, x, problem.gradient(x))
    return lambda v: (
        as_user_structure(product(like(v, x, "v"))) if problem.structured else product(v)
    )


def difference_hessian(
    gradient: Callable[[Array], Array], x: Array, at_x: Array
) -> Callable[[Array], Array]:
    """v -> the Hessian at `x` times v, by forward differences of `gradient`; `at_x` is that at x.

    The step along v has the 2-norm sqrt(machine epsilon) * (1 + |x|), which balances the rounding
    of the gradients against the Hessian's change; about half of the digits are good.
    """
    xp = namespace(x)
    length = math.sqrt(machine_epsilon(x)) * (1.0 + xp.sqrt(vdot(x, x)))

    def product(v: Array) -> Array:
        step = length / xp.sqrt(vdot(v, v))
        return (gradient(x + step * v) - at_x) / step

    return product


Index: TypeAlias = tuple[int, ...]

DIFFERENCES = ("2-point", "3-point", "cs")


def differences(
    fun: Callable[[Array], Any],
    x: Array,
    value: Any,
    kind: str,
    bounds: tuple[Any, Any] | None,
    eps: Any,
) -> Array:
    """The partial derivatives of `fun` at `x`, where it is `value`; n calls, "3-point" 2 n.

    bounds      of x, each a number or an array like x: nothing is evaluated outside
    eps         the step, a number or an array like x; None: by the precision and the size of x
    """
    power = {"2-point": 1.0 / 2.0, "3-point": 1.0 / 3.0, "cs": 1.0 / 2.0}[kind]
    steps = np.finfo(x.dtype).eps ** power * np.maximum(np.abs(x), 1.0)
    if eps is not None:
        steps = np.broadcast_to(np.asarray(eps, x.dtype), x.shape)
    room = None if bounds is None else [np.broadcast_to(bound, x.shape) for bound in bounds]
    slopes = [_derivative(fun, kind, x, value, i, steps[i], room) for i in np.ndindex(x.shape)]
    return np.reshape(slopes, x.shape)


def _derivative(
    fun: Callable[[Array], Any],
    kind: str,
    x: Array,
    value: Any,
    i: Index,
    step: float,
    bounds: list[Array] | None,
) -> Any:
    def at(change: complex) -> Any:
        moved = x.astype(complex) if kind == "cs" else x.copy()
        moved[i] += change
        return fun(moved)

    if kind == "cs":
        return at(1j * step).imag / step
    below, above = (np.inf, np.inf) if bounds is None else _room(x, i, *bounds)
    if kind == "3-point" and min(below, above) >= step:
        return (at(step) - at(-step)) / (2.0 * step)
    step = step if above >= min(step, below) else -step
    step = np.sign(step) * min(abs(step), above if step > 0.0 else below) or abs(step)
    step = (x[i] + step) - x[i]  # as far as x really moves
    return (at(step) - value) / step


def _room(x: Array, i: Index, lower: Array, upper: Array) -> tuple[float, float]:
    return float(x[i] - lower[i]), float(upper[i] - x[i])


@dataclass(frozen=True)
class Derivative:
    """A directional derivative, computed twice; `allowed` is what they may differ."""

    direction: str
    by_gradient: float
    by_differences: float
    allowed: float
    columns: ClassVar[str] = (
        f"{'direction':16}{'by gradient':>16}{'by differences':>16}{'allowed error':>16}"
    )

    def __str__(self) -> str:
        numbers = f"{self.by_gradient:16.8g}{self.by_differences:16.8g}{self.allowed:16.2g}"
        return f"{self.direction:16}{numbers}"

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
    """What a check found; true if all derivatives agree; prints as a table."""

    derivatives: Sequence[Derivative]

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
        return "\n".join((heading, wrong[0].columns, *map(str, wrong)))


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
