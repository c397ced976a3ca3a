"""The base class of solvers for objectives that are noisy or have batches."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

from optim.core.arrays import Array, Scalar, fetch, max_norm, quiet, zeros_like
from optim.core.problem import Point, Problem
from optim.core.progress import Watch
from optim.core.result import Outcome, State
from optim.core.solver import Solver
from optim.proximal.operators import ElasticNet
from optim.quasi_newton.owlqn import L1
from optim.stochastic.minibatches import Batches, Evaluation, is_eager
from optim.stochastic.schedules import Constant, Schedule


class PerRow:
    """The declarations of a solver about tables whose rows take steps one by one.

    Most formulas are elementwise, so the defaults are right for rows as well.
    """

    of_rows: ClassVar[frozenset[str]] = frozenset()
    """The slots that hold one number for each row of a table, of shape (n, 1)."""
    needs_table: ClassVar[bool] = False
    """Whether its formula goes along the rows of a table."""

    def started(self, memory: Any, x: Array) -> Any:
        """Return the memory with the start of elements that saw no gradient yet.

        For elements that start one by one, such as the rows of a growing table.

        Parameters
        ----------
        memory : object
            The vectors that the algorithm keeps.
        x : Array
            The iterate.

        Returns
        -------
        object
            `memory`, in which those elements are as `init_memory` has them at `x`.
        """
        return memory


Vectors: TypeAlias = tuple[
    Array, ...
]  # The vectors that an algorithm keeps, in the order of its slots.


@dataclass(frozen=True)
class StochasticMemory:
    """The memory of a stochastic solver: its vectors, the mean of the iterates, the best point."""

    vectors: Any
    mean: Array | None
    watch: Watch


@dataclass(frozen=True, kw_only=True)
class StochasticSolver(PerRow, Solver):
    """Base class of solvers for objectives that are noisy or have batches.

    To write such a solver, derive from this class and define `update`, and `slots` if the
    algorithm keeps vectors.

    Parameters
    ----------
    max_iterations : int, default 1000
        Largest number of iterations.
    max_evaluations : int, optional
        Largest number of calls of the objective, which is never exceeded. Default: no limit.
    max_seconds : float, optional
        Seconds after which no further iteration starts. Default: no limit.
    step_size : float or callable, default 0.1
        Step size, or a schedule: a function of the iteration k = 0, 1, ... See `Cosine`.
    average : bool, default False
        Return the mean of all iterates after the start (Polyak-Ruppert averaging).
    gradient_tolerance : float, default 0.0
        Absolute tolerance on the max norm of the gradient. 0: off, as batches require.
    value_tolerance : float, default 0.0
        With `window`: tolerance on the gain of the lowest value, relative to ``max(|lowest|, 1)``.
    window : int, default 0
        Stop if the lowest value gained less than the tolerance in so many iterations. 0: off.
    full_every : int, default 1
        For an objective with batches: epochs between evaluations of the whole objective. 0: never.

    See Also
    --------
    Minibatches : An objective with batches of rows.
    FiniteSum : An objective that is a sum of terms.
    Cosine : One of the schedules for step sizes.

    Notes
    -----
    The objective is any function, deterministic or noisy, or one with batches; then iteration k
    sees batch k only.

    Which point is returned: with batches the whole objective is evaluated at the start, after
    every `full_every` epochs and at the end. Its lowest value decides, and ``fun`` and ``jac`` of
    the result belong to the whole objective. `window` watches the same values. ``full_every=1``
    doubles the work of an epoch, 10 adds a tenth; with 0 the last point is returned. Without
    batches every value counts, and the point of the lowest one is returned. With
    ``average=True`` the mean iterate is returned. It costs one more evaluation at the end. With
    batches it is returned only if it is not worse than the start.

    ``gradient_norm`` of a state belongs, with batches, to the last evaluation of the whole
    objective, or to the first batch.

    On distributed vectors a step takes one evaluation and one request per server, with one pass
    over memory. At the end of an epoch one more evaluation is part of the same request. An
    objective with ``eager = True`` sends requests of its own; then a step adds one, and one more
    with `average`.

    Examples
    --------
    Steps along the sign of the gradient, as a solver of one's own:

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, kw_only=True)
    ... class SignSGD(optim.StochasticSolver):
    ...     def update(self, memory, x, gradient, k):
    ...         xp = x.__array_namespace__()
    ...         return x - self.step_size_at(k) * xp.sign(gradient), memory
    >>> solver = SignSGD(step_size=optim.InverseTime(1.0), max_iterations=500)
    >>> result = solver.minimize(lambda x: (float(x @ x), 2 * x), np.array([3.0, 4.0]))
    >>> bool(abs(result.x).max() < 0.01)
    True
    """

    step_size: float | Schedule = 0.1
    average: bool = False
    gradient_tolerance: float = 0.0
    value_tolerance: float = 0.0
    window: int = 0
    full_every: int = 1

    full_evaluations: ClassVar[int] = 2
    """Evaluations in an iteration that looks at the whole objective: that, and a batch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window and self.full_every == 0:
            raise ValueError(
                f"{type(self).__name__}(window={self.window!r}, full_every=0): window compares "
                "values of the whole objective, but full_every=0 never evaluates it; give "
                "full_every=1, or window=0"
            )

    @property
    def slots(self) -> tuple[str, ...]:
        """Name the vectors that the algorithm keeps.

        Returns
        -------
        tuple of str
            One name for each vector; empty by default.
        """
        return ()

    def init_memory(self, x: Array) -> Any:
        """Return the vectors before the first step.

        Parameters
        ----------
        x : Array
            The start.

        Returns
        -------
        object
            By default zeros like `x`, one vector for each of `slots`.
        """
        return tuple(zeros_like(x) for _ in self.slots)

    @abstractmethod
    def update(self, memory: Any, x: Array, gradient: Array, k: int) -> tuple[Array, Any]:
        """Return the next iterate and the next memory.

        It must be a pure function of array operators. It reads no numbers, so lazy arrays compute
        it in one request together with everything else that the step needs.

        Parameters
        ----------
        memory : object
            The vectors that the algorithm keeps, in the order of `slots`.
        x : Array
            The iterate.
        gradient : Array
            The gradient that this iteration sees.
        k : int
            Number of the iteration: 0, 1, ...

        Returns
        -------
        tuple of (Array, object)
            The next iterate and the next memory.
        """

    @property
    def penalty(self) -> ElasticNet | None:
        """The penalty that is minimised besides the objective."""
        return None

    def step_size_at(self, k: int) -> float:
        """Return the step size of an iteration.

        Parameters
        ----------
        k : int
            Number of the iteration: 0, 1, ...

        Returns
        -------
        float
            `step_size`, or the value of the schedule.
        """
        schedule = self.step_size if callable(self.step_size) else Constant(self.step_size)
        return schedule(k)

    def init(self, problem: Problem, x: Array) -> State:
        """Evaluate the objective at the start."""
        if self.gradient_tolerance and Batches.of(problem):
            raise ValueError(
                f"{type(self).__name__}(gradient_tolerance={self.gradient_tolerance!r}): the "
                "gradient of a batch does not vanish at the minimum; use value_tolerance and "
                "window, which evaluate the whole objective"
            )
        point, memory, _ = self._look(
            problem, 0, x, StochasticMemory(self.init_memory(x), None, Watch())
        )
        return State.start(point, memory)

    def step(self, problem: Problem, state: State) -> State:
        """Update x along the last gradient, and evaluate the next batch there."""
        memory, k = state.memory, state.iteration
        with quiet():
            x, vectors = self.update(memory.vectors, state.x, state.gradient, k)
            mean = None
            if self.average:
                mean = x if memory.mean is None else memory.mean + (x - memory.mean) / (k + 1.0)
            lengths = (max_norm(x - state.x), max_norm(x))
        memory = replace(memory, vectors=vectors, mean=mean)
        point, memory, (length, x_norm) = self._look(problem, k + 1, x, memory, *lengths)
        return state.moved(
            point,
            memory=memory,
            step_size=self.step_size_at(k),
            step_length=length / max(x_norm, 1.0),
            gain=state.value - point.value,
        )

    def done(self, state: State) -> Outcome | None:
        """Test the tolerances that are switched on."""
        watch = state.memory.watch
        seen = watch.latest == state.iteration
        if self.gradient_tolerance and seen and watch.gradient_norm <= self.gradient_tolerance:
            return Outcome.CONVERGED_GRADIENT
        if self.window and seen and state.iteration - watch.improved_at >= self.window:
            # A run that has never been below its start has not converged to it: it diverges.
            return Outcome.CONVERGED_VALUE if watch.improved_at else Outcome.STALLED
        return None

    def finish(self, problem: Problem, best: State, last: State) -> State:
        """Return the mean iterate if it is wanted, otherwise the lowest point."""
        memory, batches = last.memory, Batches.of(problem)
        lowest, wanted = memory.watch.best, memory.mean
        if batches and lowest:
            best = State.start(lowest, memory)
        elif batches and last.outcome is not Outcome.NOT_FINITE:
            best = last
        if batches and not self.average and memory.watch.latest < last.iteration:
            wanted = last.x
        if wanted is not None and problem.remaining >= 1:
            point = self._read_whole(problem, wanted)
            if point.finite and point.value <= self._tolerated(batches, memory.watch):
                best = State.start(point, memory)
        return replace(best, gradient=self._total_gradient(best.x, best.gradient))

    def _tolerated(self, batches: Batches | None, watch: Watch) -> float:
        """The value up to which the mean, or the last point, is returned."""
        if self.average:  # Noisy values cannot rank the mean.
            return watch.start if batches else math.inf
        return watch.best.value if watch.best else math.inf

    def estimate(
        self, batches: Batches, k: int, x: Array, memory: Any, full: Evaluation | None
    ) -> tuple[Evaluation, Any]:
        """Return value and gradient that an iteration sees, and the memory with their information.

        Parameters
        ----------
        batches : Batches
            The batches of the objective.
        k : int
            Number of the iteration: 0, 1, ...
        x : Array
            The iterate.
        memory : object
            The vectors that the algorithm keeps.
        full : tuple of (Scalar, Array) or None
            Value and gradient of the whole objective at `x`, if this iteration evaluates it.

        Returns
        -------
        tuple of ((Scalar, Array), object)
            Value and gradient, and the next memory.
        """
        return batches.evaluate(x, k), memory

    def fresh(self, memory: Any) -> tuple[Array, ...]:
        """Return the vectors of the memory that a step has made.

        They are computed in the same request as the numbers of the step.

        Parameters
        ----------
        memory : object
            The vectors that the algorithm keeps.

        Returns
        -------
        tuple of Array
            By default all of them.
        """
        return tuple(memory)

    def _look(
        self, problem: Problem, k: int, x: Array, memory: StochasticMemory, *others: Scalar
    ) -> tuple[Point, StochasticMemory, tuple[float, ...]]:
        """Evaluate the batch of iteration k at `x`, and read it in one request with `others`.

        If an evaluation is eager, vectors that depend on `x` alone are computed with `x`. A batch's
        gradient waits for the next step; its numbers are not read.
        """
        with quiet():
            penalties = [] if self.penalty is None else [self.penalty.value(x)]
            seen, full, vectors = self._evaluate_batch(problem, k, x, memory.vectors)
            views = [seen] if full is None or full is seen else [seen, full]
            values = [sum(penalties, value) for value, _ in views]
            looked = views[-1:] if full or k == 0 else []
            norms = [max_norm(self._total_gradient(x, gradient)) for _, gradient in looked]
            gradients = [] if is_eager(problem.fun) else [gradient for _, gradient in views]
            mean = () if memory.mean is None else (memory.mean,)
            also = (x, *gradients, *self.fresh(vectors), *mean)
            numbers = fetch(*values, *norms, *others, also=also)
        read, numbers = numbers[: len(values)], numbers[len(values) :]
        norm = numbers[0] if looked else memory.watch.gradient_norm
        points = [Point(x, value, view[1], norm) for view, value in zip(views, read, strict=True)]
        watch = replace(memory.watch, gradient_norm=norm)
        if full:
            watch = watch.update(points[-1], k, self.value_tolerance)
        return points[0], StochasticMemory(vectors, memory.mean, watch), numbers[len(norms) :]

    def _evaluate_batch(
        self, problem: Problem, k: int, x: Array, vectors: Any
    ) -> tuple[Evaluation, Evaluation | None, Any]:
        """Value and gradient that iteration k sees; the whole objective, if due; the vectors."""
        batches = Batches.of(problem)
        if batches is None:
            return (whole := problem(x)), whole, vectors
        full = problem(x) if self._is_full(batches, k) else None
        seen, vectors = self.estimate(batches, k, x, vectors, full)
        return seen, full, vectors

    def _is_full(self, batches: Batches, k: int) -> bool:
        """Whether iteration k evaluates the whole objective."""
        if not self.full_every or batches.problem.remaining < self.full_evaluations:
            return False
        return k % (self.full_every * batches.per_epoch) == 0

    def _read_whole(self, problem: Problem, x: Array) -> Point:
        """The whole objective at `x`, in one request."""
        with quiet():
            value, gradient = problem(x)
            if self.penalty is not None:
                value = value + self.penalty.value(x)
            norm = max_norm(self._total_gradient(x, gradient))
            number, size = fetch(value, norm, also=(x, gradient))
        return Point(x, number, gradient, size)

    def _total_gradient(self, x: Array, gradient: Array) -> Array:
        """The gradient with the penalty's: of all subgradients the one of least norm."""
        if self.penalty is None:
            return gradient
        smooth = gradient + self.penalty.l2 * x
        return L1(self.penalty.l1, False).pseudo_gradient(x, smooth)
