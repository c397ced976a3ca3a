"""Non-linear conjugate gradients with guaranteed descent.

W. W. Hager, H. Zhang, A new conjugate gradient method with guaranteed descent and an efficient line
search, SIAM J. Optim. 16 (2005) 170-192, equation 1.6 for beta; W. W. Hager, H. Zhang, The limited
memory conjugate gradient method, SIAM J. Optim. 23 (2013) 2150-2168, equation 2.4 for its bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from optim.core.arrays import Array, fetch, max_norm, quiet, vdot
from optim.core.descent import Direction, next_state, straight_ray
from optim.core.problem import Problem
from optim.core.progress import Plateau
from optim.core.result import Outcome, State
from optim.core.solver import ToleranceSolver
from optim.line_search import Ray, Search, StrongWolfe, Trial

# The lower bound of beta is this part of the last direction's share in the steepest descent.
_ETA = 0.4


@dataclass(frozen=True)
class ConjugateMemory:
    """The last direction d, with the step size and slope there.

    beta    the factor of d in the next direction
    """

    plateau: Plateau
    direction: Array | None = None
    beta: float = 0.0
    step_size: float = 0.0
    slope: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ConjugateGradient(ToleranceSolver):
    """Non-linear conjugate gradients with guaranteed descent, for smooth objectives.

    Needs little memory: one vector beside x and its gradient.

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
    search : callable, default StrongWolfe(c2=0.2)
        Step-size search for steps of small slope: c2 is 0.1 to 0.4. If the values are noisy, such
        as sums in float32, ``HagerZhang(c2=0.2)`` reaches a lower gradient.

    See Also
    --------
    conjugate_gradient : Solve a linear system.
    LBFGS : Takes fewer evaluations, and more memory.

    Notes
    -----
    If the first trial is accepted, an iteration takes one evaluation. On distributed vectors it
    takes 2 requests per server, each with one pass over memory. Every further trial adds one of
    both.

    References
    ----------
    .. [1] W. W. Hager, H. Zhang, A new conjugate gradient method with guaranteed descent and an
       efficient line search, SIAM J. Optim. 16 (2005) 170-192, equation 1.6.
    .. [2] W. W. Hager, H. Zhang, The limited memory conjugate gradient method, SIAM J. Optim. 23
       (2013) 2150-2168, equation 2.4.

    Examples
    --------
    >>> a = np.array([1.0, 10.0, 100.0])
    >>> fun = lambda x: (0.5 * float(x @ (a * x)) - float(x.sum()), a * x - 1)
    >>> np.round(optim.ConjugateGradient().minimize(fun, np.zeros(3)).x, 6)
    array([1.  , 0.1 , 0.01])
    """

    search: Search = field(default_factory=lambda: StrongWolfe(c2=0.2))

    def init(self, problem: Problem, x: Array) -> State:
        """Evaluate the objective at the start."""
        point = problem.at(x)
        return State.start(point, ConjugateMemory(Plateau.start(point)))

    def step(self, problem: Problem, state: State) -> State:
        """Take one iteration; if the direction misleads the search, try the gradient."""
        memory: ConjugateMemory = state.memory
        for previous in (memory.direction, None) if memory.beta else (None,):
            direction, squared = _direction(state, previous)
            ray = straight_ray(problem, state, direction, measure=lambda x, g, y: (vdot(g, y),))
            trial = self.search(ray) if direction.slope < 0.0 else None
            if trial is not None:
                return next_state(
                    state,
                    ray,
                    trial,
                    direction=direction.vector,
                    beta=_beta(ray, trial, squared),
                    step_size=trial.step_size,
                    slope=direction.slope,
                )
        return replace(state, outcome=Outcome.STALLED)


def _direction(state: State, previous: Array | None) -> tuple[Direction, float]:
    """The direction -g + beta * previous, and its squared 2-norm."""
    x, g, memory = state.x, state.gradient, state.memory
    with quiet():
        d = -g if previous is None else memory.beta * previous - g
        slope, d_norm, x_norm, squared = fetch(
            vdot(d, g), max_norm(d), max_norm(x), vdot(d, d), also=(d,)
        )
    return Direction(d, slope, d_norm, x_norm, _first_step(memory, slope)), squared


def _first_step(memory: ConjugateMemory, slope: float) -> float:
    """The step size for the same first-order change as in the last iteration.

    Equation 3.60 of J. Nocedal, S. J. Wright, Numerical Optimization, 2nd edition (2006). At the
    start, a step of 2-norm 1.
    """
    if slope >= 0.0:
        return 1.0
    if memory.slope:
        return memory.step_size * memory.slope / slope
    return 1.0 / math.sqrt(-slope)


def _beta(ray: Ray, trial: Trial, squared: float) -> float:
    """Hager and Zhang's beta, bounded from below; 0 is a restart, for want of positive curvature.

    `squared` is the 2-norm of the direction, squared.
    """
    (gy,) = trial.measured
    dy = trial.slope - ray.start.slope
    if dy <= 0.0:
        return 0.0
    beta = (gy - 2.0 * trial.slope * trial.pair.yy / dy) / dy
    lower = _ETA * ray.start.slope / squared
    return max(beta, lower) if math.isfinite(beta) else 0.0
