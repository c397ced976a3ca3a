"""OWL-QN: G. Andrew, J. Gao, Scalable training of L1-regularized log-linear models, ICML 2007."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

from optim.core.arrays import Array, fetch, max_norm, quiet, vdot
from optim.core.descent import Direction, advanced, ray_along
from optim.core.outcome import Outcome
from optim.core.plateau import Plateau
from optim.core.problem import Point, Problem
from optim.core.solver import ToleranceSolver
from optim.core.state import State
from optim.line_search import Backtracking, Ray, Search, Trial
from optim.quasi_newton.curvature import PATIENCE, CurvatureMemory, attempts, first_step
from optim.quasi_newton.history import CurvaturePair, History
from optim.quasi_newton.l1 import L1


@dataclass(frozen=True)
class PenalisedPoint(Point):
    """A point with the penalty in `value` and the pseudo-gradient as `gradient`."""

    smooth_gradient: Array = None


@dataclass(frozen=True, kw_only=True)
class OWLQN(ToleranceSolver):
    """Orthant-wise limited-memory quasi-Newton: minimises fun(x) + sum(l1 * |x|).

    l1          weight of the penalty: a number, or an array like x of weights >= 0. Coordinates of
                weight 0 are ordinary: neither penalised nor held in an orthant, free to cross zero.
                Of parameters in several arrays each may have its own: {"w": 0.1, "V": 0.0}
    history     pairs kept: 2 * history vectors of memory
    search      the step-size search, along the path projected on the orthant

    Values are those of the penalised objective, gradients its pseudo-gradient, the element
    of least norm in the subdifferential: its max norm is what `gradient_tolerance` is about.
    Cost of an iteration as for LBFGS: one evaluation, two messages on lazy arrays.
    """

    l1: Any = 1.0
    history: int = 10
    search: Search = field(default_factory=Backtracking)

    def init(self, problem: Problem, x: Array) -> State:
        """Evaluate at the start."""
        penalty = L1.like(self.l1, x)
        point = _evaluated(problem, penalty, x)
        plateau = Plateau.start(point, PATIENCE)
        memory = OrthantMemory(History(self.history), plateau, penalty, point.smooth_gradient)
        return State.start(point, memory)

    def step(self, problem: Problem, state: State) -> State:
        """One iteration; if the pairs mislead the search, another attempt without them."""
        for history in attempts(state.memory.history):
            ray = _projected_ray(problem, state, _descent(state, history))
            trial = self.search(ray) if ray.start.slope < 0.0 else None
            if trial is not None:
                return advanced(
                    state,
                    ray,
                    trial,
                    history=history.push(trial.pair, ray.epsilon),
                    smooth_gradient=cast(PenalisedPoint, trial.point).smooth_gradient,
                )
        return replace(state, outcome=Outcome.STALLED)


@dataclass(frozen=True)
class OrthantMemory(CurvatureMemory):
    """The penalty, and the gradient without it, of which the pairs are made."""

    penalty: L1
    smooth_gradient: Array


def _evaluated(problem: Problem, penalty: L1, x: Array) -> PenalisedPoint:
    with quiet():
        value, gradient = problem(x)
        pseudo = penalty.pseudo_gradient(x, gradient)
        smooth, added, norm = fetch(
            value, penalty.value(x), max_norm(pseudo), also=(x, gradient, pseudo)
        )
    return PenalisedPoint(x, smooth + added, pseudo, norm, gradient)


def _descent(state: State, history: History) -> Direction:
    """The quasi-Newton direction, aligned with the orthant."""
    x, pseudo, penalty = state.x, state.gradient, state.memory.penalty
    with quiet():
        newton = history.inverse_hessian_times(pseudo, lambda v: penalty.movable(v, x, pseudo))
        d = penalty.aligned(-newton, x, pseudo)
        also = (d, *history.newest)
        slope, d_norm, x_norm = fetch(vdot(d, pseudo), max_norm(d), max_norm(x), also=also)
    first = first_step(slope, history, state.memory.history, state.step_size)
    return Direction(d, slope, d_norm, x_norm, first)


def _projected_ray(problem: Problem, state: State, direction: Direction) -> Ray:
    """The penalised objective along the direction, projected on the orthant of x."""
    x, pseudo, memory, d = state.x, state.gradient, state.memory, direction.vector
    penalty = memory.penalty

    def at(step_size: float) -> Trial:
        with quiet():
            new = penalty.projected(x + step_size * d, x, pseudo)
            value, gradient = problem(new)
            new_pseudo = penalty.pseudo_gradient(new, gradient)
            s, y = new - x, gradient - memory.smooth_gradient
            smooth, added, norm, new_slope, foretold, sy, yy = fetch(
                value,
                penalty.value(new),
                max_norm(new_pseudo),
                vdot(new_pseudo, d),
                vdot(s, pseudo),
                vdot(s, y),
                vdot(y, y),
                also=(new, gradient, new_pseudo),
            )
        point = PenalisedPoint(new, smooth + added, new_pseudo, norm, gradient)
        pair = CurvaturePair(s, y, sy, yy)
        return Trial(step_size, smooth + added, new_slope, foretold, point, pair)

    return ray_along(problem, state, direction, at)
