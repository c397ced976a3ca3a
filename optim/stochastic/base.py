"""What a stochastic solver says of tables whose rows take steps one by one."""

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
    """Of most formulas nothing need be said: what is elementwise is also of rows."""

    of_rows: ClassVar[frozenset[str]] = frozenset()
    """Those of the slots that hold one number for each row of a table, of shape (n, 1)."""
    needs_table: ClassVar[bool] = False
    """Whether its formula goes along the rows of a table."""

    def started(self, memory: Any, x: Array) -> Any:
        """`memory`, where elements that saw no gradient yet are as `init_memory` has them at `x`.

        For elements that start one by one, as the rows of a growing table do.
        """
        return memory


Vectors: TypeAlias = tuple[Array, ...]  # those that an algorithm keeps, in the order of its slots


@dataclass(frozen=True)
class StochasticMemory:
    """What a stochastic solver keeps: its own vectors, the mean of the iterates, the best point."""

    vectors: Any
    mean: Array | None
    watch: Watch


@dataclass(frozen=True, kw_only=True)
class StochasticSolver(PerRow, Solver):
    """Parameters of all stochastic solvers.

    step_size           a number or a schedule k -> step size, k = 0, 1, ...
    average             return the mean of all iterates after the start (Polyak-Ruppert)
    gradient_tolerance  on the max norm of the gradient; 0: off, as it must be with batches
    value_tolerance     with `window`: stop when the lowest value has improved by less than this,
    window              relative to max(|lowest|, 1), in so many iterations; 0: off
    full_every          with batches: look at the whole objective every so many epochs; 0: never

    The objective may be any function, deterministic or noisy, or one with batches (`Minibatches`,
    `FiniteSum`), of which iteration k sees batch k only.

    Which point is returned: values of different batches say nothing about their points, so with
    batches the whole objective is evaluated at the start, after every `full_every` epochs and at
    the end; the lowest of these values decides, and `fun` and `jac` of the result are those of the
    whole objective. So are the values that `window` watches. `full_every=1` doubles the
    work of an epoch, 10 adds a tenth; with 0 the last point is returned. Of any other function,
    every value counts, and the point of the lowest is returned, noisy if the function is. With
    `average=True` it is the mean iterate in all cases, evaluated once more; with batches, unless
    that is worse than the start.

    The `gradient_norm` of a state is, with batches, that of the whole objective at the last look,
    or of the first batch: nothing is decided by that of a batch.

    A step costs one message on lazy arrays, and one evaluation; where it ends an epoch, one more
    evaluation in the same message. The start is a message, and so is what the end evaluates.
    Batches that are eager send messages of their own; a step adds one, that makes x, and with
    `average` one more.
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
                "window needs values that may be compared, but full_every=0 looks at none; "
                "give full_every=1, or window=0"
            )

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the vectors that the algorithm keeps."""
        return ()

    def init_memory(self, x: Array) -> Any:
        """The vectors named by `slots` before the first step from `x`: zeros."""
        return tuple(zeros_like(x) for _ in self.slots)

    @abstractmethod
    def update(self, memory: Any, x: Array, gradient: Array, k: int) -> tuple[Array, Any]:
        """The next x and the next memory, by iteration k = 0, 1, ...

        A pure function of its arguments, made of array operators only: nothing is read, so that
        lazy arrays compute it in one go with whatever else is asked for.
        """

    @property
    def penalty(self) -> ElasticNet | None:
        """What is minimised besides the objective."""
        return None

    def step_size_at(self, k: int) -> float:
        """The step size of iteration k."""
        schedule = self.step_size if callable(self.step_size) else Constant(self.step_size)
        return schedule(k)

    def init(self, problem: Problem, x: Array) -> State:
        """Evaluate at the start."""
        if self.gradient_tolerance and Batches.of(problem):
            raise ValueError(
                f"{type(self).__name__}(gradient_tolerance={self.gradient_tolerance!r}): the "
                "gradient of a batch does not vanish at the minimum; stop by value_tolerance and "
                "window, which look at the whole objective"
            )
        point, memory, _ = self._look(
            problem, 0, x, StochasticMemory(self.init_memory(x), None, Watch())
        )
        return State.start(point, memory)

    def step(self, problem: Problem, state: State) -> State:
        """One iteration."""
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
        """Only what the user switched on."""
        watch = state.memory.watch
        seen = watch.latest == state.iteration
        if self.gradient_tolerance and seen and watch.gradient_norm <= self.gradient_tolerance:
            return Outcome.CONVERGED_GRADIENT
        if self.window and seen and state.iteration - watch.improved_at >= self.window:
            # A run that has never been below its start has not converged to it: it diverges.
            return Outcome.CONVERGED_VALUE if watch.improved_at else Outcome.STALLED
        return None

    def finish(self, problem: Problem, best: State, last: State) -> State:
        """The mean if wanted, else of the whole objective the lowest point seen."""
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
        if self.average:  # values of a noisy function cannot tell the mean from a worse point
            return watch.start if batches else math.inf
        return watch.best.value if watch.best else math.inf

    def estimate(
        self, batches: Batches, k: int, x: Array, memory: Any, full: Evaluation | None
    ) -> tuple[Evaluation, Any]:
        """Value and gradient that iteration k sees at `x`, and the memory with what it learned.

        `full` is the whole objective at `x` where that is looked at.
        """
        return batches.evaluate(x, k), memory

    def fresh(self, memory: Any) -> tuple[Array, ...]:
        """The vectors of the memory that a step has made, to be computed with its numbers."""
        return tuple(memory)

    def _look(
        self, problem: Problem, k: int, x: Array, memory: StochasticMemory, *others: Scalar
    ) -> tuple[Point, StochasticMemory, tuple[float, ...]]:
        """What iteration k sees at `x`, read in one message with `others`.

        Where an evaluation is eager, what depends on `x` alone comes along as that computes `x`; a
        batch's gradient waits for the next step, and nothing is read of it.
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
        """What iteration k sees at `x`; the whole objective, if it looks at that; the vectors."""
        batches = Batches.of(problem)
        if batches is None:
            return (whole := problem(x)), whole, vectors
        full = problem(x) if self._is_full(batches, k) else None
        seen, vectors = self.estimate(batches, k, x, vectors, full)
        return seen, full, vectors

    def _is_full(self, batches: Batches, k: int) -> bool:
        """Whether iteration k looks at the whole objective."""
        if not self.full_every or batches.problem.remaining < self.full_evaluations:
            return False
        return k % (self.full_every * batches.per_epoch) == 0

    def _read_whole(self, problem: Problem, x: Array) -> Point:
        """The whole objective at `x`, in one message."""
        with quiet():
            value, gradient = problem(x)
            if self.penalty is not None:
                value = value + self.penalty.value(x)
            norm = max_norm(self._total_gradient(x, gradient))
            number, size = fetch(value, norm, also=(x, gradient))
        return Point(x, number, gradient, size)

    def _total_gradient(self, x: Array, gradient: Array) -> Array:
        """With the penalty's: of all subgradients the one of least norm."""
        if self.penalty is None:
            return gradient
        smooth = gradient + self.penalty.l2 * x
        return L1(self.penalty.l1, False).pseudo_gradient(x, smooth)
