"""The batches of a problem, for objectives that have any."""

from __future__ import annotations

from dataclasses import dataclass

from optim.core.arrays import Array
from optim.core.problem import Problem
from optim.stochastic.minibatches import Evaluation, Sampled, is_sampled


@dataclass(frozen=True)
class Batches:
    """One batch at a time of `problem`'s objective, where calling the problem sees the whole.

    A batch counts as one evaluation, however many items it has.
    """

    problem: Problem
    objective: Sampled

    @classmethod
    def of(cls, problem: Problem) -> Batches | None:
        """The batches of `problem`; None if its objective has none."""
        objective = problem.fun
        if not is_sampled(objective):
            return None
        if problem.jac is not True:
            raise ValueError(
                f"jac={problem.jac!r}: the batches of {type(objective).__name__} give the "
                "gradient themselves; leave jac out and return (value, gradient)"
            )
        return cls(problem, objective)

    @property
    def per_epoch(self) -> int:
        """After how many batches each item was seen once."""
        return self.objective.batches_per_epoch

    def evaluate(self, x: Array, k: int) -> Evaluation:
        """Value (perhaps a lazy rank-0 array) and gradient of batch k at `x`."""
        self.problem.evaluations += 1
        return self.problem.part(self.objective.batch(k))(x)
