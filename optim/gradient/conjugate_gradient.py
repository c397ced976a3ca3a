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

# The bound of beta from below: this part of the last direction's share in the steepest descent.
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
    """Conjugate gradients for smooth objectives: little memory, one vector beside x and gradient.

    search      the step-size search, for steps of small slope: c2 is 0.1 to 0.4. Where the values
                are noisy, as sums in float32 are, HagerZhang(c2=0.2) gets further

    Cost of an iteration whose first trial step is accepted: one evaluation of the objective and two
    messages on lazy arrays; each further trial costs one of both.
    """

    search: Search = field(default_factory=lambda: StrongWolfe(c2=0.2))

    def init(self, problem: Problem, x: Array) -> State:
        """Evaluate at the start."""
        point = problem.at(x)
        return State.start(point, ConjugateMemory(Plateau.start(point)))

    def step(self, problem: Problem, state: State) -> State:
        """One iteration; if the direction misleads the search, another along the gradient."""
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
