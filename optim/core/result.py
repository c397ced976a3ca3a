"""What a run returns: SciPy's result, with the history and a plot of it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from scipy.optimize import OptimizeResult

from optim.core.outcome import Outcome
from optim.core.state import State


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
