"""What all solvers share: limits, tolerances, and the two ways to run them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from optim.core import run as _driver
from optim.core.arrays import Array, machine_epsilon
from optim.core.checkpoints.policy import Checkpoints, Place, open_checkpoints
from optim.core.problem import Problem
from optim.core.result import Outcome, Result, State
from optim.core.trees import as_start, as_tree, is_structure


@dataclass(frozen=True, kw_only=True)
class Solver(ABC):
    """A frozen set of parameters with `init`, `step` and `done`; the loop is `_driver`'s.

    max_iterations     steps at most
    max_evaluations    calls of the objective at most, exactly kept; None: no limit
    max_seconds        time after which no further iteration starts; None: no limit
    """

    max_iterations: int = 1000
    max_evaluations: int | None = None
    max_seconds: float | None = None

    stops: ClassVar[frozenset[str]] = frozenset(
        "max_iterations max_evaluations max_seconds gradient_tolerance gradient_rtol "
        "value_tolerance step_tolerance window".split()
    )
    """Parameters that only say when to stop: who resumes a run may give others."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, (int, float)) and not value >= 0:
                raise ValueError(
                    f"{type(self).__name__}({field.name}={value!r}): must not be negative"
                )

    @abstractmethod
    def init(self, problem: Problem, x: Array) -> State:
        """Evaluate at the start."""

    @abstractmethod
    def step(self, problem: Problem, state: State) -> State:
        """One iteration; a state whose outcome is set if no step could be made."""

    @abstractmethod
    def done(self, state: State) -> Outcome | None:
        """The tolerance that `state` meets, if any."""

    def finish(self, problem: Problem, best: State, last: State) -> State:
        """The state to return, of the best and the last one."""
        return best

    def minimize(
        self,
        fun: Callable[..., Any],
        x0: Array | None = None,
        *,
        args: Sequence[Any] = (),
        jac: bool | Callable[..., Array] = True,
        callback: _driver.Callback | None = None,
        progress: _driver.Progress = False,
        checkpoint: Place = None,
        every: int = 20,
        resume: State | bool | None = None,
    ) -> Result:
        """Minimise `fun(x, *args) -> (value, gradient)` from `x0`; the best point is returned.

        x0          an array of any shape; or a dict, tuple or list of arrays, nested or not: then
                    fun gets the same structure and returns a gradient of it, and x, jac, and the
                    states are of it. Numbers in lists are one array
        callback    called as callback(state) after each iteration; stops the run by returning
                    True or raising StopIteration
        progress    True for a tqdm bar with value and gradient norm, or a callable(state)
        checkpoint  a directory to keep checkpoints in, from which a run that broke off goes on with
                    the same bits: one at the start, one each `every` iterations, and the last
                    state. It must hold none yet, unless `resume` says to go on. None: where the
                    session that x0 is of keeps them, if it does; False: nowhere
        every       iterations between checkpoints
        resume      True: go on from the newest checkpoint, or from x0 if there is none; so the same
                    call can be made again after any break. x, fun, nit, nfev and history of the
                    result are those of a run without a break. Limits and tolerances may be others
                    than before, other parameters may not.
                    Or, instead of x0, a state of this solver to go on from, with the same further
                    steps bit for bit; the best point is then that of the states from there on

        Checkpoints are written in the background. One that cannot be kept is a warning
        (`NotDurable`) and the run goes on, but at the start it is an error. Damaged ones are passed
        over, with a warning; `Corrupted` is raised where no other is left. Where the session brings
        back what a server lost, the run goes back to the newest checkpoint by itself; callbacks
        and progress that were reported are not reported again.

        The result has SciPy's fields (x, fun, jac, nit, nfev, njev, status, success, message),
        `outcome` (an `Outcome`), `history` (one `Record` per state) and `plot()`. A run ends in an
        outcome, never in an exception, unless the objective itself raises or returns nonsense.
        """
        state = resume if isinstance(resume, State) else None
        if (x0 is None) is (state is None):
            raise ValueError(
                "minimize: give either x0, or resume=state to go on from a state, "
                f"but {'neither' if x0 is None else 'both'} was given"
            )
        start, problem, checkpoints = self._open(
            fun, x0 if state is None else state, args, jac, checkpoint, every, resume is True
        )
        return _driver.run(
            self, problem, start, callback, progress, checkpoints, resume=resume is True
        )

    def iterations(
        self,
        fun: Callable[..., Any],
        x0: Array | State,
        *,
        args: Sequence[Any] = (),
        jac: bool | Callable[..., Array] = True,
        checkpoint: Place = None,
        every: int = 20,
        resume: bool = False,
    ) -> Iterator[State]:
        """The initial state, then one state per iteration; the last one has its outcome set.

        Given a state instead of `x0`, the run goes on from it. `checkpoint`, `every` and `resume`
        are as for `minimize`; a resumed run begins with the state of the checkpoint. A state counts
        as seen, and may be kept, once the next one is asked for.
        """
        start, problem, checkpoints = self._open(fun, x0, args, jac, checkpoint, every, resume)
        return _driver.states(self, problem, start, checkpoints, resume=resume)

    def _open(
        self,
        fun: Callable[..., Any],
        x0: Array | State,
        args: Sequence[Any],
        jac: bool | Callable[..., Array],
        checkpoint: Place,
        every: int,
        resume: bool,
    ) -> tuple[Array | State, Problem, Checkpoints | None]:
        """The start, owned; the problem; and where checkpoints are kept, if they are."""
        given = x0.x if isinstance(x0, State) else x0
        problem = Problem(fun, args, jac, self.max_evaluations, structured=is_structure(given))
        start = x0 if isinstance(x0, State) else as_start(x0)
        x = as_tree(given) if isinstance(x0, State) else start
        return start, problem, open_checkpoints(self, x, checkpoint, every, resume=resume)


# The gradient tolerance where none is asked for.
_GRADIENT_TOLERANCE = 1e-8
# The largest curvature, as a multiple of the value, with which small gains still are a sign of a
# minimum. Where a gradient that is not small promises nothing because of a curvature beyond that in
# some direction, the others are not seen.
_CURVATURE = 1e4


@dataclass(frozen=True, kw_only=True)
class ToleranceSolver(Solver):
    """A solver for deterministic objectives, with tests of convergence.

    gradient_tolerance  on the max norm of the gradient, absolute. None: 1e-8, or where rounding
                        hides any further gain; what is asked for is not given up so
    gradient_rtol       the same, relative to the gradient at the start; 0: off
    value_tolerance     on what an iteration gains, relative to max(|f_k|, |f_k+1|, 1); 0: off
    step_tolerance      on the max norm of the step, relative to max(max norm of x, 1); 0: off

    Small gains and small steps count only where the gradient is small as well: as small as in a
    minimum that is so near, with curvatures up to 1e4 times max(|f|, 1).
    """

    gradient_tolerance: float | None = None
    gradient_rtol: float = 0.0
    value_tolerance: float = 0.0
    step_tolerance: float = 0.0

    def done(self, state: State) -> Outcome | None:
        """Gradient first: it is the only test that says how far from stationary x is."""
        asked = self.gradient_tolerance
        allowed = max(
            _GRADIENT_TOLERANCE if asked is None else asked,
            self.gradient_rtol * state.initial_gradient_norm,
        )
        if state.gradient_norm <= allowed:
            return Outcome.CONVERGED_GRADIENT
        size = max(abs(state.value), 1.0)
        if state.outcome is Outcome.STALLED:
            least = _least_gradient(machine_epsilon(state.x), size)
            precise = asked is None and state.gradient_norm <= least
            return Outcome.CONVERGED_PRECISION if precise else None
        # |f_k| is about |f_k+1| unless the gain is larger than both; at the start the gain is inf,
        # as nothing is gained yet, and the quotient nan.
        scale = max(abs(state.value), state.gain, 1.0)
        if state.gain / scale <= self.value_tolerance and state.gradient_norm <= _least_gradient(
            self.value_tolerance, size
        ):
            return Outcome.CONVERGED_VALUE
        if (
            state.step_length <= self.step_tolerance
            and state.gradient_norm <= _CURVATURE * size * self.step_tolerance
        ):
            return Outcome.CONVERGED_STEP
        return None


def _least_gradient(gain: float, size: float) -> float:
    """The gradient with which `gain`, relative to `size`, is all that is left: g^2 / 2 c = gain."""
    return math.sqrt(2.0 * _CURVATURE * gain) * size
