"""Backtracking with Armijo's condition.

J. Nocedal, S. J. Wright, Numerical Optimization, 2nd edition (2006), algorithm 3.1, section 3.5.
"""

from __future__ import annotations

from dataclasses import dataclass

from optim.line_search.ray import Ray, Sample, Trial


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
            if ray.sufficient(trial, self.c1):
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
