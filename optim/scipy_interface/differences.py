"""Partial derivatives by differences of values, on a NumPy array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from optim.core.arrays import Array

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
