"""Gradients corrected by earlier ones, so that a constant step size converges: SAG and SVRG.

Stochastic average gradient: M. Schmidt, N. Le Roux, F. Bach, Math. Program. 162 (2017) 83-112,
algorithm 1, with the sum divided by the terms seen so far (section 4.1).
Stochastic variance reduced gradient: R. Johnson, T. Zhang, NIPS 2013, figure 1, option I.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from optim.core.arrays import Array, zeros_like
from optim.core.problem import Problem
from optim.core.result import Outcome, State
from optim.proximal.operators import ElasticNet
from optim.stochastic.base import StochasticSolver, Vectors
from optim.stochastic.minibatches import Batches, Evaluation, Order


@dataclass(frozen=True)
class GradientTable:
    """The last gradient of each term seen so far, by its number, and their sum.

    `order` tells which term an iteration sees.
    """

    total: Array
    gradients: Mapping[int, Array] = field(default_factory=dict)
    order: Order = field(default_factory=lambda: Order(1, False, 0))


@dataclass(frozen=True, kw_only=True)
class SAG(StochasticSolver):
    """Steps along the mean of the last gradients of all terms of a `FiniteSum`.

    step_size   a number or a schedule; 1 / (16 L) is safe and 1 / L often works, where L bounds the
                curvature of every term (for logistic loss max |row|^2 / 4)
    l2          weight of x @ x / 2, a number or one for each of several arrays; it is added to the
                objective and not kept in the gradients

    The noise dies out, so a constant step size converges linearly where the sum is strongly convex.
    Any other function counts as a sum of one term.

    Vectors kept: one per term, and one. Let terms be batches, rather than single rows.
    """

    l2: Any = 0.0

    @property
    def slots(self) -> tuple[str, ...]:
        """The sum; beside it the gradients of which it is made."""
        return ("total",)

    @cached_property
    def penalty(self) -> ElasticNet | None:
        """l2."""
        return ElasticNet(0.0, self.l2) if self.l2 else None

    def init(self, problem: Problem, x: Array) -> State:
        """Evaluate at the start."""
        batches = Batches.of(problem)
        if batches is None:
            return super().init(problem, x)
        terms = batches.objective
        order = getattr(terms, "terms", None)
        if order is None:
            raise TypeError(
                f"SAG keeps a gradient for each term, but the batches of {type(terms).__name__} "
                "change from epoch to epoch; give FiniteSum(fun, count) with fun(x, i), or use SVRG"
            )
        state = super().init(problem, x)
        vectors = replace(state.memory.vectors, order=order)
        return replace(state, memory=replace(state.memory, vectors=vectors))

    def init_memory(self, x: Array) -> GradientTable:
        """No gradient yet."""
        return GradientTable(zeros_like(x))

    def fresh(self, memory: GradientTable) -> tuple[Array, ...]:
        """The sum: the gradients were computed as such."""
        return (memory.total,)

    def update(
        self, memory: GradientTable, x: Array, gradient: Array, k: int
    ) -> tuple[Array, GradientTable]:
        """The next x and table."""
        i = memory.order.number(k)
        total = memory.total + gradient
        if i in memory.gradients:
            total = total - memory.gradients[i]
        gradients: dict[int, Any] = {**memory.gradients, i: gradient}
        step_size = self.step_size_at(k)
        l2 = 0.0 if self.penalty is None else self.penalty.l2
        x = (1.0 - step_size * l2) * x - (step_size / len(gradients)) * total
        return x, GradientTable(total, gradients, memory.order)


@dataclass(frozen=True, kw_only=True)
class SVRG(StochasticSolver):
    """Steps along batch gradients, corrected by those at a snapshot where all is known.

    step_size    a number or a schedule; about 0.1 / L, where L bounds the curvature of every term
    full_every   epochs between snapshots, 1 or more; the paper takes 2 for convex objectives

    gradient = batch's at x - the same batch's at the snapshot + whole objective's at the snapshot.
    The noise dies out as x approaches the snapshot, so a constant step size converges linearly
    where the objective is strongly convex. For `Minibatches` as well as for a `FiniteSum`; any
    other function is whole at every step.

    A step costs two evaluations and one message; a snapshot one evaluation, in the same message.
    Vectors kept: two.
    """

    full_every: int = 2

    full_evaluations: ClassVar[int] = 1
    """Where the whole is known, no batch is needed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.full_every < 1:
            raise ValueError(
                f"SVRG(full_every={self.full_every!r}): must be 1 or more, the epochs between "
                "snapshots; use SGD to do without them"
            )

    @property
    def slots(self) -> tuple[str, ...]:
        """The last point at which the whole gradient was taken, and that gradient."""
        return ("snapshot", "full_gradient")

    def init_memory(self, x: Array) -> Vectors:
        """The start as snapshot, with a gradient not yet known."""
        return x, zeros_like(x)

    def update(self, memory: Vectors, x: Array, gradient: Array, k: int) -> tuple[Array, Vectors]:
        """The next x."""
        return x - self.step_size_at(k) * gradient, memory

    def step(self, problem: Problem, state: State) -> State:
        """One iteration, if the evaluations that it takes are allowed."""
        if Batches.of(problem) and problem.remaining < 2:
            return replace(state, outcome=Outcome.LIMIT_EVALUATIONS)
        return super().step(problem, state)

    def estimate(
        self, batches: Batches, k: int, x: Array, memory: Vectors, full: Evaluation | None
    ) -> tuple[Evaluation, Vectors]:
        """The corrected gradient, or a new snapshot."""
        if full is not None:
            return full, (x, full[1])
        snapshot, full_gradient = memory
        value, gradient = batches.evaluate(x, k)
        _, at_snapshot = batches.evaluate(snapshot, k)
        return (value, gradient - at_snapshot + full_gradient), memory
