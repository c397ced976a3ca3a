"""The one loop: iteration, limits, finite check, callbacks, progress, best point."""

from __future__ import annotations

import importlib
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from optim.core.arrays import Array, machine_epsilon
from optim.core.boundary import as_start
from optim.core.outcome import Outcome
from optim.core.plateau import rounding_of
from optim.core.problem import Problem
from optim.core.result import Records, Result, record_of
from optim.core.state import State
from optim.core.trees import arranged, as_tree

# A fall of the value by so many times the value and the gradient at the start, and 1: about the
# inverse of the precision, squared. No minimum that is so far away could be found.
_DEPTH = 1e30

# Terms of a value that cancel leave a few times the rounding of the value itself.
_CANCELLED = 4.0

Callback: TypeAlias = Callable[[State], Any]
Progress: TypeAlias = bool | Callable[[State], Any]


class Method(Protocol):
    """What the loop needs of a solver: see `Solver`."""

    @property
    def max_iterations(self) -> int: ...
    @property
    def max_seconds(self) -> float | None: ...
    def init(self, problem: Problem, x: Array) -> State: ...
    def step(self, problem: Problem, state: State) -> State: ...
    def done(self, state: State) -> Outcome | None: ...
    def finish(self, problem: Problem, best: State, last: State) -> State: ...


def states(solver: Method, problem: Problem, start: Array | State) -> Iterator[State]:
    """Run `solver` lazily; ends after the first state with an outcome.

    States are as users see them.
    """
    return (_as_seen(problem, state) for state in _states(solver, problem, start))


def _as_seen(problem: Problem, state: State) -> State:
    """`state` with x and gradient in the user's structure."""
    if not problem.structured:
        return state
    return replace(state, x=arranged(state.x), gradient=arranged(state.gradient))


def _states(solver: Method, problem: Problem, start: Array | State) -> Iterator[State]:
    """As solvers see them.

    From a state, the run goes on as if it had never been interrupted: the same steps bit for bit,
    and iterations, evaluations and seconds count from the run's first start.
    """
    begin = time.perf_counter()
    state = _begun(solver, problem, start)
    begin -= state.seconds
    while True:
        state = replace(state, evaluations=problem.evaluations, seconds=time.perf_counter() - begin)
        state = replace(state, outcome=_outcome(solver, problem, state))
        yield state
        if state.outcome is not None:
            return
        state = solver.step(problem, state)


def _begun(solver: Method, problem: Problem, start: Array | State) -> State:
    name = type(solver).__name__
    if not isinstance(start, State):
        return replace(solver.init(problem, as_start(start)), solver=name)
    if start.solver != name:
        raise ValueError(
            f"resume: the state was made by {start.solver}, so {name} cannot go on from it; resume "
            f"it with {start.solver}(...), or start {name} at state.x"
        )
    problem.evaluations += start.evaluations
    return replace(start, x=as_tree(start.x), gradient=as_tree(start.gradient), outcome=None)


def _outcome(solver: Method, problem: Problem, state: State) -> Outcome | None:
    """Why to stop at `state`, if at all. A stall for want of evaluations is a limit."""
    if state.iteration and _bottomless(state):
        return Outcome.UNBOUNDED
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


def _bottomless(state: State) -> bool:
    """Whether the values have fallen by more than distances and precision account for."""
    scale = max(1.0, abs(state.initial_value), state.initial_gradient_norm)
    return state.initial_value - state.value > _DEPTH * scale


def _over(seconds: float, limit: float | None) -> bool:
    return limit is not None and seconds >= limit


def run(
    solver: Method,
    problem: Problem,
    start: Array | State,
    callback: Callback | None = None,
    progress: Progress = False,
) -> Result:
    """Run `solver` to its end and return the best point."""
    history = Records()
    best: State | None = None
    reached: int | None = None
    with _shown(progress, solver.max_iterations) as show:
        for last in _states(solver, problem, start):
            if last.iteration == reached:
                break  # the same point again, now with the reason why no step could be made
            seen = _as_seen(problem, last)
            show(seen)
            history.append(record_of(last))
            best = last if best is None or _better(last, best) else best
            stop = reached is not None and _wants_stop(callback, seen)
            reached = last.iteration
            if stop and last.outcome is None:
                break
    outcome = last.outcome or Outcome.STOPPED_BY_CALLBACK  # the only way out without one
    best = best or last
    if outcome in (Outcome.CONVERGED_GRADIENT, Outcome.CONVERGED_PRECISION):
        if _equal(last, best):
            best = last
        elif not solver.done(_ended(best, outcome)):
            # The values are so noisy that the stationary point is not the lowest seen.
            outcome = Outcome.STALLED
    chosen = _as_seen(problem, solver.finish(problem, best, last))
    return Result.of(chosen, last, outcome, problem.evaluations, history)


def _better(state: State, best: State) -> bool:
    """Not above the best value, and finite."""
    return state.value <= best.value and state.outcome is not Outcome.NOT_FINITE


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
