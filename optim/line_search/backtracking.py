"""Backtracking with Armijo's condition, also where the objective may rise for a while.

J. Nocedal, S. J. Wright, Numerical Optimization, 2nd edition (2006), algorithm 3.1, section 3.5.

Long spectral steps need such rises. Then a trial is compared with a reference instead of the value
at the ray's start: the highest of the last values (L. Grippo, F. Lampariello, S. Lucidi, SIAM J.
Numer. Anal. 23 (1986) 707-716), or a mean of all of them (H. Zhang, W. W. Hager, SIAM J. Optim. 14
(2004) 1043-1056).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Protocol

from optim.line_search.ray import Ray, Sample, Search, Trial


@dataclass(frozen=True, kw_only=True)
class Backtracking:
    """The first step size, then shorter ones, until one gains enough. Each trial is evaluated.

    c1              the part of the gain foretold by the slope that must be reached
    max_trials      evaluations at most
    """

    c1: float = 1e-4
    max_trials: int = 40

    def __call__(self, ray: Ray) -> Trial | None:
        """The first sufficient trial, or None."""
        step_size = ray.first
        for _ in range(int(min(self.max_trials, ray.budget))):
            trial = ray.at(step_size)
            if ray.is_sufficient(trial, self.c1):
                return trial
            if step_size <= ray.min_step:
                return None
            step_size = _shorter(ray.start, trial)
        return None


def _shorter(start: Sample, trial: Sample) -> float:
    """The minimum of the parabola through value and slope at the start and the trial's value.

    Equation 3.58, kept within a tenth and a half of the trial; a quarter where it has no value.
    """
    step_size = trial.step_size
    if not trial.finite:
        return 0.25 * step_size
    excess = trial.value - start.value - step_size * start.slope
    shortened = -start.slope * step_size * step_size / (2.0 * excess) if excess > 0.0 else 0.0
    return min(max(shortened, 0.1 * step_size), 0.5 * step_size)


class Reference(Protocol):
    """The value that a trial is compared with. Immutable: a solver keeps it with its state."""

    @property
    def level(self) -> float:
        """The reference value."""

    def after(self, value: float) -> Reference:
        """With the value of one more iterate."""


@dataclass(frozen=True)
class HighestOf:
    """The highest of the last `count` values; count = 1 is the ordinary, monotone search."""

    count: int = 10
    values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"HighestOf(count={self.count}): at least one value is compared with")

    @property
    def level(self) -> float:
        """The reference value; inf before the first value."""
        return max(self.values, default=math.inf)

    def after(self, value: float) -> HighestOf:
        """With the value of one more iterate."""
        return replace(self, values=(*self.values, value)[-self.count :])


@dataclass(frozen=True)
class MeanOf:
    """The mean of all values, each weighted by `memory` < 1 to the power of its age.

    memory = 0 is the monotone search. C and Q of Zhang and Hager are `mean` and `weight`.
    """

    memory: float = 0.85
    mean: float = math.inf
    weight: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.memory < 1.0:
            raise ValueError(f"MeanOf(memory={self.memory}): must lie in [0, 1)")

    @property
    def level(self) -> float:
        """The reference value; inf before the first value."""
        return self.mean

    def after(self, value: float) -> MeanOf:
        """With the value of one more iterate."""
        old = self.memory * self.weight
        mean = (old * self.mean + value) / (old + 1.0) if old else value
        return MeanOf(self.memory, mean, old + 1.0)


@dataclass(frozen=True, kw_only=True)
class RelaxedRay(Ray):
    """A ray whose trials are compared with `level`, at least the value at its start."""

    level: float

    def is_sufficient(self, trial: Trial, c1: float) -> bool:
        """Armijo's condition relative to the level, or to the start where values are flat."""
        descends = trial.finite and trial.foretold < 0.0
        relaxed = descends and trial.value <= self.level + c1 * trial.foretold
        return relaxed or super().is_sufficient(trial, c1)


@dataclass(frozen=True, kw_only=True)
class NonMonotone:
    """`search`, with values compared to `reference`."""

    reference: Reference = field(default_factory=MeanOf)
    search: Search = field(default_factory=Backtracking)

    def __call__(self, ray: Ray, reference: Reference) -> Trial | None:
        """The step that `search` finds when compared with `reference`, or None.

        `reference` is that of the search after the values of all iterates so far.
        """
        level = max(reference.level, ray.start.value)
        return self.search(RelaxedRay(**vars(ray), level=level))
