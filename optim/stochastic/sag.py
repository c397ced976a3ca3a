"""Stochastic average gradient: M. Schmidt, N. Le Roux, F. Bach, Math. Program. 162 (2017) 83-112.

Algorithm 1, with the sum divided by the terms seen so far (section 4.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from optim.core.arrays import Array, zeros_like
from optim.core.problem import Problem
from optim.core.state import State
from optim.proximal.operators import ElasticNet
from optim.stochastic.base import StochasticSolver
from optim.stochastic.batches import Batches
from optim.stochastic.minibatches import Order


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
        i = memory.order.at(k)
        total = memory.total + gradient
        if i in memory.gradients:
            total = total - memory.gradients[i]
        gradients: dict[int, Any] = {**memory.gradients, i: gradient}
        step_size = self.step_size_at(k)
        l2 = 0.0 if self.penalty is None else self.penalty.l2
        x = (1.0 - step_size * l2) * x - (step_size / len(gradients)) * total
        return x, GradientTable(total, gradients, memory.order)
