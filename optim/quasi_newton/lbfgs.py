"""L-BFGS: D. C. Liu, J. Nocedal, Mathematical Programming 45 (1989) 503-528."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from optim.core.arrays import Array, fetch, max_norm, quiet, vdot
from optim.core.descent import Direction, next_state, straight_ray
from optim.core.problem import Problem
from optim.core.progress import Plateau
from optim.core.result import Outcome, State
from optim.core.solver import ToleranceSolver
from optim.line_search import Search, StrongWolfe
from optim.quasi_newton.history import PATIENCE, CurvatureMemory, History, attempts, first_step


@dataclass(frozen=True, kw_only=True)
class LBFGS(ToleranceSolver):
    """Limited-memory BFGS for smooth objectives.

    history     pairs kept: 2 * history vectors of memory
    search      the step-size search

    Cost of an iteration whose first trial step is accepted: one evaluation of the objective and two
    messages on lazy arrays, one that reads what the trial is worth and one for the direction.
    """

    history: int = 10
    search: Search = field(default_factory=StrongWolfe)

    def init(self, problem: Problem, x: Array) -> State:
        """Evaluate at the start."""
        point = problem.at(x)
        return State.start(
            point, CurvatureMemory(History(self.history), Plateau.start(point, PATIENCE))
        )

    def step(self, problem: Problem, state: State) -> State:
        """One iteration; if the pairs mislead the search, another attempt without them."""
        for history in attempts(state.memory.history):
            ray = straight_ray(problem, state, _direction(state, history))
            trial = self.search(ray) if ray.start.slope < 0.0 else None
            if trial is not None:
                return next_state(state, ray, trial, history=history.push(trial.pair, ray.epsilon))
        return replace(state, outcome=Outcome.STALLED)


def _direction(state: State, history: History) -> Direction:
    """The quasi-Newton direction."""
    x, g = state.x, state.gradient
    with quiet():
        d = -history.inverse_hessian_times(g)
        # The newest pair is materialised together with the direction, in the same message.
        also = (d, *history.newest)
        slope, d_norm, x_norm = fetch(vdot(d, g), max_norm(d), max_norm(x), also=also)
    first = first_step(slope, history, state.memory.history, state.step_size)
    return Direction(d, slope, d_norm, x_norm, first)
