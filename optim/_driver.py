"""The one loop: iteration, limits, finite check, callbacks, progress, best point."""

from __future__ import annotations

import importlib
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from scipy.optimize import OptimizeResult

from ._arrays import Array, as_start, machine_epsilon
from ._outcome import Outcome
from ._plateau import rounding_of
from ._problem import Problem
from ._state import State

if TYPE_CHECKING:
    from ._solver import Solver

Callback: TypeAlias = Callable[[State], Any]
Progress: TypeAlias = bool | Callable[[State], Any]


@dataclass(frozen=True)
class Record:
    """One line of a run's history."""

    value: float
    gradient_norm: float
    step_size: float
    evaluations: int
    seconds: float


class Records(list[Record]):
    """The records of a run, the start first; prints as their number."""

    def __repr__(self) -> str:
        return f"<{len(self)} records of value, gradient_norm, step_size, evaluations, seconds>"


def states(solver: Solver, problem: Problem, x0: Array) -> Iterator[State]:
    """Run `solver` lazily; ends after the first state with an outcome."""
    begin = time.perf_counter()
    state = solver.init(problem, as_start(x0))
    while True:
        state = replace(state, evaluations=problem.evaluations, seconds=time.perf_counter() - begin)
        state = replace(state, outcome=_outcome(solver, problem, state))
        yield state
        if state.outcome is not None:
            return
        state = solver.step(problem, state)


def _outcome(solver: Solver, problem: Problem, state: State) -> Outcome | None:
    """Why to stop at `state`, if at all. A stall for want of evaluations is a limit."""
    if not (math.isfinite(state.value) and math.isfinite(state.gradient_norm)):
        return Outcome.NOT_FINITE if state.iteration else Outcome.NOT_FINITE_AT_START
    limits = (
        (problem.remaining < 1, Outcome.LIMIT_EVALUATIONS),
        (state.outcome is not None, state.outcome),
        (state.iteration >= solver.max_iterations, Outcome.LIMIT_ITERATIONS),
        (_over(state.seconds, solver.max_seconds), Outcome.LIMIT_TIME),
    )
    reached = (outcome for holds, outcome in limits if holds)
    return solver.done(state) or next(reached, None)


def _over(seconds: float, limit: float | None) -> bool:
    return limit is not None and seconds >= limit


def run(
    solver: Solver,
    problem: Problem,
    x0: Array,
    callback: Callback | None = None,
    progress: Progress = False,
) -> OptimizeResult:
    """Run `solver` to its end and return the best point."""
    history = Records()
    best: State | None = None
    with _shown(progress, solver.max_iterations) as show:
        for last in states(solver, problem, x0):
            if last.iteration < len(history):
                break  # the same point again, now with the reason why no step could be made
            show(last)
            history.append(_record(last))
            best = last if best is None or _better(last, best) else best
            stop = last.iteration > 0 and _wants_stop(callback, last)
            if stop and last.outcome is None:
                break
    outcome = last.outcome or Outcome.STOPPED_BY_CALLBACK  # the only way out without one
    best = best or last
    if outcome is Outcome.CONVERGED_GRADIENT:
        if _equal(last, best):
            best = last
        elif solver.done(best) is not outcome:
            # The values are so noisy that the stationary point is not the lowest seen.
            outcome = Outcome.STALLED
    return _result(solver.finish(problem, best, last), last, outcome, problem, history)


def _better(state: State, best: State) -> bool:
    """Not above the best value, and finite."""
    return state.value <= best.value and state.outcome is not Outcome.NOT_FINITE


def _equal(state: State, other: State) -> bool:
    """Whether the values are the same up to the rounding of x's dtype."""
    return abs(state.value - other.value) <= rounding_of(other.value, machine_epsilon(other.x))


def _record(state: State) -> Record:
    return Record(
        state.value, state.gradient_norm, state.step_size, state.evaluations, state.seconds
    )


def _wants_stop(callback: Callback | None, state: State) -> bool:
    if callback is None:
        return False
    try:
        return callback(state) is True
    except StopIteration:
        return True


def _result(
    chosen: State, last: State, outcome: Outcome, problem: Problem, history: Records
) -> OptimizeResult:
    fields: dict[str, Any] = {
        "x": chosen.x,
        "fun": chosen.value,
        "jac": chosen.gradient,
        "nit": last.iteration,
        "nfev": problem.evaluations,
        "njev": problem.evaluations,
        "status": outcome.value,
        "success": outcome.success,
        "message": outcome.sentence,
        "outcome": outcome,
        "history": history,
    }
    result = OptimizeResult()
    result.update(fields)
    return result


@contextmanager
def _shown(progress: Progress, total: int) -> Iterator[Callable[[State], Any]]:
    """A function that shows a state."""
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda state: None
    else:
        try:
            tqdm = importlib.import_module("tqdm").tqdm
        except ImportError:
            warnings.warn("progress=True needs tqdm: pip install tqdm", stacklevel=4)
            yield lambda state: None
            return
        with tqdm(total=total, unit="iteration", file=sys.stderr) as bar:

            def show(state: State) -> None:
                bar.set_postfix(value=state.value, gradient=state.gradient_norm, refresh=False)
                bar.update(state.iteration - bar.n)

            yield show
