"""The objective along a ray, as numbers: the view of a step-size search."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from optim.core.arrays import Array
from optim.core.problem import Point

# Relative to the value at the start: a larger change, up or down, is not taken for noise. Hager and
# Zhang recommend this size.
_NOISE = 1e-6


@dataclass(frozen=True)
class CurvaturePair:
    """A step s and the gradient's change y along it, with s.y and y.y."""

    s: Array
    y: Array
    sy: float
    yy: float


@dataclass(frozen=True)
class Sample:
    """Value and slope (the derivative along the ray) at one step size; perhaps not finite."""

    step_size: float
    value: float
    slope: float

    @property
    def finite(self) -> bool:
        """Whether it can be compared; if not, it counts as infinitely high."""
        return math.isfinite(self.value) and math.isfinite(self.slope)


@dataclass(frozen=True)
class Trial(Sample):
    """An evaluated step.

    foretold    the change of value predicted by the gradient at the ray's start, hence negative:
                step_size * slope on a straight ray, (x_new - x) @ gradient on a projected one
    point       the end of the step, for the solver
    pair        the change of x and of the gradient from the ray's start, for the history
    measured    the other numbers that the solver asked for
    """

    foretold: float
    point: Point
    pair: CurvaturePair
    measured: tuple[float, ...] = ()


@dataclass(frozen=True)
class Ray:
    """A start, a way to try step sizes from there, and the bounds of the attempt.

    start       value and slope at the start; the slope is negative
    at          evaluates a step size
    first       the step size to try first; 1 is natural to a quasi-Newton direction
    rounding    differences of values below this one are noise
    x_norm, d_norm  max norms of the ray's start and of its direction
    epsilon     the spacing of floating-point numbers next to 1
    budget      evaluations that may be spent
    """

    start: Sample
    first: float
    at: Callable[[float], Trial]
    rounding: float
    x_norm: float
    d_norm: float
    epsilon: float
    budget: float = math.inf

    @property
    def min_step(self) -> float:
        """Shorter steps do not change x."""
        return self.epsilon * self.x_norm / self.d_norm if self.d_norm > 0.0 else math.inf

    def is_sufficient(self, trial: Trial, c1: float) -> bool:
        """Armijo's condition (Nocedal & Wright 3.4), or that a decrease is too small to be seen.

        The second alternative is the premise of the approximate Wolfe condition: W. W. Hager,
        H. Zhang, SIAM J. Optim. 16 (2005) 170-192, with their epsilon at the level of rounding.
        """
        if not trial.finite or trial.foretold >= 0.0:
            return False
        rise = trial.value - self.start.value
        return rise <= c1 * trial.foretold or (self.flat(trial, c1) and rise <= self.rounding)

    def flat(self, trial: Trial, c1: float) -> bool:
        """Whether the decrease that Armijo asks for is below the rounding of the values.

        It must be so at the first step too: a step made tiny by the search is no flat place.
        """
        foretold = max(abs(trial.foretold), self.first * abs(self.start.slope))
        return c1 * foretold <= self.rounding

    def doubtful(self, trial: Trial) -> bool:
        """Whether noise in the values, such as float32 sums, may hide the predicted gain."""
        change = max(abs(trial.value - self.start.value), abs(trial.foretold))
        return change <= self.noise

    @property
    def noise(self) -> float:
        """A change of the value that may be noise; epsilon_k of Hager and Zhang."""
        return _NOISE * abs(self.start.value)


class Search(Protocol):
    """A step-size search: it returns a trial along a ray, or None if no trial gains enough."""

    def __call__(self, ray: Ray) -> Trial | None: ...
