"""Wrappers of objectives: penalties, a memory of the last call, a counter of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from optim.core.arrays import Array, Scalar, vdot
from optim.quasi_newton.l1 import L1

Objective: TypeAlias = Callable[..., tuple[Scalar, Array]]


def with_l2(fun: Objective, weight: Any) -> Objective:
    """fun(x) + sum(weight * x^2) / 2, with its gradient.

    weight  a number, or an array like x: 0 for an intercept
    """
    _check_weight("with_l2", weight)

    def penalised(x: Array, *args: Any) -> tuple[Scalar, Array]:
        value, gradient = fun(x, *args)
        slope = weight * x
        return value + 0.5 * vdot(slope, x), gradient + slope

    return penalised


def with_l1(fun: Objective, weight: Any) -> Objective:
    """fun(x) + sum(weight * |x|), with the element of least norm in its subdifferential.

    weight  a number, or an array like x: 0 for an intercept

    For subgradient methods and to evaluate a result. Solvers for smooth objectives do not see the
    kinks: `OWLQN(l1=weight)` takes the objective without the penalty.
    """
    _check_weight("with_l1", weight)

    def penalised(x: Array, *args: Any) -> tuple[Scalar, Array]:
        value, gradient = fun(x, *args)
        penalty = L1(weight, free=False)
        return value + penalty.value(x), penalty.pseudo_gradient(x, gradient)

    return penalised


def _check_weight(name: str, weight: Any) -> None:
    if isinstance(weight, (int, float)):
        if not weight >= 0.0:
            raise ValueError(f"{name}(weight={weight!r}): must be 0 or more")
    elif not hasattr(weight, "dtype"):
        raise TypeError(
            f"{name}: weight must be a number or an array like x, but is {type(weight).__name__}; "
            "give for instance numpy.asarray(weight)"
        )


class Cached:
    """`fun`, called once for calls in a row with the same array object.

    For an objective whose value and gradient are asked for separately, as a pair of functions:
    `minimize(cached.value, x0, jac=cached.gradient)`. Arrays are compared by identity, never by
    value, so `x` must not be written to between the calls. `hits` counts the calls saved.
    """

    def __init__(self, fun: Objective) -> None:
        self.hits = 0
        self._fun = fun
        self._given: tuple[Any, ...] = ()
        self._returned: Any = None

    def __call__(self, x: Array, *args: Any) -> tuple[Scalar, Array]:
        """(value, gradient) at `x`."""
        given = (x, *args)
        if len(given) == len(self._given) and all(
            new is old for new, old in zip(given, self._given, strict=True)
        ):
            self.hits += 1
        else:
            self._returned = self._fun(*given)
            self._given = given
        value, gradient = self._returned
        return value, gradient

    def value(self, x: Array, *args: Any) -> Scalar:
        """The value alone."""
        return self(x, *args)[0]

    def gradient(self, x: Array, *args: Any) -> Array:
        """The gradient alone."""
        return self(x, *args)[1]


class Counted:
    """`fun` with the number of its `calls`."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.calls = 0
        self._fun = fun

    def __call__(self, *args: Any) -> Any:
        """What `fun` returns."""
        self.calls += 1
        return self._fun(*args)
