"""Newton's method in a trust region, its equations solved by conjugate gradients.

C.-J. Lin, J. J. More, Newton's method for large bound-constrained optimization problems, SIAM J.
Optim. 9 (1999) 1100-1127: the radius by section 4; T. Steihaug, SIAM J. Numer. Anal. 20 (1983)
626-637: the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from optim.core.arrays import Array, fetch, machine_epsilon, max_norm, quiet, vdot
from optim.core.problem import Point, Problem
from optim.core.progress import Plateau, rounding_of
from optim.core.result import Outcome, State
from optim.core.solver import ToleranceSolver
from optim.core.trees import lift
from optim.newton.linear_systems import LinearOutcome, LinearResult, conjugate_gradient
from optim.objectives import difference_hessian

HessianProduct = Callable[[Array, Array], Array]

# A step is taken if it gains this part of what the model foretold.
_ACCEPTED = 1e-4


@dataclass(frozen=True)
class NewtonMemory:
    """The radius of the trust region in the 2-norm, and how long nothing has improved.

    differentiated  whether the array library has differentiated fun
    """

    radius: float
    plateau: Plateau
    differentiated: bool = False


@dataclass(frozen=True, kw_only=True)
class TruncatedNewton(ToleranceSolver):
    """Newton's method for smooth objectives, convex or not, with products with the Hessian only.

    hessp                 hessp(x, v) -> Hessian at x times v; None: differences of gradients, an
                          evaluation of the objective each, or what the array library finds where
                          it differentiates the objective, which then returns values alone
    max_inner_iterations  products for one step at most

    An iteration costs two messages on lazy arrays, one for each product with the Hessian, one where
    the step ends at the region's boundary, and one with an evaluation for each shorter step.
    Memory: four vectors beside x and gradient.
    """

    hessp: HessianProduct | None = None
    max_inner_iterations: int = 200

    def init(self, problem: Problem, x: Array) -> State:
        """Evaluate at the start; the first region reaches as far as the gradient."""
        point = problem.at(x)
        with quiet():
            (squared,) = fetch(vdot(point.gradient, point.gradient))
        by_library = problem.hessp is not None
        memory = NewtonMemory(math.sqrt(squared), Plateau.start(point), by_library)
        return State.start(point, memory)

    def step(self, problem: Problem, state: State) -> State:
        """One iteration: Newton's step in the region, and shorter ones until one gains enough.

        After a step that gains too little, its direction is kept: J. Nocedal, Y. Yuan, Combining
        trust region and line search techniques, in: Advances in Nonlinear Programming (1998).
        """
        epsilon, radius = machine_epsilon(state.x), state.memory.radius
        if state.memory.differentiated:
            problem.differentiated(state.x)
        if not radius > 0.0:  # the square of the gradient underflows
            return replace(state, outcome=Outcome.STALLED)
        with quiet():
            solved = self._solve(problem, state, radius)
        first = trial = _try_step(problem, state, solved, 1.0)
        # Where a step gains less than can be seen, any is as good; but a step that only the region
        # has made so short has no such excuse.
        rounding = rounding_of(state.value, epsilon)
        slack = rounding if _ACCEPTED * first.foretold <= rounding else 0.0
        if not slack + first.foretold > 0.0:
            return replace(state, outcome=Outcome.STALLED)
        while True:
            # The radius at the start is but a guess: no step so far tells a scale.
            known = radius if state.iteration else min(radius, trial.length)
            radius = _radius(known, trial, slack)
            if trial.ratio(slack) > _ACCEPTED:
                return _next_state(state, trial, radius, first.foretold)
            if problem.remaining < 1 or trial.length <= epsilon * trial.x_norm:
                return replace(state, outcome=Outcome.STALLED)
            trial = _try_step(problem, state, solved, radius / first.length)

    def _solve(self, problem: Problem, state: State, radius: float) -> LinearResult:
        """Newton's equations for the step, as exactly as the progress so far is worth."""
        progress = math.sqrt(state.gradient_norm / state.initial_gradient_norm)
        allowed = self.max_inner_iterations
        if self.hessp is None and problem.hessp is None:  # the trial itself needs an evaluation too
            allowed = int(min(allowed, problem.remaining - 1))
        solved = conjugate_gradient(
            self._hessian(problem, state),
            -state.gradient,
            rtol=min(0.1, progress),
            max_norm=radius,
            max_iterations=allowed,
        )
        if solved.iterations > (solved.outcome is LinearOutcome.BREAKDOWN):
            return solved
        if not solved.residual_norm > 0.0:
            return solved
        # No product could be had, or none that is finite: what is left is the gradient.
        return replace(solved, x=(radius / solved.residual_norm) * solved.residual)

    def _hessian(self, problem: Problem, state: State) -> Callable[[Array], Array]:
        x = state.x
        hessp = problem.hessp if self.hessp is None else lift(self.hessp, "hessp(x, v)")
        if hessp is None:
            return difference_hessian(problem.gradient, x, state.gradient)
        return lambda v: hessp(x, v)


def _try_step(
    problem: Problem, state: State, solved: LinearResult, step_size: float
) -> RegionTrial:
    """The objective at x + step_size * s, for the solution s of Newton's equations."""
    x, g, s = state.x, state.gradient, solved.x
    with quiet():
        new = x + step_size * s
        value, gradient = problem(new)
        number, norm, slope, bend, squared, max_change, x_norm = fetch(
            value,
            max_norm(gradient),
            vdot(s, g),
            -vdot(s, solved.residual + g),  # s.H s, as the residual is -g - H s
            vdot(s, s),
            max_norm(s),
            max_norm(x),
            also=(new, gradient),
        )
    return RegionTrial(
        step_size,
        point=Point(new, number, gradient, norm),
        change=number - state.value,
        slope=step_size * slope,
        foretold=-step_size * (slope + 0.5 * step_size * bend),
        length=step_size * math.sqrt(squared),
        max_change=step_size * max_change,
        x_norm=x_norm,
    )


@dataclass(frozen=True)
class RegionTrial:
    """An evaluated step: `step_size` times Newton's, of 2-norm `length`, max norm `max_change`.

    change      of the value
    slope       step @ gradient
    foretold    what the quadratic model gains, positive
    """

    step_size: float
    point: Point
    change: float
    slope: float
    foretold: float
    length: float
    max_change: float
    x_norm: float

    def ratio(self, slack: float) -> float:
        """Gain by gain foretold; 1 where both are lost in the slack; -inf where not finite.

        A. R. Conn, N. I. M. Gould, Ph. L. Toint, Trust-Region Methods (2000), section 17.4.2.
        """
        if not self.point.finite:
            return -math.inf
        return (slack - self.change) / (slack + self.foretold)


def _radius(radius: float, trial: RegionTrial, slack: float) -> float:
    """The next radius: about the length that minimises the parabola through what is known."""
    if not trial.point.finite:
        return 0.1 * trial.length
    excess, length, ratio = trial.change - trial.slope, trial.length, trial.ratio(slack)
    wanted = max(0.25, -0.5 * trial.slope / excess) if excess > 0.0 else 4.0
    if ratio <= _ACCEPTED:
        return min(wanted * length, 0.5 * radius)
    if ratio < 0.25:
        return max(0.25 * radius, min(wanted * length, 0.5 * radius))
    if ratio < 0.75:
        return max(0.25 * radius, min(wanted * length, 4.0 * radius))
    return max(radius, min(wanted * length, 4.0 * radius))


def _next_state(state: State, trial: RegionTrial, radius: float, foretold: float) -> State:
    """The state after `trial`; `foretold` is what the first region tried promised to gain."""
    rounding = rounding_of(state.value, machine_epsilon(state.x))
    plateau = state.memory.plateau.update(trial.point, rounding)
    moved = state.moved(
        trial.point,
        memory=replace(state.memory, radius=radius, plateau=plateau),
        step_size=trial.step_size,
        step_length=trial.max_change / max(trial.x_norm, 1.0),
        gain=max(-trial.change, 0.5 * foretold),
    )
    return replace(moved, outcome=Outcome.STALLED) if plateau.has_stalled else moved
