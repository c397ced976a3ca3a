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

# A step is taken if it gains this part of the gain that the model predicted.
_ACCEPTED = 1e-4


@dataclass(frozen=True)
class NewtonMemory:
    """The radius of the trust region in the 2-norm, and the number of iterations without progress.

    ``differentiated`` says whether the array library differentiates the objective.
    """

    radius: float
    plateau: Plateau
    differentiated: bool = False


@dataclass(frozen=True, kw_only=True)
class TruncatedNewton(ToleranceSolver):
    """Newton's method in a trust region, for smooth objectives, convex or not.

    It needs products with the Hessian, not the matrix. Use it for ill-conditioned problems.

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
    hessp : callable, optional
        ``hessp(x, v)`` returns the Hessian at x times v. Default: the products of the array library
        if it differentiates the objective, which then returns values alone; otherwise differences
        of gradients, one evaluation for each product.
    max_inner_iterations : int, default 200
        Largest number of products with the Hessian for one step.

    Notes
    -----
    Memory: four vectors beside x and its gradient. On distributed vectors an iteration takes about
    2 requests per server and 2 more for each product, or 5 for each product by differences of
    gradients. Every shorter step adds one evaluation and one request.

    References
    ----------
    .. [1] C.-J. Lin, J. J. More, Newton's method for large bound-constrained optimization
       problems, SIAM J. Optim. 9 (1999) 1100-1127, section 4.
    .. [2] T. Steihaug, The conjugate gradient method and trust regions in large scale
       optimization, SIAM J. Numer. Anal. 20 (1983) 626-637.
    .. [3] J. Nocedal, Y. Yuan, Combining trust region and line search techniques, in: Advances in
       Nonlinear Programming (1998).

    Examples
    --------
    >>> a = np.array([1.0, 1e3, 1e6])
    >>> fun = lambda x: (0.5 * float(x @ (a * x)) - float(x.sum()), a * x - 1)
    >>> result = optim.TruncatedNewton(hessp=lambda x, v: a * v).minimize(fun, np.zeros(3))
    >>> result.success, np.round(a * result.x, 6)
    (True, array([1., 1., 1.]))
    """

    hessp: HessianProduct | None = None
    max_inner_iterations: int = 200

    def init(self, problem: Problem, x: Array) -> State:
        """Evaluate the objective at the start; the first region reaches as far as the gradient."""
        point = problem.at(x)
        with quiet():
            (squared,) = fetch(vdot(point.gradient, point.gradient))
        by_library = problem.hessp is not None
        memory = NewtonMemory(math.sqrt(squared), Plateau.start(point), by_library)
        return State.start(point, memory)

    def step(self, problem: Problem, state: State) -> State:
        """Solve Newton's equations in the region, then try shorter steps until one gains enough."""
        epsilon, radius = machine_epsilon(state.x), state.memory.radius
        if state.memory.differentiated:
            problem.differentiated(state.x)
        if not radius > 0.0:  # The square of the gradient underflows.
            return replace(state, outcome=Outcome.STALLED)
        with quiet():
            solved = self._solve(problem, state, radius)
        first = trial = _try_step(problem, state, solved, 1.0)
        # If a step gains less than rounding shows, any step is as good. A step that only the region
        # made so short must gain nevertheless.
        rounding = rounding_of(state.value, epsilon)
        slack = rounding if _ACCEPTED * first.foretold <= rounding else 0.0
        if not slack + first.foretold > 0.0:
            return replace(state, outcome=Outcome.STALLED)
        while True:
            # The radius at the start is only a guess, because no step has shown a scale yet.
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
        if self.hessp is None and problem.hessp is None:  # The trial needs one as well.
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
        # There is no finite product, so the step goes along the gradient.
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
            -vdot(s, solved.residual + g),  # This is s.H s, because the residual is -g - H s.
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
    foretold    the gain of the quadratic model, positive
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
        """Gain by predicted gain; 1 if the slack hides both; -inf if the trial is not finite.

        A. R. Conn, N. I. M. Gould, Ph. L. Toint, Trust-Region Methods (2000), section 17.4.2.
        """
        if not self.point.finite:
            return -math.inf
        return (slack - self.change) / (slack + self.foretold)


def _radius(radius: float, trial: RegionTrial, slack: float) -> float:
    """The next radius: about the length that minimises the parabola through the known values."""
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
    """The state after `trial`; `foretold` is the gain predicted in the first region tried."""
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
