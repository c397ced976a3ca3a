"""RMSProp.

T. Tieleman, G. Hinton, COURSERA: Neural networks for machine learning, lecture 6.5 (2012);
A. Graves, arXiv 1308.0850 (2013), equations 38 to 45, the centred form.
"""

from __future__ import annotations

from dataclasses import dataclass

from optim.core.arrays import Array, namespace
from optim.core.checks import check_fraction, check_positive
from optim.stochastic.base import StochasticSolver, Vectors
from optim.stochastic.schedules import Schedule


@dataclass(frozen=True, kw_only=True)
class RMSProp(StochasticSolver):
    """The gradient divided by the root of the running mean of its square.

    step_size   a number or a schedule
    decay       of the running means
    momentum    v = momentum * v + scaled gradient; x = x - step_size * v
    centered    divide by the running standard deviation instead
    epsilon     added to the root

    Vectors kept: one, one more with momentum, one more if centered.
    """

    step_size: float | Schedule = 0.01
    decay: float = 0.99
    momentum: float = 0.0
    centered: bool = False
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(self, "decay")
        check_positive(self, "epsilon")

    @property
    def slots(self) -> tuple[str, ...]:
        """The running means, and the velocity if there is momentum."""
        mean = ("mean",) if self.centered else ()
        return ("squares", *mean, *(("velocity",) if self.momentum else ()))

    def update(self, memory: Vectors, x: Array, gradient: Array, k: int) -> tuple[Array, Vectors]:
        """The next x, running means and velocity."""
        old = dict(zip(self.slots, memory, strict=True))
        new = {"squares": self.decay * old["squares"] + (1.0 - self.decay) * gradient * gradient}
        variance = new["squares"]
        if self.centered:
            new["mean"] = self.decay * old["mean"] + (1.0 - self.decay) * gradient
            # Rounding may leave less than nothing where the gradient hardly changes.
            variance = namespace(x).maximum(variance - new["mean"] * new["mean"], 0.0)
        direction = gradient / (variance**0.5 + self.epsilon)
        if self.momentum:
            direction = new["velocity"] = self.momentum * old["velocity"] + direction
        return x - self.step_size_at(k) * direction, tuple(new.values())
