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

from optim.core.arrays import Array, Weights, zeros_like
from optim.core.problem import Problem
from optim.core.result import Outcome, State
from optim.proximal.operators import ElasticNet
from optim.stochastic.base import StochasticSolver, Vectors
from optim.stochastic.minibatches import Batches, Evaluation, Order


@dataclass(frozen=True)
class GradientTable:
    """The last gradient of each term seen so far, by its number, and their sum.

    ``order`` tells which term an iteration sees.
    """

    total: Array
    gradients: Mapping[int, Array] = field(default_factory=dict)
    order: Order = field(default_factory=lambda: Order(1, False, 0))


@dataclass(frozen=True, kw_only=True)
class SAG(StochasticSolver):
    """Stochastic average gradient: steps along the mean of the last gradients of all terms.

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
    l2 : float or structure, default 0.0
        Weight of ``x @ x / 2``, a number, or one for each array if x is a structure. It is added to
        the objective, and not kept in the gradients.

    See Also
    --------
    StochasticSolver : Costs, and which point is returned.
    FiniteSum : The objective that it is for.
    SVRG : Keeps two vectors only.

    Notes
    -----
    The noise vanishes, so a constant step size converges linearly if the sum is strongly convex.
    ``1 / (16 L)`` is safe and ``1 / L`` often works; L bounds the curvature of every term (for
    logistic loss ``max |row|^2 / 4``). A function without terms counts as a sum of one term.
    Vectors kept: one for each term, and one. Let terms be batches, rather than single rows.

    References
    ----------
    .. [1] M. Schmidt, N. Le Roux, F. Bach, Minimizing finite sums with the stochastic average
       gradient, Math. Program. 162 (2017) 83-112, algorithm 1 and section 4.1.

    Examples
    --------
    >>> centres = np.array([[1.0, 0.0], [2.0, 3.0], [3.0, 6.0]])
    >>> def term(x, i):
    ...     d = x - centres[i]
    ...     return 0.5 * float(d @ d), d
    >>> solver = optim.SAG(step_size=0.2, max_iterations=300)
    >>> np.round(solver.minimize(optim.FiniteSum(term, 3), np.zeros(2)).x, 6)
    array([2., 3.])
    """

    l2: Weights = 0.0

    @property
    def slots(self) -> tuple[str, ...]:
        """The sum; beside it the memory has the gradients of which it is made."""
        return ("total",)

    @cached_property
    def penalty(self) -> ElasticNet | None:
        """The penalty of weight l2."""
        return ElasticNet(0.0, self.l2) if self.l2 else None

    def init(self, problem: Problem, x: Array) -> State:
        """Evaluate the objective at the start."""
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
        """Return a table without gradients."""
        return GradientTable(zeros_like(x))

    def fresh(self, memory: GradientTable) -> tuple[Array, ...]:
        """Return the sum: the gradients were computed before."""
        return (memory.total,)

    def update(
        self, memory: GradientTable, x: Array, gradient: Array, k: int
    ) -> tuple[Array, GradientTable]:
        """Take one step; the memory is the table of gradients."""
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
    """Stochastic variance reduced gradient: batch gradients, corrected by those at a snapshot.

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
    full_every : int, default 2
        Number of epochs between snapshots, 1 or more; the paper takes 2 for convex objectives.

    See Also
    --------
    StochasticSolver : Costs, and which point is returned.
    SAG : Keeps a gradient for each term.

    Notes
    -----
    The gradient of a step is the batch's gradient at x, minus the same batch's at the snapshot,
    plus the whole objective's at the snapshot. The noise vanishes as x approaches the snapshot,
    so a constant step size converges linearly if the objective is strongly convex. About
    ``0.1 / L`` is a good one; L bounds the curvature of every term. `Minibatches` and `FiniteSum`
    have batches; any other function is whole at every step.

    On distributed vectors a step takes two evaluations and one request per server; a snapshot
    takes one more evaluation in the same request. Vectors kept: two.

    References
    ----------
    .. [1] R. Johnson, T. Zhang, Accelerating stochastic gradient descent using predictive variance
       reduction, NIPS 2013, figure 1, option I.

    Examples
    --------
    >>> centres = np.array([[1.0, 0.0], [2.0, 3.0], [3.0, 6.0]])
    >>> def term(x, i):
    ...     d = x - centres[i]
    ...     return 0.5 * float(d @ d), d
    >>> solver = optim.SVRG(step_size=0.2, max_iterations=300)
    >>> np.round(solver.minimize(optim.FiniteSum(term, 3), np.zeros(2)).x, 6)
    array([2., 3.])
    """

    full_every: int = 2

    full_evaluations: ClassVar[int] = 1
    """If the whole is known, no batch is needed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.full_every < 1:
            raise ValueError(
                f"SVRG(full_every={self.full_every!r}): must be 1 or more, the epochs between "
                "snapshots; use SGD to train without snapshots"
            )

    @property
    def slots(self) -> tuple[str, ...]:
        """The last point at which the whole gradient was taken, and that gradient."""
        return ("snapshot", "full_gradient")

    def init_memory(self, x: Array) -> Vectors:
        """Return the start as snapshot, with a gradient that is not yet known."""
        return x, zeros_like(x)

    def update(self, memory: Vectors, x: Array, gradient: Array, k: int) -> tuple[Array, Vectors]:
        """Take one step; the memory is the snapshot."""
        return x - self.step_size_at(k) * gradient, memory

    def step(self, problem: Problem, state: State) -> State:
        """Take one iteration, if the evaluations that it takes are allowed."""
        if Batches.of(problem) and problem.remaining < 2:
            return replace(state, outcome=Outcome.LIMIT_EVALUATIONS)
        return super().step(problem, state)

    def estimate(
        self, batches: Batches, k: int, x: Array, memory: Vectors, full: Evaluation | None
    ) -> tuple[Evaluation, Vectors]:
        """Return the corrected gradient, or a new snapshot."""
        if full is not None:
            return full, (x, full[1])
        snapshot, full_gradient = memory
        value, gradient = batches.evaluate(x, k)
        _, at_snapshot = batches.evaluate(snapshot, k)
        return (value, gradient - at_snapshot + full_gradient), memory
