"""A run of a solver: the one loop, and the two ways to drive it, lazily or to the end.

The loop has iterations, limits, the finite check, the best point and checkpoints. One that lost
something goes back to its newest checkpoint and takes the same steps again, bit for bit; records
that were reported before are not reported again.
"""

from __future__ import annotations

import importlib
import itertools
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol, TypeAlias, TypeVar

from optim.core.arrays import Array, machine_epsilon, persist
from optim.core.checkpoints.keeper import NotDurable
from optim.core.checkpoints.policy import Checkpoints, Kept
from optim.core.problem import Problem
from optim.core.progress import rounding_of
from optim.core.result import Outcome, Records, Result, State, record_of
from optim.core.trees import as_tree, as_user_structure

T = TypeVar("T")

# The objective counts as unbounded if the value falls by more than this, relative to the value and
# the gradient at the start, and 1. It is about the inverse of the precision, squared: no solver can
# find a minimum that is so far away.
_DEPTH = 1e30
# So many losses in a row, without an iteration between them, raise the error.
_LOSSES = 5


class Method(Protocol):
    """The part of a solver that the loop needs: see `Solver`."""

    @property
    def max_iterations(self) -> int: ...
    @property
    def max_seconds(self) -> float | None: ...
    def init(self, problem: Problem, x: Array) -> State: ...
    def step(self, problem: Problem, state: State) -> State: ...
    def done(self, state: State) -> Outcome | None: ...
    def finish(self, problem: Problem, best: State, last: State) -> State: ...


_OBSERVERS: list[Callable[[int, State], Any]] = []
_RUNS = itertools.count(1)


@contextmanager
def observe(function: Callable[[int, State], Any]) -> Iterator[None]:
    """Call a function with each state of every run in this process, for as long as it is entered.

    Use it to log or draw runs that other code starts, such as the fits of estimators.

    Parameters
    ----------
    function : callable
        It is called with the number of the run in this process, 1 or more, and the state. Runs in
        other threads call it from there. Its exceptions end the run.

    Yields
    ------
    None

    Notes
    -----
    A run that goes back to a checkpoint repeats no state. The state keeps whole vectors: keep only
    its numbers.

    Examples
    --------
    >>> seen = []
    >>> with optim.observe(lambda run, state: seen.append(state.value)):
    ...     result = optim.minimize(lambda x: (float(x @ x), 2 * x), [3.0, 4.0])
    >>> seen[0], seen[-1] == result.fun
    (25.0, True)
    """
    _OBSERVERS.append(function)
    try:
        yield
    finally:
        _OBSERVERS.remove(function)


class Loop:
    """One run of `solver` from `start`, as solvers see states.

    A run from a state continues as if it had never been interrupted, with bitwise identical steps.
    Iterations, evaluations and seconds count from the run's first start.

    resume      whether to continue from the newest checkpoint instead of `start`, if there is one
    last        the newest state; None before the start and after a loss
    best        the best state so far
    history     a record of each iteration
    stopped     set by the caller of `states`: the newest state is to be the last
    """

    def __init__(
        self,
        solver: Method,
        problem: Problem,
        start: Array | State,
        checkpoints: Checkpoints | None = None,
        *,
        resume: bool = False,
    ) -> None:
        self.solver, self.problem = solver, problem
        self.last: State | None = None
        self.best: State | None = None
        self.history = Records()
        self.stopped = False
        self._start, self._calls = start, problem.calls
        self._checkpoints = checkpoints
        self._load = checkpoints.resumed if checkpoints is not None and resume else None
        self._made: State | None = None  # `last`, with the outcome that the solver set.
        self._is_kept = False  # Whether the newest checkpoint holds `last`.
        self._begin: float | None = None
        # The newest iterations that `best` has seen, that have a record, that were reported.
        self._counted = self._recorded = self._reported = -1
        self._ended = False  # Whether the last state was reported.
        self._losses = 0

    def states(self) -> Iterator[State]:
        """Each state once; ends after the first with an outcome, or when it was stopped.

        A stall gives the last iteration's state once more, with its outcome. The first state is at
        the start, or at the checkpoint from which the run continues.
        """
        first, number = True, next(_RUNS)
        while True:
            state = self._next_state()
            unseen_end = state.outcome is not None and not self._ended
            if first or unseen_end or state.iteration > self._reported:
                first, self._ended = False, state.outcome is not None
                for observer in tuple(_OBSERVERS):
                    observer(number, state)
                yield state
            if self.last is None:
                continue  # The caller lost it while it was reported.
            if state.iteration > self._reported:
                self._reported, self._losses = state.iteration, 0
            over = state.outcome is not None or (self.stopped and not self._repeats)
            if self._keep(over) and over:
                return

    def retry_lost(self, action: Callable[[], T]) -> T:
        """Return the result of `action`, at the end of the run; repeat it if arrays were lost."""
        while True:
            try:
                return action()
            except Exception as error:
                if not self.recovers(error):
                    raise
            for _ in self.states():
                pass  # All of them were reported before.

    def recovers(self, error: Exception) -> bool:
        """Whether the run can continue after `error`; it does so from its newest checkpoint."""
        if self._checkpoints is None or self._losses >= _LOSSES:
            return False
        if not self._checkpoints.keeper.recovers(error):
            return False
        self._losses += 1
        self.last, self._load = None, self._checkpoints.rolled_back
        return True

    @property
    def _repeats(self) -> bool:
        """Whether it takes steps again that were reported before."""
        return self.last is not None and self.last.iteration < self._reported

    def _next_state(self) -> State:
        """The next state, with the outcome if it is the last."""
        while True:
            try:
                if self.last is None:
                    return self._judge(self._first())
                made = self.solver.step(self.problem, self.last)
                if self._checkpoints is not None:
                    # A checkpoint has its numbers. The bits of the next step must not depend on
                    # whether one was taken here, or on what the gradient was computed from.
                    persist(made.gradient)
                self._is_kept = False
                return self._judge(made)
            except Exception as error:
                if not self.recovers(error):
                    raise

    def _first(self) -> State:
        """The newest checkpoint if the run resumes, otherwise the start."""
        now = time.perf_counter()
        kept = None if self._load is None else self._load()
        state = self._begun() if kept is None else self._restore(kept)
        if self._begin is None:
            self._begin = now - state.seconds
        return state

    def _begun(self) -> State:
        start, name = self._start, type(self.solver).__name__
        self._counted, self.best, self._is_kept = -1, None, False
        self.problem.recount(0, self._calls)
        if not isinstance(start, State):
            made = self.solver.init(self.problem, start)
            if self._checkpoints is not None:
                persist(made.gradient)
            return replace(made, solver=name)
        if start.solver != name:
            raise ValueError(
                f"resume: the state was made by {start.solver}, so {name} cannot continue from it; "
                f"resume it with {start.solver}(...), or start {name} at state.x"
            )
        self.problem.recount(start.evaluations, self._calls)
        return replace(start, x=as_tree(start.x), gradient=as_tree(start.gradient), outcome=None)

    def _restore(self, kept: Kept) -> State:
        self._counted, self.best, self._is_kept = kept.last.iteration, kept.best, True
        self.problem.recount(kept.last.evaluations, kept.calls)
        if self._begin is None:  # Another process had begun the run.
            self.history, self._recorded = kept.history, kept.last.iteration
            self._reported = kept.reported
        return kept.last

    def _judge(self, made: State) -> State:
        """`made` with its outcome, as the newest state."""
        seconds = time.perf_counter() - (self._begin or 0.0)
        self._made = replace(made, evaluations=self.problem.evaluations, seconds=seconds)
        state = replace(self._made, outcome=_outcome(self.solver, self.problem, self._made))
        if state.iteration > self._counted:
            self._counted = state.iteration
            self.best = state if self.best is None or _better(state, self.best) else self.best
        if state.iteration > self._recorded:
            self._recorded = state.iteration
            self.history.append(record_of(state))
        self.last = state
        return state

    def _keep(self, over: bool) -> bool:
        """Keep a checkpoint if it is time. False after a loss, so that the run continues."""
        made, state = self._made, self.last
        if self._checkpoints is None or self._is_kept or made is None or state is None:
            return True
        if not over and not self._checkpoints.due(state.iteration):
            return True
        if state.outcome is Outcome.LIMIT_EVALUATIONS:
            made = replace(made, outcome=None)  # With a higher limit it can take a step.
        records = Records(self.history[: len(self.history) - (self._recorded - state.iteration)])
        kept = Kept(made, self.best or state, records, self._reported, self.problem.calls)
        begun = self._checkpoints.begun
        try:
            self._checkpoints.save(kept, wait=over or not begun)
        except Exception as error:
            if self.recovers(error):
                return False
            if not (over and begun):
                raise
            text = f"the last state could not be written in {self._checkpoints.place}: {error}"
            warnings.warn(text, NotDurable, stacklevel=2)
        self._is_kept = True
        return True


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
        (_time_is_up(state.seconds, solver.max_seconds), Outcome.LIMIT_TIME),
    )
    reached = (outcome for holds, outcome in limits if holds)
    return solver.done(state) or next(reached, None)


def _bottomless(state: State) -> bool:
    """Whether the values have fallen by more than distances and precision account for."""
    scale = max(1.0, abs(state.initial_value), state.initial_gradient_norm)
    return state.initial_value - state.value > _DEPTH * scale


def _time_is_up(seconds: float, limit: float | None) -> bool:
    return limit is not None and seconds >= limit


def _better(state: State, best: State) -> bool:
    """Not above the best value, and finite."""
    return state.value <= best.value and state.outcome is not Outcome.NOT_FINITE


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
    with _close_at_end(checkpoints):
        for state in loop.states():
            yield _for_user(problem, state)


@contextmanager
def _close_at_end(checkpoints: Checkpoints | None) -> Iterator[None]:
    """Wait for the last checkpoint, however the run ends."""
    try:
        yield
    finally:
        if checkpoints is not None:
            checkpoints.keeper.close()


def _for_user(problem: Problem, state: State) -> State:
    """`state` with x and gradient in the user's structure."""
    if not problem.structured:
        return state
    return replace(state, x=as_user_structure(state.x), gradient=as_user_structure(state.gradient))


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
    with _close_at_end(checkpoints):
        with _progress_bar(progress, solver.max_iterations) as show:
            _run_with_callback(loop, callback, show)
        return loop.retry_lost(lambda: _result(loop))


def _run_with_callback(loop: Loop, callback: Callback | None, show: Callable[[State], Any]) -> None:
    """Run the loop to its end; the callback sees each new state but the first, and may stop it."""
    reported: int | None = None
    for state in loop.states():
        if state.iteration == reported:
            continue  # It is the same point again, now with the reason of the stall.
        seen = _for_user(loop.problem, state)
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
        raise RuntimeError("the loop has not ended, so it has no result")
    outcome = (
        last.outcome or Outcome.STOPPED_BY_CALLBACK
    )  # Only a callback ends a run without an outcome.
    if outcome in (Outcome.CONVERGED_GRADIENT, Outcome.CONVERGED_PRECISION):
        if _equal(last, best):
            best = last
        elif not solver.done(_with_stall(best, outcome)):
            # The values are so noisy that the stationary point is not the lowest seen.
            outcome = Outcome.STALLED
    chosen = _for_user(problem, solver.finish(problem, best, last))
    return Result.of(chosen, last, outcome, problem.evaluations, loop.history)


def _with_stall(state: State, outcome: Outcome) -> State:
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
def _progress_bar(progress: Progress, total: int) -> Iterator[Callable[[State], Any]]:
    """A function that shows a state."""
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda state: None
    else:
        with progress_bar(total) as show:
            yield lambda state: show(
                state.iteration, value=state.value, gradient=state.gradient_norm
            )


@contextmanager
def progress_bar(total: int | None, *, is_shown: bool = True) -> Iterator[Callable[..., None]]:
    """A function that shows a number of iterations, and numbers by name."""
    if not is_shown:
        yield lambda iterations, **numbers: None
        return
    try:
        tqdm = importlib.import_module("tqdm").tqdm
    except ImportError:
        warnings.warn("progress=True needs tqdm: pip install tqdm", stacklevel=5)
        yield lambda iterations, **numbers: None
        return
    with tqdm(total=total, unit="iteration", file=sys.stderr) as bar:

        def show(iterations: int, **numbers: float) -> None:
            bar.set_postfix(**numbers, refresh=False)
            bar.update(iterations - bar.n)

        yield show
