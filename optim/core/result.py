"""The states of a run, how it ended, and the result that it returns."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from scipy.optimize import OptimizeResult

from optim.core.arrays import Array
from optim.core.problem import Point


class Outcome(Enum):
    """Why a run ended. `value` is the `status` of a result, `sentence` its `message`."""

    CONVERGED_GRADIENT = (0, "Converged: the gradient is within its tolerance.")
    CONVERGED_VALUE = (1, "Converged: an iteration gains less than the value tolerance.")
    CONVERGED_STEP = (2, "Converged: the last step is within the step tolerance.")
    STALLED = (
        3,
        "Stalled at the best point: the objective's precision shows no lower value nearby.",
    )
    LIMIT_ITERATIONS = (4, "Stopped: the limit of iterations (max_iterations) is reached.")
    LIMIT_EVALUATIONS = (5, "Stopped: the limit of evaluations (max_evaluations) is reached.")
    LIMIT_TIME = (6, "Stopped: the limit of time (max_seconds) is reached.")
    NOT_FINITE_AT_START = (7, "Failed: the objective or its gradient is not finite at x0.")
    NOT_FINITE = (8, "Failed: the objective became not finite; the best finite point is returned.")
    STOPPED_BY_CALLBACK = (9, "Stopped: the callback asked for it.")
    CONVERGED_RESIDUALS = (
        10,
        "Converged: the primal and dual residuals are within their tolerances.",
    )

    CONVERGED_PRECISION = (
        11,
        "Converged: the gradient is small, and rounding hides what could still be gained.",
    )
    UNBOUNDED = (12, "Failed: the values fall without end; the objective is unbounded below.")

    sentence: str

    def __new__(cls, status: int, sentence: str) -> Outcome:
        member = object.__new__(cls)
        member._value_ = status
        member.sentence = sentence
        return member

    @property
    def success(self) -> bool:
        """True if a tolerance is met, or precision is used up; a stall or a limit is none."""
        return self in (
            Outcome.CONVERGED_GRADIENT,
            Outcome.CONVERGED_VALUE,
            Outcome.CONVERGED_STEP,
            Outcome.CONVERGED_RESIDUALS,
            Outcome.CONVERGED_PRECISION,
        )


@dataclass(frozen=True)
class State:
    """One iterate. Immutable; `memory` is the solver's own part. Norms are max norms.

    value, gradient      of what is minimised (OWLQN: with the penalty, and the pseudo-gradient)
    step_size            accepted by the last step-size search; 0 at the start
    step_length          max norm of the last change of x, relative to max(max norm of x, 1)
    gain                 what the last iteration gained in value, the larger of measured and
                         foretold by the gradient: noise that hides a gain is not convergence
    evaluations, seconds since the start of the run
    outcome              set in the last state of a run only
    solver               the name of the class that made it, and that can go on from it

    A state is all that a solver needs to go on: `solver.minimize(fun, resume=state)`. On NumPy
    arrays it can be pickled.
    """

    x: Array
    value: float
    gradient: Array
    gradient_norm: float
    initial_gradient_norm: float
    initial_value: float
    memory: Any = None
    iteration: int = 0
    step_size: float = 0.0
    step_length: float = float("inf")
    gain: float = float("inf")
    evaluations: int = 0
    seconds: float = 0.0
    outcome: Outcome | None = None
    solver: str = ""

    @classmethod
    def start(cls, point: Point, memory: Any = None) -> State:
        """The state before the first iteration."""
        norm = point.gradient_norm
        return cls(point.x, point.value, point.gradient, norm, norm, point.value, memory)

    def moved(
        self, point: Point, *, memory: Any, step_size: float, step_length: float, gain: float
    ) -> State:
        """The state one iteration later, at `point`."""
        return replace(
            self,
            x=point.x,
            value=point.value,
            gradient=point.gradient,
            gradient_norm=point.gradient_norm,
            memory=memory,
            iteration=self.iteration + 1,
            step_size=step_size,
            step_length=step_length,
            gain=gain,
        )


@dataclass(frozen=True)
class Record:
    """One line of a run's history."""

    value: float
    gradient_norm: float
    step_size: float
    evaluations: int
    seconds: float


def record_of(state: State) -> Record:
    """The numbers of `state`."""
    return Record(
        state.value, state.gradient_norm, state.step_size, state.evaluations, state.seconds
    )


class Records(list[Record]):
    """The records of a run, the start first; prints as their number."""

    def __repr__(self) -> str:
        return f"<{len(self)} records of value, gradient_norm, step_size, evaluations, seconds>"


class Result(OptimizeResult):
    """SciPy's `OptimizeResult` with `outcome` (an `Outcome`), `history` and a plot.

    x, fun, jac   the best point, with value and gradient
    """

    @classmethod
    def of(
        cls, chosen: State, last: State, outcome: Outcome, evaluations: int, history: Records
    ) -> Result:
        """The result of a run that ended at `last` and returns the point of `chosen`."""
        result = cls()
        result.update(
            x=chosen.x,
            fun=chosen.value,
            jac=chosen.gradient,
            nit=last.iteration,
            nfev=evaluations,
            njev=evaluations,
            status=outcome.value,
            success=outcome.success,
            message=outcome.sentence,
            outcome=outcome,
            history=history,
        )
        return result

    def plot(self, axes: Any = None) -> Any:
        """Draw value and gradient norm over the evaluations, and return the axes of the value.

        axes    matplotlib axes to draw the value on; None makes a figure. The gradient norm, in
                logarithmic scale, has its own axis on the right.
        """
        axes = _new_axes() if axes is None else axes
        evaluations = [record.evaluations for record in self.history]
        axes.plot(evaluations, [record.value for record in self.history], color="C0")
        axes.set(xlabel="evaluations", ylabel="value", title=self.message)
        right = axes.twinx()
        norms = [record.gradient_norm for record in self.history]
        right.plot(evaluations, norms, color="C1")
        right.set(ylabel="max norm of the gradient", yscale="log")
        return axes


def _new_axes() -> Any:
    try:
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError("plot() needs matplotlib: pip install matplotlib") from error
    return pyplot.subplots()[1]
