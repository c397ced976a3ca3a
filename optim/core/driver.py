"""The two ways to run a solver: lazily, or to the end with callbacks, progress and a result."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

from optim.core.arrays import Array, machine_epsilon
from optim.core.checkpoints.policy import Checkpoints
from optim.core.loop import Loop, Method
from optim.core.outcome import Outcome
from optim.core.plateau import rounding_of
from optim.core.problem import Problem
from optim.core.result import Result
from optim.core.state import State
from optim.core.trees import arranged

# Terms of a value that cancel leave a few times the rounding of the value itself.
_CANCELLED = 4.0

Callback: TypeAlias = Callable[[State], Any]
Progress: TypeAlias = bool | Callable[[State], Any]


def states(
    solver: Method,
    problem: Problem,
    start: Array | State,
    checkpoints: Checkpoints | None = None,
    *,
    resume: bool = False,
) -> Iterator[State]:
    """Run `solver` lazily; ends after the first state with an outcome.

    States are as users see them.
    """
    loop = Loop(solver, problem, start, checkpoints, resume=resume)
    with _closing(checkpoints):
        for state in loop.states():
            yield _as_seen(problem, state)


@contextmanager
def _closing(checkpoints: Checkpoints | None) -> Iterator[None]:
    """Wait for the last checkpoint, however the run ends."""
    try:
        yield
    finally:
        if checkpoints is not None:
            checkpoints.keeper.close()


def _as_seen(problem: Problem, state: State) -> State:
    """`state` with x and gradient in the user's structure."""
    if not problem.structured:
        return state
    return replace(state, x=arranged(state.x), gradient=arranged(state.gradient))


def run(
    solver: Method,
    problem: Problem,
    start: Array | State,
    callback: Callback | None = None,
    progress: Progress = False,
    checkpoints: Checkpoints | None = None,
    *,
    resume: bool = False,
) -> Result:
    """Run `solver` to its end and return the best point."""
    loop = Loop(solver, problem, start, checkpoints, resume=resume)
    with _closing(checkpoints):
        with _shown(progress, solver.max_iterations) as show:
            _watched(loop, callback, show)
        return loop.survived(lambda: _result(loop))


def _watched(loop: Loop, callback: Callback | None, show: Callable[[State], Any]) -> None:
    """Run the loop to its end; the callback sees each new state but the first, and may stop it."""
    reported: int | None = None
    for state in loop.states():
        if state.iteration == reported:
            continue  # the same point again, now with the reason why no step could be made
        seen = _as_seen(loop.problem, state)
        try:
            show(seen)
            stop = reported is not None and _wants_stop(callback, seen)
        except Exception as error:
            if not loop.recovers(error):
                raise
            continue
        reported = state.iteration
        loop.stopped = stop and state.outcome is None


def _result(loop: Loop) -> Result:
    """Of a loop that has come to its end."""
    solver, problem, last, best = loop.solver, loop.problem, loop.last, loop.best
    if last is None or best is None:
        raise RuntimeError("a loop that has not come to its end has no result")
    outcome = last.outcome or Outcome.STOPPED_BY_CALLBACK  # the only way out without one
    if outcome in (Outcome.CONVERGED_GRADIENT, Outcome.CONVERGED_PRECISION):
        if _equal(last, best):
            best = last
        elif not solver.done(_ended(best, outcome)):
            # The values are so noisy that the stationary point is not the lowest seen.
            outcome = Outcome.STALLED
    chosen = _as_seen(problem, solver.finish(problem, best, last))
    return Result.of(chosen, last, outcome, problem.evaluations, loop.history)


def _ended(state: State, outcome: Outcome) -> State:
    """`state` with the stall that the outcome has been made of, if it has."""
    stalled = outcome is Outcome.CONVERGED_PRECISION
    return replace(state, outcome=Outcome.STALLED if stalled else None)


def _equal(state: State, other: State) -> bool:
    """Whether the values are the same up to the rounding of x's dtype and of terms that cancel."""
    rounding = rounding_of(other.value, machine_epsilon(other.x))
    return abs(state.value - other.value) <= _CANCELLED * rounding


def _wants_stop(callback: Callback | None, state: State) -> bool:
    if callback is None:
        return False
    try:
        return callback(state) is True
    except StopIteration:
        return True


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
