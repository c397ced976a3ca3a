"""The step-size search of CG_DESCENT, for the flat end of a run, at which values are noise.

W. W. Hager, H. Zhang, A new conjugate gradient method with guaranteed descent and an efficient line
search, SIAM J. Optim. 16 (2005) 170-192: algorithm `Line Search`, `update` and `secant2` in
section 4, `bracket` in W. W. Hager, H. Zhang, Algorithm 851, ACM TOMS 32 (2006) 113-137.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeAlias

from optim.line_search.ray import Ray, Sample, Trial

Interval: TypeAlias = tuple[Sample, Sample]
# Yields step sizes to try, is sent the samples there, and ends with a result.
Steps: TypeAlias = Generator[float, Sample, Interval]


@dataclass(frozen=True, kw_only=True)
class HagerZhang:
    """Step-size search of CG_DESCENT, for values that are noisy near the minimum.

    Parameters
    ----------
    c1 : float, default 0.1
        Sufficient decrease: the part of the gain predicted by the slope that a step must reach,
        below ``min(c2, 1/2)``.
    c2 : float, default 0.9
        Curvature: the part of the slope at the start that may remain.
    max_trials : int, default 50
        Largest number of evaluations in one search.
    growth : float, default 5.0
        Factor between steps while the objective falls.

    See Also
    --------
    StrongWolfe : The search for objectives in double precision.

    Notes
    -----
    A step must meet Wolfe's conditions. If values differ from the value at the start by less than
    1e-6 of it, slopes decide instead: ``(2 c1 - 1) phi'(0) >= phi'(t) >= c2 phi'(0)``.

    References
    ----------
    .. [1] W. W. Hager, H. Zhang, A new conjugate gradient method with guaranteed descent and an
       efficient line search, SIAM J. Optim. 16 (2005) 170-192, section 4.
    .. [2] W. W. Hager, H. Zhang, Algorithm 851: CG_DESCENT, a conjugate gradient method with
       guaranteed descent, ACM Trans. Math. Softw. 32 (2006) 113-137.

    Examples
    --------
    >>> fun = lambda x: (float(x @ x), 2 * x)
    >>> solver = optim.ConjugateGradient(search=optim.HagerZhang(c2=0.2))
    >>> solver.minimize(fun, [3.0, 4.0]).success
    True
    """

    c1: float = 0.1
    c2: float = 0.9
    max_trials: int = 50
    growth: float = 5.0

    def __call__(self, ray: Ray) -> Trial | None:
        """The first trial that meets the conditions; else the lowest sufficient one; else None."""
        best: Trial | None = None
        steps = _Narrowing(ray, self.c1, self.growth).intervals()
        step_size = next(steps)
        for _ in range(int(min(self.max_trials, ray.budget))):
            trial = ray.at(step_size)
            if self._accepts(ray, trial):
                return trial
            if ray.is_sufficient(trial, self.c1) and (best is None or trial.value < best.value):
                best = trial
            try:
                step_size = steps.send(trial)
            except StopIteration:
                break
        return best

    def _accepts(self, ray: Ray, trial: Trial) -> bool:
        slope = ray.start.slope
        if not trial.finite or trial.slope < self.c2 * slope:
            return False
        approximate = ray.doubtful(trial) and trial.slope <= (2.0 * self.c1 - 1.0) * slope
        return approximate or ray.is_sufficient(trial, self.c1)


@dataclass(frozen=True)
class _Narrowing:
    """The algorithm as a generator: it asks for samples, and never ends at an accepted one itself.

    The paper calls a sample low if it is not above the start. Here it has to meet Armijo's
    condition up to noise: among many minima, the bracket then holds one that can be accepted.
    """

    ray: Ray
    c1: float
    growth: float

    def intervals(self) -> Steps:
        """Brackets a minimum, then shrinks the interval until it is too small to change x."""
        interval = yield from self.bracket()
        while _width(interval) > self.ray.min_step:
            before, width = interval, _width(interval)
            interval = yield from self.secant2(interval)
            if _width(interval) > 0.66 * width:  # L2: the paper's gamma
                interval = yield from self.update(interval, self.middle(interval))
            if interval == before:  # Its ends are adjacent numbers.
                break
        return interval

    def bracket(self) -> Steps:
        """B0 to B3: an interval whose left end falls and is low, and whose right end rises."""
        low, step_size = self.ray.start, self.ray.first
        while True:
            sample = yield step_size
            if _rises(sample):
                return low, sample
            if not self.low(sample):
                return (yield from self.bisect((low, sample)))
            low, step_size = sample, self.growth * step_size

    def update(self, interval: Interval, step_size: float) -> Steps:
        """U0 to U3: the interval, narrowed by the sample at `step_size`."""
        low, high = interval
        if not min(step_size - low.step_size, high.step_size - step_size) > self.ray.min_step:
            return (
                interval  # It is outside, not a number, or so near an end that x does not change.
            )
        sample = yield step_size
        if _rises(sample):
            return low, sample
        if self.low(sample):
            return sample, high
        return (yield from self.bisect((low, sample)))

    def bisect(self, interval: Interval) -> Steps:
        """U3: the right end is too high; halves until it rises, or is so near that all is noise."""
        low, high = interval
        while _width((low, high)) > self.ray.min_step:
            sample = yield self.middle((low, high))
            if _rises(sample):
                return low, sample
            low, high = (sample, high) if self.low(sample) else (low, sample)
        return low, high

    def secant2(self, interval: Interval) -> Steps:
        """S1 to S4: two secant steps, the second from the end that the first one replaced."""
        low, high = interval
        step_size = _secant(low, high)
        narrowed = yield from self.update(interval, step_size)
        if narrowed[1].step_size == step_size:
            step_size = _secant(high, narrowed[1])
        elif narrowed[0].step_size == step_size:
            step_size = _secant(low, narrowed[0])
        else:
            return narrowed
        return (yield from self.update(narrowed, step_size))

    def middle(self, interval: Interval) -> float:
        """Between the ends: a tenth of the way if the first step may be far too long."""
        low, high = interval
        part = 0.1 if low is self.ray.start or not high.finite else 0.5
        return low.step_size + part * (high.step_size - low.step_size)

    def low(self, sample: Sample) -> bool:
        """Whether it is below the line of sufficient decrease by all that noise lets see."""
        start = self.ray.start
        line = start.value + self.c1 * sample.step_size * start.slope
        return sample.finite and sample.value <= line + self.ray.noise


def _secant(a: Sample, b: Sample) -> float:
    """The step size at which a linear slope vanishes; nan if it is unknown or does not change."""
    change = b.slope - a.slope
    if not math.isfinite(change) or change == 0.0:
        return math.nan
    return (a.step_size * b.slope - b.step_size * a.slope) / change


def _rises(sample: Sample) -> bool:
    return sample.finite and sample.slope >= 0.0


def _width(interval: Interval) -> float:
    return interval[1].step_size - interval[0].step_size
