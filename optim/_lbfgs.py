"""L-BFGS: D. C. Liu, J. Nocedal, Mathematical Programming 45 (1989) 503-528."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ._arrays import Array, fetch, machine_epsilon, max_norm, quiet
from ._history import History, Pair
from ._line_search import Ray, Sample, Search, StrongWolfe, Trial
from ._outcome import Outcome
from ._plateau import Plateau, rounding_of
from ._problem import Point, Problem
from ._quasi_newton import Memory, advanced, first_step
from ._solver import ToleranceSolver
from ._state import State


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
        return State.start(point, Memory(History(self.history), Plateau.start(point)))

    def step(self, problem: Problem, state: State) -> State:
        """One iteration; if the pairs mislead the search, another attempt without them."""
        pairs = state.memory.history
        for history in (pairs, History(self.history)) if pairs else (pairs,):
            ray = _descent(problem, state, history)
            trial = self.search(ray) if ray.start.slope < 0.0 else None
            if trial is not None:
                return advanced(state, ray, trial, history)
        return replace(state, outcome=Outcome.STALLED)


def _descent(problem: Problem, state: State, history: History) -> Ray:
    """The objective along the quasi-Newton direction."""
    x, g = state.x, state.gradient
    with quiet():
        d = -history.inverse_hessian_times(g)
        # The newest pair is materialised together with the direction, in the same message.
        also = (d, *history.newest)
        slope, d_norm, x_norm = fetch(d @ g, max_norm(d), max_norm(x), also=also)

    def at(step_size: float) -> Trial:
        with quiet():
            new = x + step_size * d
            value, gradient = problem(new)
            s, y = new - x, gradient - g
            number, norm, new_slope, sy, yy = fetch(
                value, max_norm(gradient), gradient @ d, s @ y, y @ y, also=(new, gradient)
            )
        point = Point(new, number, gradient, norm)
        pair = Pair(s, y, sy, yy)
        return Trial(step_size, number, new_slope, step_size * slope, point, pair)

    epsilon = machine_epsilon(x)
    return Ray(
        start=Sample(0.0, state.value, slope),
        first=first_step(slope, history, state.memory.history),
        at=at,
        rounding=rounding_of(state.value, epsilon),
        x_norm=x_norm,
        d_norm=d_norm,
        epsilon=epsilon,
        budget=problem.remaining,
    )
