"""A step size with the strong Wolfe conditions.

J. Nocedal, S. J. Wright, Numerical Optimization, 2nd edition (2006), algorithms 3.5 and 3.6 merged
into one loop over a bracket, with the safeguarded cubic interpolation of equation 3.59. If values
are flat to rounding, the approximate condition of Hager and Zhang holds (`Ray.is_sufficient`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from optim.line_search.ray import Ray, Sample, Trial


@dataclass(frozen=True, kw_only=True)
class StrongWolfe:
    """Step-size search with the strong Wolfe conditions.

    Parameters
    ----------
    c1 : float, default 1e-4
        Sufficient decrease: the part of the gain predicted by the slope that a step must reach.
    c2 : float, default 0.9
        Curvature: the part of the slope at the start that may remain, ``c1 < c2 < 1``.
    max_trials : int, default 40
        Largest number of evaluations in one search.
    growth : float, default 10.0
        Largest factor between steps while the objective falls. With the default, a search reaches
        1e20 times its first step.

    See Also
    --------
    HagerZhang : The search for noisy values, such as sums in float32.

    References
    ----------
    .. [1] J. Nocedal, S. J. Wright, Numerical Optimization, 2nd edition (2006), algorithms 3.5 and
       3.6, equation 3.59.
    .. [2] W. W. Hager, H. Zhang, A new conjugate gradient method with guaranteed descent and an
       efficient line search, SIAM J. Optim. 16 (2005) 170-192: the approximate condition.

    Examples
    --------
    >>> fun = lambda x: (float(x @ x), 2 * x)
    >>> solver = optim.LBFGS(search=optim.StrongWolfe(c2=0.5))
    >>> solver.minimize(fun, [3.0, 4.0]).success
    True
    """

    c1: float = 1e-4
    c2: float = 0.9
    max_trials: int = 40
    growth: float = 10.0

    def __call__(self, ray: Ray) -> Trial | None:
        """Return a trial that meets both conditions, otherwise the lowest sufficient one, or None.

        If values contradict slopes, slopes decide: a trial with a small slope whose rise may be
        noise is taken once shorter steps have not gained either.
        """
        bracket = Bracket(ray.start)
        best: Trial | None = None
        doubtful: Trial | None = None
        step_size = ray.first
        for _ in range(int(min(self.max_trials, ray.budget))):
            trial = ray.at(step_size)
            sufficient = ray.is_sufficient(trial, self.c1)
            gentle = trial.finite and abs(trial.slope) <= self.c2 * abs(ray.start.slope)
            if sufficient and gentle:
                return trial
            if sufficient and (best is None or trial.value < best.value):
                best = trial
            if gentle and ray.doubtful(trial) and _gentler(trial, doubtful):
                doubtful = trial
            elif doubtful and not sufficient:
                break
            flat = ray.flat(trial, self.c1)
            bracket = bracket.narrow(trial, too_high=not sufficient, flat=flat)
            if bracket.width <= ray.min_step:
                break
            step_size = bracket.next_step(self.growth, flat)
        return best or doubtful


def _gentler(trial: Trial, other: Trial | None) -> bool:
    return other is None or abs(trial.slope) < abs(other.slope)


@dataclass(frozen=True)
class Bracket:
    """`low` is sufficient and falls towards `high`; so a good step lies between.

    `high` is None while the objective still falls at the longest trial. `before` is the trial that
    `low` replaced. `stubborn` counts rounds that did not halve the bracket, `shrunk` those in a row
    that moved only `high`.
    """

    low: Sample
    high: Sample | None = None
    before: Sample | None = None
    stubborn: int = 0
    shrunk: int = 0

    @property
    def width(self) -> float:
        """The length of the bracket; inf while it is open."""
        if self.high is None:
            return math.inf
        return abs(self.high.step_size - self.low.step_size)

    def narrow(self, trial: Sample, *, too_high: bool, flat: bool) -> Bracket:
        """The bracket with `trial` as one of its ends (the case distinction of algorithm 3.6)."""
        low, high = self.low, self.high
        if too_high or (trial.value >= low.value and not flat):
            ends: tuple[Sample, Sample | None] = (low, trial)
        else:
            ahead = 1.0 if high is None else high.step_size - low.step_size
            ends = (trial, low) if trial.slope * ahead >= 0.0 else (trial, high)
        narrowed = Bracket(*ends, before=low)
        halved = narrowed.width <= 0.5 * self.width
        return replace(
            narrowed,
            stubborn=0 if halved else self.stubborn + 1,
            shrunk=self.shrunk + 1 if narrowed.low is low else 0,
        )

    def next_step(self, growth: float, flat: bool) -> float:
        """The step size to try next."""
        if self.high is None:
            return self._beyond(growth)
        low, width = self.low, self.high.step_size - self.low.step_size
        if self.shrunk >= 4:  # The first step was far too long.
            return low.step_size + 0.1 * width
        if not self.high.finite:
            return low.step_size + 0.25 * width
        if self.stubborn >= 2:
            return low.step_size + 0.5 * width
        minimum = _secant(low, self.high) if flat else _cubic(low, self.high)
        part = (minimum - low.step_size) / width
        # If the minimum is outside the bracket, or not a number, the middle is the best guess.
        part = part if 0.0 <= part <= 1.0 else 0.5
        return low.step_size + min(max(part, 0.1), 0.9) * width

    def _beyond(self, growth: float) -> float:
        """The step size at which the slope vanishes if it is linear, within limits."""
        step_size = self.low.step_size
        wanted = _secant(self.before, self.low) if self.before else math.inf
        wanted = wanted if wanted > step_size else math.inf
        return min(max(wanted, 2.0 * step_size), growth * step_size)


def _secant(a: Sample, b: Sample) -> float:
    """The step size at which a linear slope vanishes; inf if it does not change."""
    change = b.slope - a.slope
    return b.step_size - b.slope * (b.step_size - a.step_size) / change if change else math.inf


def _cubic(a: Sample, b: Sample) -> float:
    """The minimum of the cubic through values and slopes of both (equation 3.59); nan without."""
    d1 = a.slope + b.slope - 3.0 * (a.value - b.value) / (a.step_size - b.step_size)
    discriminant = d1 * d1 - a.slope * b.slope
    if not 0.0 <= discriminant < math.inf:
        return math.nan
    d2 = math.copysign(math.sqrt(discriminant), b.step_size - a.step_size)
    denominator = b.slope - a.slope + 2.0 * d2
    if denominator == 0.0:
        return math.nan
    return b.step_size - (b.step_size - a.step_size) * (b.slope + d2 - d1) / denominator
