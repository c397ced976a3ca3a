"""The base classes of solvers: their limits and tolerances, and the two ways to run them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from optim.core import run as _driver
from optim.core.arrays import Array, machine_epsilon
from optim.core.checkpoints.policy import Checkpoints, Place, open_checkpoints
from optim.core.docstrings import inherit_sections
from optim.core.problem import Problem
from optim.core.result import Outcome, Result, State
from optim.core.trees import as_start, as_tree, is_structure


@dataclass(frozen=True, kw_only=True)
class Solver(ABC):
    """Base class of all solvers: a frozen set of parameters with ``init``, ``step`` and ``done``.

    Users call `minimize` or `iterations`. To write a solver, derive from this class and define
    the three methods. They are pure functions of their arguments: everything that the next step
    needs is in the state. The loop does the rest. It checks the limits, stops if a value is not
    finite, keeps the best point and the history, calls callbacks and writes checkpoints.

    Parameters
    ----------
    max_iterations : int, default 1000
        Largest number of iterations.
    max_evaluations : int, optional
        Largest number of calls of the objective, which is never exceeded. Default: no limit.
    max_seconds : float, optional
        Seconds after which no further iteration starts. Default: no limit.

    Attributes
    ----------
    stops : frozenset of str
        Names of the parameters that only say when to stop. A resumed run may change them. A
        subclass adds its own: ``stops: ClassVar = Solver.stops | {"tolerance"}``.

    See Also
    --------
    Problem : The objective as a solver calls it.
    State : One iterate, which carries the solver's own memory.
    Outcome : The reasons why a run ends.

    Notes
    -----
    A subclass is a dataclass: ``@dataclass(frozen=True, kw_only=True)``. Use operators and the
    array API, and keep scalars as arrays until a decision needs them. Then the solver runs
    unchanged on NumPy arrays, PyTorch tensors and distributed vectors. ``float(a)`` of a
    distributed scalar costs a request; ``optim.core.arrays.fetch(a, b)`` reads several in one.

    Private data goes into ``state.memory``: a tuple, dict, list, number or array, or a dataclass
    of ``optim``. With other types a run cannot keep checkpoints.

    Examples
    --------
    Gradient descent with a fixed step size, as a solver of one's own:

    >>> from dataclasses import dataclass
    >>> from optim import Outcome, Solver, State
    >>> @dataclass(frozen=True, kw_only=True)
    ... class FixedStep(Solver):
    ...     step_size: float = 0.1
    ...     tolerance: float = 1e-6
    ...
    ...     def init(self, problem, x):
    ...         return State.start(problem.at(x))
    ...
    ...     def step(self, problem, state):
    ...         point = problem.at(state.x - self.step_size * state.gradient)
    ...         return state.moved(
    ...             point,
    ...             memory=None,
    ...             step_size=self.step_size,
    ...             step_length=self.step_size * state.gradient_norm,
    ...             gain=state.value - point.value,
    ...         )
    ...
    ...     def done(self, state):
    ...         if state.gradient_norm <= self.tolerance:
    ...             return Outcome.CONVERGED_GRADIENT
    ...         return None
    >>> result = FixedStep(step_size=0.25).minimize(lambda x: (float(x @ x), 2 * x), [3.0, 4.0])
    >>> result.message, result.nit
    ('Converged: the gradient is within its tolerance.', 23)
    """

    max_iterations: int = 1000
    max_evaluations: int | None = None
    max_seconds: float | None = None

    stops: ClassVar[frozenset[str]] = frozenset(
        "max_iterations max_evaluations max_seconds gradient_tolerance gradient_rtol "
        "value_tolerance step_tolerance window".split()
    )
    """Parameters that only say when to stop; a resumed run may change them."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        inherit_sections(cls)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, (int, float)) and not value >= 0:
                raise ValueError(
                    f"{type(self).__name__}({field.name}={value!r}): must be 0 or more"
                )

    @abstractmethod
    def init(self, problem: Problem, x: Array) -> State:
        """Evaluate the objective at the start and return the first state.

        Parameters
        ----------
        problem : Problem
            The objective: ``problem.at(x)`` evaluates it.
        x : Array
            The start, as floating-point numbers that no other code writes to.

        Returns
        -------
        State
            The state before the first iteration: ``State.start(problem.at(x), memory)``.
        """

    @abstractmethod
    def step(self, problem: Problem, state: State) -> State:
        """Take one iteration and return the next state.

        The loop calls this only if at least one evaluation is left. A step that needs more of them
        checks ``problem.remaining`` first.

        Parameters
        ----------
        problem : Problem
            The objective: ``problem.at(x)`` evaluates it.
        state : State
            The current iterate, with the memory that the last step or ``init`` gave it.

        Returns
        -------
        State
            The next iterate: ``state.moved(point, ...)``. If no step lowers the value, the same
            state with a reason: ``dataclasses.replace(state, outcome=Outcome.STALLED)``.
        """

    @abstractmethod
    def done(self, state: State) -> Outcome | None:
        """Return the tolerance that a state meets, if any.

        Parameters
        ----------
        state : State
            The newest iterate. Its ``outcome`` is the reason that ``step`` gave, if it gave one.

        Returns
        -------
        Outcome or None
            Why the run converged; ``None`` to continue.
        """

    def finish(self, problem: Problem, best: State, last: State) -> State:
        """Return the state that becomes the result.

        Parameters
        ----------
        problem : Problem
            The objective, for a solver that evaluates another point at the end.
        best : State
            The state of lowest value.
        last : State
            The last state.

        Returns
        -------
        State
            By default `best`.
        """
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
        """Minimise an objective from a start and return the best point.

        Parameters
        ----------
        fun : callable
            Objective ``fun(x, *args)``, which returns ``(value, gradient)``. It must not modify
            ``x``, nor later the gradient that it returned. If an array library differentiates, as
            ``distvec`` does, it may return the value alone. Objects with batches, such as
            `Minibatches`, are for stochastic solvers.
        x0 : Array or structure of arrays, optional
            Start, of any shape. A dict, tuple or list of arrays (also nested) is passed to ``fun``
            as it is; ``fun`` then returns a gradient of the same structure, and the result has it
            too. A list of numbers is one array. Required unless `resume` is a state.
        args : sequence, default ()
            Further arguments of ``fun`` and ``jac``.
        jac : bool or callable, default True
            True: ``fun`` returns the gradient. Otherwise a function ``jac(x, *args)`` that returns
            it; ``fun`` then returns the value alone.
        callback : callable, optional
            Called as ``callback(state)`` after each iteration. It stops the run by returning True
            or by raising ``StopIteration``.
        progress : bool or callable, default False
            True shows a tqdm bar with value and gradient norm. A function is called with each
            state.
        checkpoint : str, os.PathLike or False, optional
            Directory for checkpoints, from which an interrupted run resumes with a bitwise
            identical result. It must hold no checkpoints unless `resume` is True. False: keep no
            checkpoints. Default: the directory of the session of `x0`, if it has one.
        every : int, default 20
            Number of iterations between checkpoints.
        resume : bool or State, optional
            True: resume from the newest checkpoint, or begin at `x0` if there is no checkpoint. So
            the same call can be repeated after any interruption. Limits and tolerances may change,
            other parameters must not. A state of this solver, given instead of `x0`: continue from
            it with bitwise identical steps.

        Returns
        -------
        Result
            SciPy's fields ``x``, ``fun``, ``jac``, ``nit``, ``nfev``, ``njev``, ``status``,
            ``success`` and ``message``, and also ``outcome``, ``history`` and ``plot()``.

        Raises
        ------
        TypeError
            If ``fun``, ``jac`` or `x0` has a wrong type or returns one.
        ValueError
            If a shape does not fit, if `x0` and a state are both given or both missing, or if the
            checkpoint directory does not fit the run.
        Corrupted
            If the run resumes and every checkpoint is damaged.

        Warns
        -----
        NotDurable
            If a checkpoint cannot be written, or an older one is used. The run continues. Only the
            first checkpoint of a run must succeed.

        Notes
        -----
        A run ends with an outcome, not with an exception, unless the objective raises one or
        returns a wrong type. Checkpoints are written in the background: one at the start, one
        after every `every` iterations, and the last state. If a session restores arrays that a
        server lost, the run returns to its newest checkpoint; callbacks do not see a state twice.
        After ``resume=True``, ``x``, ``fun``, ``nit``, ``nfev`` and ``history`` are equal to the
        fields of an uninterrupted run. After ``resume=state`` the best point is sought among the
        states from there on.
        """
        state = resume if isinstance(resume, State) else None
        if (x0 is None) is (state is None):
            raise ValueError(
                "minimize: give x0, or resume=state to continue from a state, but not both; "
                f"got {'no start' if x0 is None else 'x0 and a state'}"
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
        """Iterate over the states of a run; steps are taken as the caller asks for them.

        Parameters
        ----------
        fun : callable
            Objective ``fun(x, *args)``, as for `minimize`.
        x0 : Array, structure of arrays or State
            Start, or a state of this solver to continue from.
        args : sequence, default ()
            Further arguments of ``fun`` and ``jac``.
        jac : bool or callable, default True
            True: ``fun`` returns the gradient. Otherwise a function ``jac(x, *args)`` that returns
            it; ``fun`` then returns the value alone.
        checkpoint : str, os.PathLike or False, optional
            Directory for checkpoints, as for `minimize`.
        every : int, default 20
            Number of iterations between checkpoints.
        resume : bool, default False
            True: resume from the newest checkpoint; its state is then the first one.

        Returns
        -------
        Iterator of State
            The initial state, then one state per iteration. The last one has its ``outcome`` set.

        Notes
        -----
        States may be kept. A state counts as seen once the next one is asked for: only then can a
        checkpoint hold it.
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
        """The start, owned; the problem; and the checkpoints, if the run keeps any."""
        given = x0.x if isinstance(x0, State) else x0
        problem = Problem(fun, args, jac, self.max_evaluations, structured=is_structure(given))
        start = x0 if isinstance(x0, State) else as_start(x0)
        x = as_tree(given) if isinstance(x0, State) else start
        return start, problem, open_checkpoints(self, x, checkpoint, every, resume=resume)


# The gradient tolerance if the user gives no other.
_GRADIENT_TOLERANCE = 1e-8
# The largest curvature, as a multiple of the value, for which small gains are a sign of a minimum.
# If the curvature in one direction is larger, gains are small although the gradient is not, and the
# gains in other directions stay unseen.
_CURVATURE = 1e4


@dataclass(frozen=True, kw_only=True)
class ToleranceSolver(Solver):
    """Base class of solvers for deterministic objectives, with tests of convergence.

    Parameters
    ----------
    max_iterations : int, default 1000
        Largest number of iterations.
    max_evaluations : int, optional
        Largest number of calls of the objective, which is never exceeded. Default: no limit.
    max_seconds : float, optional
        Seconds after which no further iteration starts. Default: no limit.
    gradient_tolerance : float, optional
        Absolute tolerance on the max norm of the gradient. An explicit value is never relaxed.
        Default: 1e-8, or larger if rounding hides every further gain.
    gradient_rtol : float, default 0.0
        Tolerance on the max norm of the gradient, relative to its norm at the start. 0: off.
    value_tolerance : float, default 0.0
        Tolerance on the gain of an iteration, relative to ``max(|f_k|, |f_k+1|, 1)``. 0: off.
    step_tolerance : float, default 0.0
        Tolerance on the max norm of a step, relative to ``max(max norm of x, 1)``. 0: off.

    Notes
    -----
    Small gains and small steps count only if the gradient is small too: as small as it is so near
    to a minimum, for curvatures up to 1e4 times ``max(|f|, 1)``.
    """

    gradient_tolerance: float | None = None
    gradient_rtol: float = 0.0
    value_tolerance: float = 0.0
    step_tolerance: float = 0.0

    def done(self, state: State) -> Outcome | None:
        """Test the gradient first: only its norm says how far from stationary x is."""
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
        # because there was no step yet, and the quotient is nan.
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
