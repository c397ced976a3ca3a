"""Stochastic variance reduced gradient: R. Johnson, T. Zhang, NIPS 2013, figure 1, option I."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from optim.core.arrays import Array, zeros_like
from optim.core.outcome import Outcome
from optim.core.problem import Problem
from optim.core.state import State
from optim.stochastic.base import StochasticSolver, Vectors
from optim.stochastic.batches import Batches
from optim.stochastic.minibatches import Evaluation


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
