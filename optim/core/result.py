"""The states of a run, the reasons why it ends, and the result that it returns."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from scipy.optimize import OptimizeResult

from optim.core.arrays import Array
from optim.core.problem import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Outcome(Enum):
    """Why a run ended.

    Converged, so that ``success`` is True: ``CONVERGED_GRADIENT``, ``CONVERGED_VALUE``,
    ``CONVERGED_STEP``, ``CONVERGED_RESIDUALS`` (ADMM), ``CONVERGED_PRECISION``. Stopped before:
    ``STALLED``, ``LIMIT_ITERATIONS``, ``LIMIT_EVALUATIONS``, ``LIMIT_TIME``,
    ``STOPPED_BY_CALLBACK``. Failed: ``NOT_FINITE_AT_START``, ``NOT_FINITE``, ``UNBOUNDED``.

    Attributes
    ----------
    value : int
        Status code, the ``status`` of a result.
    sentence : str
        Explanation, the ``message`` of a result.

    Examples
    --------
    >>> outcome = optim.Outcome.LIMIT_ITERATIONS
    >>> outcome.value, outcome.sentence, outcome.success
    (4, 'Stopped: the limit of iterations (max_iterations) is reached.', False)
    """

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
        """Whether the run converged.

        Returns
        -------
        bool
            True if a tolerance is met, or if rounding hides every further gain. False after a
            stall, a limit or a failure.
        """
        return self in (
            Outcome.CONVERGED_GRADIENT,
            Outcome.CONVERGED_VALUE,
            Outcome.CONVERGED_STEP,
            Outcome.CONVERGED_RESIDUALS,
            Outcome.CONVERGED_PRECISION,
        )


@dataclass(frozen=True)
class State:
    """One iterate of a run: immutable, and sufficient to continue from.

    A solver makes the first state by `State.start` and each next one by `State.moved`. All norms
    are max norms.

    Parameters
    ----------
    x : Array
        The iterate; callbacks see it in the structure of ``x0``.
    value : float
        Value of the function that is minimised. If the solver takes a penalty, as OWLQN does, the
        value includes it.
    gradient : Array
        Gradient, or the solver's own measure of it, such as the pseudo-gradient of OWLQN.
    gradient_norm : float
        Max norm of `gradient`, or of the projected or generalised gradient.
    initial_gradient_norm : float
        `gradient_norm` at the start of the run.
    initial_value : float
        Value at the start of the run.
    memory : object, optional
        The solver's own part: everything else that the next step needs.
    iteration : int, default 0
        Number of iterations so far.
    step_size : float, default 0.0
        Step size that the last iteration accepted; 0 at the start.
    step_length : float, default inf
        Max norm of the last change of x, relative to ``max(max norm of x, 1)``.
    gain : float, default inf
        Decrease of the value in the last iteration: the larger one of the measured decrease and
        the decrease that the gradient predicted. So noise that hides a gain is not convergence.
    evaluations : int, default 0
        Number of evaluations since the start of the run; the loop sets it.
    seconds : float, default 0.0
        Seconds since the start of the run; the loop sets it.
    outcome : Outcome, optional
        Why the run ended; set in its last state only.
    solver : str, default ""
        Name of the solver's class, which is able to continue from this state; the loop sets it.

    See Also
    --------
    Solver : Its example shows how to make states.

    Notes
    -----
    ``solver.minimize(fun, resume=state)`` continues from a state with bitwise identical steps. A
    state of NumPy arrays can be pickled.

    Examples
    --------
    >>> fun = lambda x: (float(x @ x), 2 * x)
    >>> states = list(optim.LBFGS().iterations(fun, [3.0, 4.0]))
    >>> states[0].value, states[0].gradient_norm, states[0].outcome
    (25.0, 8.0, None)
    >>> states[-1].outcome.name
    'CONVERGED_GRADIENT'
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
        """Make the state before the first iteration.

        Parameters
        ----------
        point : Point
            The evaluated start: ``problem.at(x)``.
        memory : object, optional
            The solver's own part.

        Returns
        -------
        State
            With iteration 0.
        """
        norm = point.gradient_norm
        return cls(point.x, point.value, point.gradient, norm, norm, point.value, memory)

    def moved(
        self, point: Point, *, memory: Any, step_size: float, step_length: float, gain: float
    ) -> State:
        """Make the state after one more iteration.

        Parameters
        ----------
        point : Point
            The evaluated new iterate: ``problem.at(x)``.
        memory : object
            The solver's own part for the next step.
        step_size : float
            Step size that was accepted.
        step_length : float
            Max norm of the change of x, relative to ``max(max norm of x, 1)``.
        gain : float
            Decrease of the value, measured or predicted, whichever is larger.

        Returns
        -------
        State
            With the iteration number increased by 1.
        """
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
    """The numbers of one iteration in a run's history.

    Parameters
    ----------
    value : float
        Value of the function that is minimised.
    gradient_norm : float
        Max norm of the gradient.
    step_size : float
        Step size of the iteration; 0 at the start.
    evaluations : int
        Number of evaluations since the start of the run.
    seconds : float
        Seconds since the start of the run.

    Examples
    --------
    >>> result = optim.LBFGS().minimize(lambda x: (float(x @ x), 2 * x), [3.0, 4.0])
    >>> result.history[0].value, result.history[0].evaluations
    (25.0, 1)
    """

    value: float
    gradient_norm: float
    step_size: float
    evaluations: int
    seconds: float


def record_of(state: State) -> Record:
    """Return the numbers of `state` that the history keeps."""
    return Record(
        state.value, state.gradient_norm, state.step_size, state.evaluations, state.seconds
    )


class Records(list[Record]):
    """The records of a run, beginning with the start; they print as their number."""

    def __repr__(self) -> str:
        return f"<{len(self)} records of value, gradient_norm, step_size, evaluations, seconds>"


class Result(OptimizeResult):
    """SciPy's ``OptimizeResult`` with the outcome, the history and a plot.

    Attributes
    ----------
    x : Array or structure of arrays
        The best point, in the structure of the start.
    fun : float
        Value of the minimised function at `x`.
    jac : Array or structure of arrays
        Gradient at `x`.
    nit : int
        Number of iterations.
    nfev, njev : int
        Number of evaluations.
    status : int
        Code of the outcome.
    success : bool
        Whether the run converged.
    message : str
        Why the run ended, as a sentence.
    outcome : Outcome
        Why the run ended.
    history : list of Record
        The numbers of each iteration, beginning with the start.

    Examples
    --------
    >>> result = optim.LBFGS().minimize(lambda x: (float(x @ x), 2 * x), [3.0, 4.0])
    >>> result.success, result.outcome.name, len(result.history) == result.nit + 1
    (True, 'CONVERGED_GRADIENT', True)
    >>> np.round(np.abs(result.x), 6)
    array([0., 0.])
    """

    x: Array
    fun: float
    jac: Array
    nit: int
    nfev: int
    njev: int
    status: int
    success: bool
    message: str
    outcome: Outcome
    history: Records

    @classmethod
    def of(
        cls, chosen: State, last: State, outcome: Outcome, evaluations: int, history: Records
    ) -> Result:
        """Make the result of a run.

        Parameters
        ----------
        chosen : State
            The state with the point to return.
        last : State
            The state with which the run ended.
        outcome : Outcome
            Why the run ended.
        evaluations : int
            Number of evaluations.
        history : list of Record
            The numbers of each iteration.

        Returns
        -------
        Result
            With all of its fields set.
        """
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

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw value and gradient norm over the evaluations.

        Parameters
        ----------
        axes : matplotlib.axes.Axes, optional
            Axes on which the value is drawn. Default: the axes of a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            The axes of the value. The gradient norm has an axis of its own on the right, with a
            logarithmic scale.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
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


def _new_axes() -> Axes:
    try:
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError("plot() needs matplotlib: pip install matplotlib") from error
    axes: Axes = pyplot.subplots()[1]
    return axes
