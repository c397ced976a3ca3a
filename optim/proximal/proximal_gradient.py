"""Proximal gradients, accelerated, with backtracking and restarts.

A. Beck, M. Teboulle, SIAM J. Imaging Sci. 2 (2009) 183-202, FISTA with backtracking; B. O'Donoghue,
E. Candes, Found. Comput. Math. 15 (2015) 715-732, when to restart it (by the gradient); S. R.
Becker, E. J. Candes, M. C. Grant, Math. Prog. Comp. 3 (2011) 165-218, steps that grow again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from optim.core.arrays import Array, Scalar, fetch, machine_epsilon, max_norm, quiet, vdot
from optim.core.problem import Point, Problem
from optim.core.progress import Plateau, residual_is_hidden, rounding_of
from optim.core.result import Outcome, State
from optim.core.solver import ToleranceSolver
from optim.proximal.operators import Proximal
from optim.proximal.separable import adopt_proximal

# The most trials of one iteration: enough for a first step that is too long by many orders.
_MAX_TRIALS = 40
# The factor by which a step may grow if no momentum depends on it.
_FRESH_GROWTH = 10.0


@dataclass(frozen=True)
class ProximalMemory:
    """The memory of `ProximalGradient` beside x.

    smooth          fun(x), without the penalty
    previous        the x before
    momentum        t_k of FISTA: 1 at the start and after a restart
    extrapolation   how far to go beyond x, in parts of x - previous
    step_size       to try first
    x_norm          the max norm of x; 0 at the start
    """

    plateau: Plateau
    smooth: float
    previous: Array
    step_size: float
    momentum: float = 1.0
    extrapolation: float = 0.0
    x_norm: float = 0.0


@dataclass(frozen=True)
class ProximalTrial(Point):
    """prox(y - step_size * gradient, step_size), evaluated.

    smooth      fun there, without the penalty
    curvature   of fun along the way from y
    backwards   (y - z) @ (z - x): positive if the extrapolation leads astray
    moved, length, x_norm  2-norm squared and max norm of z - x, and the max norm of z
    """

    smooth: float
    step_size: float
    curvature: float
    backwards: float
    moved: float
    length: float
    x_norm: float

    @property
    def is_majorized(self) -> bool:
        """Whether the quadratic model of curvature 1 / step_size lies above fun here."""
        return self.finite and self.curvature * self.step_size <= 1.0


@dataclass(frozen=True, kw_only=True)
class ProximalGradient(ToleranceSolver):
    """Minimise ``fun(x) + penalty(x)``: fun smooth, the penalty by its proximal operator (FISTA).

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
    penalty : Proximal or structure
        For instance ``L1Norm(0.1)``, ``GroupLasso(labels, 8)`` or ``Box(0.0, 1.0)``. If x is a
        structure of arrays, each may have its own, or ``None``: ``{"w": L1Norm(0.1), "V": None}``.
    accelerated : bool, default True
        Extrapolate along the last step. This costs a second evaluation in each iteration, but saves
        many iterations. False: the plain method.
    growth : float, default 1.05
        Factor by which the step size may grow from one accelerated iteration to the next, at
        least 1.

    See Also
    --------
    OWLQN : For l1 penalties, with curvature from gradients.
    ADMM : For sums of several terms.

    Notes
    -----
    A start outside the penalty's domain is projected first. Extrapolated points, at which ``fun``
    is evaluated too, may lie outside. Values include the penalty and do not rise by more than
    rounding. The gradient tolerances apply to the generalised gradient
    ``x - prox(x - gradient, 1)``, which vanishes at a minimum. ``jac`` of the result is the
    gradient of ``fun``. On distributed vectors each evaluation takes one request per server, with
    one pass over memory. A proximal operator that reads numbers takes its own requests, twice for
    each trial.

    References
    ----------
    .. [1] A. Beck, M. Teboulle, A fast iterative shrinkage-thresholding algorithm for linear
       inverse problems, SIAM J. Imaging Sci. 2 (2009) 183-202.
    .. [2] B. O'Donoghue, E. Candes, Adaptive restart for accelerated gradient schemes, Found.
       Comput. Math. 15 (2015) 715-732.
    .. [3] S. R. Becker, E. J. Candes, M. C. Grant, Templates for convex cone problems with
       applications to sparse signal recovery, Math. Prog. Comp. 3 (2011) 165-218.

    Examples
    --------
    >>> fun = lambda x: (0.5 * float((x - 3) @ (x - 3)), x - 3)
    >>> penalty = optim.L1Norm(np.array([1.0, 5.0]))
    >>> np.round(optim.ProximalGradient(penalty=penalty).minimize(fun, np.zeros(2)).x, 6)
    array([2., 0.])
    """

    penalty: Proximal
    accelerated: bool = True
    growth: float = 1.05

    def __post_init__(self) -> None:
        super().__post_init__()
        adopt_proximal(self, "penalty")
        if not self.growth >= 1.0:
            raise ValueError(
                f"ProximalGradient(growth={self.growth!r}): must be 1 or more; with 1.0 step "
                "sizes do not grow"
            )

    def init(self, problem: Problem, x: Array) -> State:
        """Move the start into the domain of the penalty and evaluate the objective there."""
        with quiet():
            x = self.penalty.feasible(x)
            value, gradient = problem(x)
            smooth, added, norm, squared = fetch(
                value,
                self.penalty.value(x),
                self._residual(x, gradient),
                vdot(gradient, gradient),
                also=(x, gradient),
            )
        point = Point(x, smooth + added, gradient, norm)
        first = 1.0 / math.sqrt(squared) if squared > 0.0 else 1.0
        return State.start(point, ProximalMemory(Plateau.start(point), smooth, x, first))

    def step(self, problem: Problem, state: State) -> State:
        """Take one iteration; if the extrapolated point misleads, try again from x."""
        rounding = rounding_of(state.value, machine_epsilon(state.x))
        for base in self._bases(problem, state):
            trial = self._backtrack(problem, state, base, rounding)
            if trial is not None and trial.value <= state.value + rounding:
                astray = trial.backwards > 0.0 or (state.memory.extrapolation and base.x is state.x)
                return self._next_state(state, trial, rounding, restart=bool(astray))
        return replace(state, outcome=Outcome.STALLED)

    def _bases(self, problem: Problem, state: State) -> Iterator[Point]:
        """The points at which a linear model replaces fun; values are without the penalty."""
        x, memory = state.x, state.memory
        if memory.extrapolation and problem.remaining >= 1:
            with quiet():
                y = x + memory.extrapolation * (x - memory.previous)
            extrapolated = problem.at(y)
            if extrapolated.finite:
                yield extrapolated
        yield Point(x, memory.smooth, state.gradient, state.gradient_norm)

    def _backtrack(
        self, problem: Problem, state: State, base: Point, rounding: float
    ) -> ProximalTrial | None:
        """The first step size whose quadratic model lies above fun, or None."""
        step_size = state.memory.step_size
        for _ in range(int(min(_MAX_TRIALS, problem.remaining))):
            trial = self._trial(problem, state.x, base, step_size, rounding)
            if trial.is_majorized:
                return trial
            # If fun is not finite, its curvature has no meaning.
            fitting = 0.9 / trial.curvature if trial.finite else 0.0
            step_size = min(max(fitting, 0.1 * step_size), 0.5 * step_size)
        return None

    def _trial(
        self, problem: Problem, x: Array, base: Point, step_size: float, rounding: float
    ) -> ProximalTrial:
        """One step from `base`; one request reads all numbers that it is judged by."""
        with quiet():
            new = self.penalty.prox(base.x - step_size * base.gradient, step_size)
            smooth, gradient = problem(new)
            d, moved = new - base.x, new - x
            value, added, norm, foretold, squared, bent, backwards, distance, length, x_norm = (
                fetch(
                    smooth,
                    self.penalty.value(new),
                    self._residual(new, gradient),
                    vdot(base.gradient, d),
                    vdot(d, d),
                    vdot(gradient - base.gradient, d),
                    -vdot(d, moved),
                    vdot(moved, moved),
                    max_norm(moved),
                    max_norm(new),
                    also=(new, gradient),
                )
            )
        if squared > 2.0 * step_size * rounding:
            bent = 2.0 * (value - base.value - foretold)
        # If the values differ by less than their rounding, the gradients give the curvature.
        return ProximalTrial(
            new,
            value + added,
            gradient,
            norm,
            smooth=value,
            step_size=step_size,
            curvature=bent / squared if squared > 0.0 else 0.0,
            backwards=backwards,
            moved=distance,
            length=length,
            x_norm=x_norm,
        )

    def _next_state(
        self, state: State, trial: ProximalTrial, rounding: float, *, restart: bool
    ) -> State:
        memory: ProximalMemory = state.memory
        step_size = self._next_step(trial, fresh=restart or not memory.extrapolation)
        old = 1.0 if restart else memory.momentum
        momentum = 0.5 + math.sqrt(0.25 + old * old * trial.step_size / step_size)
        plateau = memory.plateau.update(trial, rounding)
        after = state.moved(
            trial,
            memory=ProximalMemory(
                plateau=plateau,
                smooth=trial.smooth,
                previous=state.x,
                step_size=step_size,
                momentum=momentum,
                extrapolation=(old - 1.0) / momentum if self.accelerated else 0.0,
                x_norm=trial.x_norm,
            ),
            step_size=trial.step_size,
            step_length=trial.length / max(trial.x_norm, 1.0),
            gain=max(state.value - trial.value, 0.5 * trial.moved / trial.step_size),
        )
        return replace(after, outcome=Outcome.STALLED) if plateau.has_stalled else after

    def _next_step(self, trial: ProximalTrial, *, fresh: bool) -> float:
        """As long as the curvature allows; growing slowly unless momentum starts afresh."""
        allowed = 0.9 / trial.curvature if trial.curvature > 0.0 else math.inf
        growth = _FRESH_GROWTH if fresh else self.growth
        return max(trial.step_size, min(growth * trial.step_size, allowed))

    def done(self, state: State) -> Outcome | None:
        """Test the tolerances, but not a residual that is 0 by rounding alone."""
        met = super().done(state)
        if met is Outcome.CONVERGED_GRADIENT and residual_is_hidden(
            state, state.memory.x_norm, self.penalty.prox
        ):
            return None
        return met

    def _residual(self, x: Array, gradient: Array) -> Scalar:
        return max_norm(x - self.penalty.prox(x - gradient, 1.0))
