"""OWL-QN: L-BFGS for a smooth function plus the penalty sum(weights * |x|).

G. Andrew, J. Gao, Scalable training of L1-regularized log-linear models, ICML 2007.
Coordinates of weight 0 have no kink: they keep their gradient and belong to no orthant.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from optim.core.arrays import (
    Array,
    Scalar,
    Weights,
    fetch,
    max_norm,
    namespace,
    quiet,
    reshape_like,
    vdot,
)
from optim.core.descent import Direction, next_state, ray_along
from optim.core.problem import Point, Problem
from optim.core.progress import Plateau
from optim.core.result import Outcome, State
from optim.core.solver import ToleranceSolver
from optim.core.trees import Tree, map_arrays
from optim.line_search import Backtracking, Ray, Search, Trial
from optim.line_search.ray import CurvaturePair
from optim.quasi_newton.lbfgs import PATIENCE, CurvatureMemory, History, attempts, first_step


@dataclass(frozen=True)
class L1:
    """`weights` is a number, or an array of the shape and dtype of x.

    `free` marks the coordinates of weight 0: a mask, or one answer for all.
    """

    weights: Any
    free: Array | bool

    @classmethod
    def like(cls, weights: Any, x: Array) -> L1:
        """With weights made to fit `x`: a number >= 0 or one such number per element.

        Of a table one for each column, of shape (k,), or for each row, of shape (n, 1), will do.
        """
        if isinstance(weights, (int, float)):
            _check_least(weights)
            return cls(float(weights), weights == 0)
        if isinstance(x, Tree):
            return cls._like_tree(weights, x)
        if np.shape(weights) == ():
            return cls.like(float(weights), x)
        own = reshape_like(weights, x)
        if own is None:
            raise ValueError(
                f"l1 has shape {np.shape(weights)}, but x has {tuple(x.shape)}; give a number, "
                "or one weight per element of x (0 for an unpenalised intercept)"
            )
        (least,) = fetch(namespace(x).min(own), also=(own,))
        _check_least(least)
        return cls(own, own == 0.0)

    @classmethod
    def _like_tree(cls, weights: Any, x: Tree) -> L1:
        parts = map_arrays(cls.like, x.spread(weights, "l1"), x).leaves
        return cls(
            Tree(x.structure, tuple(part.weights for part in parts)),
            Tree(x.structure, tuple(part.free for part in parts)),
        )

    def value(self, x: Array) -> Scalar:
        """The penalty at `x`."""
        xp = namespace(x)
        return xp.sum(self.weights * xp.abs(x))

    def pseudo_gradient(self, x: Array, g: Array) -> Array:
        """The one-sided derivative along which the penalised objective falls, else 0."""
        xp = namespace(x)
        shrunk = xp.sign(g) * xp.maximum(xp.abs(g) - self.weights, 0.0)
        return xp.where(x == 0.0, shrunk, g + self.weights * xp.sign(x))

    def align(self, d: Array, x: Array, pseudo: Array) -> Array:
        """The direction with 0 for each coordinate that would leave a kink on the wrong side.

        Andrew and Gao drop every coordinate that points against -pseudo. If x != 0, that only
        spoils the quasi-Newton direction: a short step stays in the orthant either way, and descent
        follows from H being positive definite. So only coordinates at the kink are aligned.
        """
        xp = namespace(d)
        return self._where(d, (x != 0.0) | (xp.sign(d) == -xp.sign(pseudo)))

    def movable(self, v: Array, x: Array, pseudo: Array) -> Array:
        """`v` with 0 for the coordinates that the kink holds at 0."""
        return self._where(v, (x != 0.0) | (pseudo != 0.0))

    def project(self, new: Array, x: Array, pseudo: Array) -> Array:
        """`new` with 0 for coordinates that left the orthant of `x`, or -pseudo if x is 0."""
        xp = namespace(x)
        orthant = xp.where(x == 0.0, -xp.sign(pseudo), xp.sign(x))
        return self._where(new, xp.sign(new) == orthant)

    def _where(self, values: Array, where: Array) -> Array:
        if self.free is True:
            return values
        allowed = where if self.free is False else where | self.free
        return namespace(values).where(allowed, values, 0.0)


def _check_least(weight: float) -> None:
    if not weight >= 0.0:
        raise ValueError(f"OWLQN(l1) holds {weight}; weights must be 0 or more")


@dataclass(frozen=True)
class PenalisedPoint(Point):
    """A point with the penalty in `value` and the pseudo-gradient as `gradient`."""

    smooth_gradient: Array = None


@dataclass(frozen=True, kw_only=True)
class OWLQN(ToleranceSolver):
    """Orthant-wise limited-memory quasi-Newton: minimises ``fun(x) + sum(l1 * |x|)``.

    Parameters
    ----------
    max_iterations : int, default 1000
        Largest number of iterations.
    max_evaluations : int, optional
        Largest number of calls of the objective, which is never exceeded. Default: no limit.
    max_seconds : float, optional
        Seconds after which no further iteration starts. Default: no limit.
    gradient_tolerance : float, optional
        Absolute tolerance on the max norm of the gradient. An explicit value is never relaxed.
        Default: 1e-8, or larger if rounding hides every further gain.
    gradient_rtol : float, default 0.0
        Tolerance on the max norm of the gradient, relative to its norm at the start. 0: off.
    value_tolerance : float, default 0.0
        Tolerance on the gain of an iteration, relative to ``max(|f_k|, |f_k+1|, 1)``. 0: off.
    step_tolerance : float, default 0.0
        Tolerance on the max norm of a step, relative to ``max(max norm of x, 1)``. 0: off.
    l1 : float, Array or structure, default 1.0
        Weight of the penalty: a number, or an array like x of weights >= 0. For a table also one
        weight for each column, of shape ``(k,)``, or each row, of shape ``(n, 1)``. If x is a
        structure of arrays, each may have its own weight: ``{"w": 0.1, "V": 0.0}``. Coordinates of
        weight 0, such as an intercept, are not penalised and may cross zero.
    history : int, default 10
        Number of curvature pairs. They take ``2 * history`` vectors of memory.
    search : callable, default Backtracking()
        Step-size search along the path that is projected on the orthant.

    See Also
    --------
    ProximalGradient : For other penalties.

    Notes
    -----
    Values include the penalty. Gradients are pseudo-gradients: the element of least norm in the
    subdifferential. `gradient_tolerance` applies to its max norm. If the first trial is accepted,
    an iteration takes one evaluation. On distributed vectors it takes 3 or 4 requests per server,
    each with one pass over memory. Every further trial adds one of both.

    References
    ----------
    .. [1] G. Andrew, J. Gao, Scalable training of L1-regularized log-linear models, ICML 2007.

    Examples
    --------
    >>> fun = lambda x: (0.5 * float((x - 3) @ (x - 3)), x - 3)
    >>> result = optim.OWLQN(l1=np.array([1.0, 5.0, 0.0])).minimize(fun, np.zeros(3))
    >>> np.round(result.x, 6)
    array([2., 0., 3.])
    """

    l1: Weights = 1.0
    history: int = 10
    search: Search = field(default_factory=Backtracking)

    def init(self, problem: Problem, x: Array) -> State:
        """Evaluate the penalised objective at the start."""
        penalty = L1.like(self.l1, x)
        point = _evaluate(problem, penalty, x)
        plateau = Plateau.start(point, PATIENCE)
        memory = OrthantMemory(History(self.history), plateau, penalty, point.smooth_gradient)
        return State.start(point, memory)

    def step(self, problem: Problem, state: State) -> State:
        """Take one iteration; if the pairs mislead the search, try again without them."""
        for history in attempts(state.memory.history):
            ray = _projected_ray(problem, state, _direction(state, history))
            trial = self.search(ray) if ray.start.slope < 0.0 else None
            if trial is not None:
                return next_state(
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


def _evaluate(problem: Problem, penalty: L1, x: Array) -> PenalisedPoint:
    with quiet():
        value, gradient = problem(x)
        pseudo = penalty.pseudo_gradient(x, gradient)
        smooth, added, norm = fetch(
            value, penalty.value(x), max_norm(pseudo), also=(x, gradient, pseudo)
        )
    return PenalisedPoint(x, smooth + added, pseudo, norm, gradient)


def _direction(state: State, history: History) -> Direction:
    """The quasi-Newton direction, aligned with the orthant."""
    x, pseudo, penalty = state.x, state.gradient, state.memory.penalty
    with quiet():
        newton = history.inverse_hessian_times(pseudo, lambda v: penalty.movable(v, x, pseudo))
        d = penalty.align(-newton, x, pseudo)
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
            new = penalty.project(x + step_size * d, x, pseudo)
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
