"""The steps that MLlib takes if intercepts of several classes have bounds.

The same number may be added to all intercepts of a softmax without a change of its loss. Without
bounds both sides center them. With bounds the result depends on the steps, so these are the steps
of Breeze's L-BFGS-B, in the driver.

R. H. Byrd, P. Lu, J. Nocedal, C. Zhu, A limited memory algorithm for bound constrained
optimization, SIAM J. Sci. Comput. 16 (1995) 1190-1208. Equations and names are of this paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from distvec.losses.rows import Floats
from distvec.objectives.standardization import Standardized
from distvec.spark.objectives.objective import Objective
from optim import Box, Outcome, Problem, Result, Solver, State
from optim.core.arrays import fetch
from optim.core.problem import Point

_PAIRS = 10
_DECREASE, _CURVATURE = 1e-4, 0.9
_TRIALS = 64
_PROJECTED = 1e-5
_SMALLEST_CURVATURE = 2.2e-16
_WINDOW = 20
"""Values that are compared; no run ends by its values before so many iterations."""


class BoundedSteps(Objective):
    """An objective of several classes with standardized features, minimized by MLlib's steps."""

    _tolerance: float

    @classmethod
    def over(cls, objective: Objective, tolerance: float) -> Self:
        """It shares the rows with ``objective``."""
        made = object.__new__(cls)
        made.__dict__.update(objective.__dict__)
        made._tolerance = tolerance
        return made

    def minimize(self, x0: Any = None, method: str | None = None, **options: Any) -> Result:
        """Take steps in the driver, from the start of MLlib."""
        if self._scales is None:
            raise ValueError("MLlib's steps are those of standardized features")
        seen = Standardized.over(self, self._scales.without_centers(), self._parameters)
        start = self._first() if x0 is None else np.asarray(x0.numpy())
        (box,) = self._boxes(options["bounds"], (self.ps.array(start),))
        lower, upper = (_flat(one, start.shape) for one in (box.lower, box.upper))
        (scaled,) = self._scales.without_centers().variables((self.ps.array(start),))

        def function(u: Floats) -> tuple[float, Floats]:
            value, slopes = seen(self.ps.array(u.reshape(start.shape)))
            (number,) = fetch(value, also=(slopes,))
            return number, slopes.numpy().ravel()

        solver = BoxSteps(
            lower=lower,
            upper=upper,
            tolerance=self._tolerance,
            max_iterations=options["max_iterations"],
        )
        first = np.clip(scaled.numpy().ravel(), lower, upper)
        found = solver.minimize(function, first, progress=options.get("progress", False))
        found.update(x=seen.original(self.ps.array(found.x.reshape(start.shape))))
        return found

    def _first(self) -> Floats:
        """Zeros, with logarithms of the classes' weights as intercepts."""
        start: Floats = np.zeros(self.start().shape)
        _, slopes = self(self.ps.array(start))
        shares = 1.0 / start.shape[1] - slopes[-1].numpy()
        weights = np.log1p(np.maximum(shares, 0.0) * self.weight_sum)
        start[-1] = weights - weights.mean()
        return start


def _flat(bound: Any, shape: tuple[int, ...]) -> Floats:
    array = bound.numpy() if hasattr(bound, "numpy") else np.float64(bound)
    return np.broadcast_to(array, shape).ravel().astype(np.float64)


@dataclass(frozen=True)
class Pairs:
    """The last steps and changes of the gradient, and ``B = theta I - W M W'`` that they make."""

    steps: Floats
    changes: Floats
    theta: float
    w: Floats
    m: Floats

    @classmethod
    def none(cls, size: int) -> Pairs:
        """B is the identity."""
        empty = np.zeros((size, 0))
        return cls(empty, empty, 1.0, np.zeros((size, 1)), np.zeros((1, 1)))

    def push(self, s: Floats, y: Floats) -> Pairs:
        """With one more pair, unless it has no curvature."""
        if not _SMALLEST_CURVATURE * np.linalg.norm(y) < abs(s @ y):
            return self
        steps = np.column_stack([self.steps, s])[:, -_PAIRS:]
        changes = np.column_stack([self.changes, y])[:, -_PAIRS:]
        theta = float(y @ y / (y @ s))
        products = steps.T @ changes
        lower, diagonal = np.tril(products, -1), np.diag(-np.diag(products))
        whole = np.block([[diagonal, lower.T], [lower, theta * steps.T @ steps]])
        w = np.hstack([changes, theta * steps])
        return Pairs(steps, changes, theta, w, np.linalg.inv(whole))


@dataclass(frozen=True)
class _Memory:
    pairs: Pairs
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class BoxSteps(Solver):
    """L-BFGS-B as MLlib has it, on arrays of NumPy.

    Parameters
    ----------
    max_iterations : int, default 1000
        Largest number of iterations.
    max_evaluations : int, optional
        Largest number of calls of the objective.
    max_seconds : float, optional
        Seconds after which no further iteration starts.
    lower, upper : array
        The bounds.
    tolerance : float, default 1e-6
        Tolerance on the change of the value, relative to the first value.
    """

    lower: Floats
    upper: Floats
    tolerance: float = 1e-6

    def init(self, problem: Problem, x: Any) -> State:
        """Evaluate the objective at the start."""
        point = problem.at(x)
        return State.start(point, _Memory(Pairs.none(x.size), (point.value,)))

    def step(self, problem: Problem, state: State) -> State:
        """Take one iteration."""
        x, g, memory = state.x, state.gradient, state.memory
        box = Box(self.lower, self.upper)
        cauchy, c = self._cauchy_point(x, g, memory.pairs)
        cauchy = box(cauchy)
        end = cauchy
        if state.iteration:
            end = box(self._subspace_minimum(x, g, memory.pairs, cauchy, c))
        d = end - x

        def at(step_size: float) -> tuple[float, float, Point]:
            point = problem.at(box(x + step_size * d))
            return point.value, float(point.gradient @ d), point

        moving = d != 0.0
        ends = np.where(d < 0.0, self.lower, self.upper)[moving]
        farthest = float(((ends - x[moving]) / d[moving]).min(initial=math.inf))
        found = _search(at, (0.0, state.value, float(g @ d), None), farthest)
        if found is None:
            return replace(state, outcome=Outcome.STALLED)
        step_size, value, _, point = found
        pairs = memory.pairs.push(point.x - x, point.gradient - g)
        return state.moved(
            point,
            memory=_Memory(pairs, (*memory.values, value)[-_WINDOW:]),
            step_size=step_size,
            step_length=step_size * float(np.abs(d).max()) / max(float(np.abs(x).max()), 1.0),
            gain=state.value - value,
        )

    def done(self, state: State) -> Outcome | None:
        """Test the projected gradient, and the values of a window."""
        projected = np.clip(state.x - state.gradient, self.lower, self.upper) - state.x
        if float(np.abs(projected).max()) < _PROJECTED:
            return Outcome.CONVERGED_GRADIENT
        values = state.memory.values
        gain = abs(state.value - max(values))
        if len(values) == _WINDOW and gain <= self.tolerance * abs(state.initial_value):
            return Outcome.CONVERGED_VALUE
        return None

    def _cauchy_point(self, x: Floats, g: Floats, pairs: Pairs) -> tuple[Floats, Floats]:
        """The first minimum of the model along the projected gradient; algorithm CP."""
        w, m, theta = pairs.w, pairs.m, pairs.theta
        ends = np.where(g < 0.0, self.upper, self.lower)
        times = np.full(x.size, np.finfo(np.float64).max)
        np.divide(x - ends, g, out=times, where=g != 0.0)
        d = np.where(times == 0.0, 0.0, -g)
        point, p, c = x.copy(), w.T @ d, np.zeros(len(m))
        slope = float(g @ d)
        curvature = -theta * slope - float(p @ m @ p)
        order = np.argsort(times, kind="stable")
        order = order[times[order] != 0.0]
        now, left = 0.0, 0
        while left < len(order) and times[order[left]] - now <= -slope / curvature:
            b = order[left]
            elapsed, now = times[b] - now, times[b]
            point[b], gb, wb = ends[b], g[b], w[b]
            c = c + elapsed * p
            slope += elapsed * curvature + gb * gb + theta * gb * (point[b] - x[b])
            slope -= gb * float(wb @ m @ c)
            curvature -= gb * gb * theta + 2.0 * gb * float(wb @ m @ p)
            curvature -= gb * gb * float(wb @ m @ wb)
            p, d[b], left = p + gb * wb, 0.0, left + 1
        elapsed = max(-slope / curvature, 0.0)
        rest = order[left:]
        point[rest] = x[rest] + (now + elapsed) * d[rest]
        return point, c + elapsed * p

    def _subspace_minimum(
        self, x: Floats, g: Floats, pairs: Pairs, cauchy: Floats, c: Floats
    ) -> Floats:
        """The minimum of the model over the free variables, cut at the bounds; section 5.1."""
        theta, m = pairs.theta, pairs.m
        is_free = (cauchy != self.lower) & (cauchy != self.upper)
        w = pairs.w[is_free]
        r = (g + theta * (cauchy - x) - pairs.w @ (m @ c))[is_free]
        v = np.linalg.solve(np.eye(len(m)) - m @ (w.T @ w) / theta, m @ (w.T @ r))
        d = -(r / theta + w @ v / theta**2)
        room = np.where(d > 0.0, self.upper[is_free], self.lower[is_free]) - cauchy[is_free]
        share = min(1.0, float((room[d != 0.0] / d[d != 0.0]).min(initial=math.inf)))
        found = cauchy.copy()
        found[is_free] += share * d
        return found


Trial = tuple[float, float, float, Any]
"""A step size, value and slope there, and the point."""


def _search(at: Callable[[float], Any], start: Trial, farthest: float) -> Trial | None:
    """A step that satisfies the strong Wolfe conditions, or that ends at a bound.

    J. Nocedal, S. J. Wright, Numerical Optimization, 2nd edition (2006), algorithm 3.5.
    """
    _, first, slope, _ = low = start
    step_size = 1.0
    for number in range(_TRIALS):
        trial: Trial = (step_size, *at(step_size))
        if not math.isfinite(trial[1]):
            step_size /= 2.0
            continue
        is_high = trial[1] > first + _DECREASE * step_size * slope
        if is_high or (number and trial[1] >= low[1]):
            return _zoom(at, start, low, trial)
        if abs(trial[2]) <= _CURVATURE * abs(slope):
            return trial
        if trial[2] >= 0.0:
            return _zoom(at, start, trial, low)
        if step_size == farthest:
            return trial
        low, step_size = trial, min(1.5 * step_size, farthest)
    return None


def _zoom(at: Callable[[float], Any], start: Trial, low: Trial, high: Trial) -> Trial | None:
    """Algorithm 3.6."""
    _, first, slope, _ = start
    for _ in range(_TRIALS):
        step_size = _minimum(*sorted((low, high), key=lambda one: one[0]))
        if math.isnan(step_size):
            return None
        trial: Trial = (step_size, *at(step_size))
        if trial[1] > first + _DECREASE * step_size * slope or trial[1] >= low[1]:
            high = trial
            continue
        if abs(trial[2]) <= _CURVATURE * abs(slope):
            return trial
        if trial[2] * (high[0] - low[0]) >= 0.0:
            high = low
        low = trial
    return None


def _minimum(left: Trial, right: Trial) -> float:
    """Of the cubic through both, within a tenth of their distance from them; equation 3.59."""
    length = right[0] - left[0]
    one = left[2] + right[2] - 3.0 * (left[1] - right[1]) / -length
    radicand = one * one - left[2] * right[2]
    if radicand < 0.0:
        return math.nan
    two = math.sqrt(radicand)
    found = right[0] - length * (right[2] + two - one) / (right[2] - left[2] + 2.0 * two)
    return min(max(found, left[0] + 0.1 * length), left[0] + 0.9 * length)
