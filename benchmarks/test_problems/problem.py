"""A test problem, and how a formula alone becomes an objective with its gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Objective = Callable[[Any], tuple[Any, Any]]
Formula = Callable[[np.ndarray], Any]

# So short that its square vanishes beside any number: the derivative is exact to rounding.
_STEP = 1e-30


@dataclass(frozen=True)
class Problem:
    """An objective with its standard start and what is known of its minima.

    source          where the problem was published
    objective       fun(x) -> (value, gradient): a float and an array of the shape (n,) of x
    start           the standard start
    minimum         the value at the problem's minimum, by how it was published; all digits hold
    other_minima    values of other local minima, where descent from the start is known to end
    """

    name: str
    source: str
    objective: Objective
    start: tuple[float, ...]
    minimum: float
    other_minima: tuple[float, ...] = ()

    @property
    def x0(self) -> np.ndarray:
        """The start as a new array of shape (n,)."""
        return np.array(self.start, dtype=np.float64)

    @property
    def minima(self) -> tuple[float, ...]:
        """The values of all known minima."""
        return (self.minimum, *self.other_minima)


def repeated(values: tuple[float, ...], n: int) -> tuple[float, ...]:
    """``n`` numbers: ``values`` over and over."""
    return tuple(float(x) for x in np.resize(values, n))


def analytic(formula: Formula) -> Objective:
    """The value that ``formula`` gives, with its gradient.

    ``formula`` must be analytic: it is given complex vectors of shape (n,) too. The gradient is
    taken by complex steps, n evaluations of the formula: W. Squire, G. Trapp, SIAM Review 40 (1998)
    110-112. Far away, where the formula overflows, both are perhaps not finite.
    """

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        with np.errstate(all="ignore"):
            return float(formula(x)), _derivatives(formula, x)

    return objective


def least_squares(residuals: Formula) -> Objective:
    """The sum of squares of the residuals, shape (m,), with its gradient; as ``analytic``."""

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        with np.errstate(all="ignore"):
            r = np.asarray(residuals(x))
            return float(r @ r), 2.0 * (_derivatives(residuals, x) @ r)

    return objective


def _derivatives(formula: Formula, x: np.ndarray) -> np.ndarray:
    """The derivative by each coordinate, along axis 0."""
    steps = x + _STEP * 1j * np.eye(x.size)
    return np.array([np.imag(formula(step)) for step in steps]) / _STEP
