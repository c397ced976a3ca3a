"""Backtracking with Armijo's condition, also for methods that let the objective rise for a while.

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
    """Step-size search that shortens the first step until one gains enough (Armijo's condition).

    Parameters
    ----------
    c1 : float, default 1e-4
        Sufficient decrease: the part of the gain predicted by the slope that a step must reach.
    max_trials : int, default 40
        Largest number of evaluations in one search.

    References
    ----------
    .. [1] J. Nocedal, S. J. Wright, Numerical Optimization, 2nd edition (2006), algorithm 3.1 and
       section 3.5.

    Examples
    --------
    >>> fun = lambda x: (float(x @ x), 2 * x)
    >>> solver = optim.LBFGS(search=optim.Backtracking(max_trials=20))
    >>> solver.minimize(fun, [3.0, 4.0]).success
    True
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

    Equation 3.58, kept within a tenth and a half of the trial; a quarter if it has no value.
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
    """Reference of a non-monotone search: the highest of the last values.

    Parameters
    ----------
    count : int, default 10
        Number of values. 1 is the ordinary, monotone search.
    values : tuple of float, default ()
        The values so far; solvers extend it.

    See Also
    --------
    NonMonotone : The search that compares with it.

    References
    ----------
    .. [1] L. Grippo, F. Lampariello, S. Lucidi, A nonmonotone line search technique for Newton's
       method, SIAM J. Numer. Anal. 23 (1986) 707-716.

    Examples
    --------
    >>> optim.HighestOf(2).after(5.0).after(3.0).after(1.0).level
    3.0
    """

    count: int = 10
    values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"HighestOf(count={self.count}): must be 1 or more")

    @property
    def level(self) -> float:
        """The reference value.

        Returns
        -------
        float
            ``inf`` before the first value.
        """
        return max(self.values, default=math.inf)

    def after(self, value: float) -> HighestOf:
        """Return the reference with the value of one more iterate.

        Parameters
        ----------
        value : float
            The value.

        Returns
        -------
        HighestOf
            With the last ``count`` values.
        """
        return replace(self, values=(*self.values, value)[-self.count :])


@dataclass(frozen=True)
class MeanOf:
    """Reference of a non-monotone search: the mean of all values, weighted by their age.

    Parameters
    ----------
    memory : float, default 0.85
        Weight of a value relative to the next newer one, in [0, 1). 0 is the monotone search.
    mean : float, default inf
        The mean so far (C in the paper); solvers extend it.
    weight : float, default 0.0
        The sum of the weights so far (Q in the paper).

    See Also
    --------
    NonMonotone : The search that compares with it.

    References
    ----------
    .. [1] H. Zhang, W. W. Hager, A nonmonotone line search technique and its application to
       unconstrained optimization, SIAM J. Optim. 14 (2004) 1043-1056.

    Examples
    --------
    >>> optim.MeanOf(memory=0.5).after(3.0).after(0.0).level
    1.0
    """

    memory: float = 0.85
    mean: float = math.inf
    weight: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.memory < 1.0:
            raise ValueError(f"MeanOf(memory={self.memory}): must be at least 0 and below 1")

    @property
    def level(self) -> float:
        """The reference value.

        Returns
        -------
        float
            ``inf`` before the first value.
        """
        return self.mean

    def after(self, value: float) -> MeanOf:
        """Return the reference with the value of one more iterate.

        Parameters
        ----------
        value : float
            The value.

        Returns
        -------
        MeanOf
            With the new mean.
        """
        old = self.memory * self.weight
        mean = (old * self.mean + value) / (old + 1.0) if old else value
        return MeanOf(self.memory, mean, old + 1.0)


@dataclass(frozen=True, kw_only=True)
class RelaxedRay(Ray):
    """A ray whose trials are compared with `level`, at least the value at its start."""

    level: float

    def is_sufficient(self, trial: Trial, c1: float) -> bool:
        """Armijo's condition relative to the level, or to the start if values are flat."""
        descends = trial.finite and trial.foretold < 0.0
        relaxed = descends and trial.value <= self.level + c1 * trial.foretold
        return relaxed or super().is_sufficient(trial, c1)


@dataclass(frozen=True, kw_only=True)
class NonMonotone:
    """Step-size search that lets values rise for a while, as spectral steps need.

    Parameters
    ----------
    reference : HighestOf or MeanOf, default MeanOf()
        The value with which trials are compared, instead of the value at the start of the search.
    search : callable, default Backtracking()
        The search that does the comparison.

    Examples
    --------
    Values that do not rise:

    >>> fun = lambda x: (float(x @ x), 2 * x)
    >>> search = optim.NonMonotone(reference=optim.HighestOf(1))
    >>> optim.GradientDescent(search=search).minimize(fun, [3.0, 4.0]).success
    True
    """

    reference: Reference = field(default_factory=MeanOf)
    search: Search = field(default_factory=Backtracking)

    def __call__(self, ray: Ray, reference: Reference) -> Trial | None:
        """Return the step that `search` finds when compared with `reference`, or None.

        `reference` is the search's own one after the values of all iterates so far.
        """
        level = max(reference.level, ray.start.value)
        return self.search(RelaxedRay(**vars(ray), level=level))
