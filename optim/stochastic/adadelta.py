"""AdaDelta: M. D. Zeiler, arXiv 1212.5701 (2012), algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass

from optim.core.arrays import Array
from optim.core.checks import check_fraction, check_positive
from optim.stochastic.base import StochasticSolver, Vectors
from optim.stochastic.schedules import Schedule


@dataclass(frozen=True, kw_only=True)
class AdaDelta(StochasticSolver):
    """Steps in the units of x, from running means of squared gradients and squared steps.

    step_size   a factor on the steps, 1 in the paper; or a schedule
    decay       of both running means: rho
    epsilon     added to both under the root; the first step is sqrt(epsilon / (1 - decay)) long

    Vectors kept: two.
    """

    step_size: float | Schedule = 1.0
    decay: float = 0.9
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(self, "decay")
        check_positive(self, "epsilon")

    @property
    def slots(self) -> tuple[str, ...]:
        """The running means."""
        return ("squared_gradients", "squared_steps")

    def update(self, memory: Vectors, x: Array, gradient: Array, k: int) -> tuple[Array, Vectors]:
        """The next x and running means."""
        squares, steps = memory
        squares = self.decay * squares + (1.0 - self.decay) * gradient * gradient
        step = ((steps + self.epsilon) / (squares + self.epsilon)) ** 0.5 * gradient
        steps = self.decay * steps + (1.0 - self.decay) * step * step
        return x - self.step_size_at(k) * step, (squares, steps)
