"""The steps that MLlib's ``LinearSVC`` takes on the hinge loss, for fits of a few iterations.

The result of a few steps depends on the steps. MLlib takes those of Breeze's OWL-QN without an l1
norm: L-BFGS whose steps stay in an orthant, with a search that goes to and fro over kinks.

G. Andrew, J. Gao, Scalable training of L1-regularized log-linear models, ICML 2007.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

from distvec.objectives.standardization import Standardized
from distvec.spark.objectives.objective import Objective
from optim import Outcome, Problem, Result, Solver, State
from optim.core.arrays import fetch, max_norm, namespace, vdot
from optim.core.problem import Point
from optim.line_search.ray import CurvaturePair
from optim.quasi_newton.lbfgs import History

_PAIRS = 10
_TRIALS = 19
"""Of step sizes; MLlib accepts the last one as it is."""
_DECREASE, _CURVATURE = 1e-4, 0.9


class KinkedSteps(Objective):
    """An objective with standardized features that is minimized by MLlib's steps."""

    @classmethod
    def over(cls, objective: Objective) -> Self:
        """It shares the rows with ``objective``."""
        made = object.__new__(cls)
        made.__dict__.update(objective.__dict__)
        return made

    def minimize(self, x0: Any = None, method: str | None = None, **options: Any) -> Result:
        """Take so many steps; only the limit and the options of checkpoints matter."""
        scales = self._scales
        if scales is None:
            raise ValueError("MLlib's steps are those of standardized features")
        solver = OrthantSteps(max_iterations=options["max_iterations"])
        names = ("checkpoint", "every", "resume")
        kept = {name: one for name, one in options.items() if name in names}
        progress = options.get("progress", False)
        start = self.start() if x0 is None else x0
        seen = Standardized.over(self, scales, self._parameters)
        return seen.minimized_by(solver, start, None, progress, **kept)


@dataclass(frozen=True, kw_only=True)
class OrthantSteps(Solver):
    """L-BFGS whose steps end at the borders of the orthant, as MLlib has it.

    Parameters
    ----------
    max_iterations : int, default 1000
        Largest number of iterations.
    max_evaluations : int, optional
        Largest number of calls of the objective.
    max_seconds : float, optional
        Seconds after which no further iteration starts.
    """

    def init(self, problem: Problem, x: Any) -> State:
        """Evaluate the objective at the start."""
        return State.start(problem.at(x), History(_PAIRS))

    def step(self, problem: Problem, state: State) -> State:
        """Take one iteration."""
        x, g = state.x, state.gradient
        xp = namespace(x)
        d = -state.memory.inverse_hessian_times(g)
        d = xp.where(d * g < 0.0, d, 0.0)
        orthant = xp.where(x == 0.0, -xp.sign(g), xp.sign(x))
        slope, length, d_norm, x_norm = fetch(vdot(d, g), vdot(g, g), max_norm(d), max_norm(x))
        if not slope < 0.0:
            return replace(state, outcome=Outcome.STALLED)

        def at(step_size: float) -> _Trial:
            new = x + step_size * d
            new = xp.where(xp.sign(new) == orthant, new, 0.0)
            value, gradient = problem(new)
            s, y = new - x, gradient - g
            number, norm, new_slope, sy, yy = fetch(
                value, max_norm(gradient), vdot(gradient, d), vdot(s, y), vdot(y, y)
            )
            point = Point(new, number, gradient, norm)
            return _Trial(step_size, new_slope, point, CurvaturePair(s, y, sy, yy))

        trial = _search(at, state, slope, 0.5 / math.sqrt(length))
        pair, pairs = trial.pair, state.memory.pairs
        kept = (*pairs, pair)[-_PAIRS:] if pair.sy > 0.0 else ()
        return state.moved(
            trial.point,
            memory=History(_PAIRS, kept),
            step_size=trial.step_size,
            step_length=trial.step_size * d_norm / max(x_norm, 1.0),
            gain=state.value - trial.point.value,
        )

    def done(self, state: State) -> Outcome | None:
        """Only a gradient of zero ends the steps before their limit."""
        return Outcome.CONVERGED_GRADIENT if state.gradient_norm == 0.0 else None


@dataclass(frozen=True)
class _Trial:
    step_size: float
    slope: float
    point: Point
    pair: CurvaturePair


def _search(at: Any, state: State, slope: float, first: float) -> _Trial:
    """Breeze's backtracking: shorter or longer by factors, until the slope is flat enough.

    It takes the value at the start for that of the first trial, which is so never accepted.
    """
    is_first = state.iteration == 0
    shorter = 0.1 if is_first else 0.5
    trial: _Trial = at(first if is_first else 1.0)
    value = state.value
    for _ in range(_TRIALS):
        if value > state.value + _DECREASE * trial.step_size * slope:
            factor = shorter
        elif trial.slope < _CURVATURE * slope:
            factor = 2.1
        elif trial.slope > -_CURVATURE * slope:
            factor = shorter
        else:
            break
        trial = at(trial.step_size * factor)
        value = trial.point.value
    return trial
