"""Adam and AdamW.

D. P. Kingma, J. Ba, ICLR 2015, algorithm 1; I. Loshchilov, F. Hutter, Decoupled weight decay
regularization, ICLR 2019, algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from optim.core.arrays import Array
from optim.core.checks import check_fraction, check_positive
from optim.stochastic.base import StochasticSolver, Vectors
from optim.stochastic.schedules import Schedule


@dataclass(frozen=True, kw_only=True)
class Adam(StochasticSolver):
    """Steps by the running mean of the gradient over the root of that of its square.

    step_size   a number or a schedule: alpha
    beta1       decay of the mean of the gradient
    beta2       decay of the mean of its square
    epsilon     added to the root

    Vectors kept: two.
    """

    step_size: float | Schedule = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(self, "beta1")
        check_fraction(self, "beta2")
        check_positive(self, "epsilon")

    @property
    def slots(self) -> tuple[str, ...]:
        """The first and the second moment of the gradient."""
        return ("first_moment", "second_moment")

    def update(self, memory: Vectors, x: Array, gradient: Array, k: int) -> tuple[Array, Vectors]:
        """The next x and moments."""
        m, v = memory
        m = self.beta1 * m + (1.0 - self.beta1) * gradient
        v = self.beta2 * v + (1.0 - self.beta2) * gradient * gradient
        # The moments start at 0; these factors undo that bias.
        m_scale, v_scale = 1.0 / (1.0 - self.beta1 ** (k + 1)), 1.0 / (1.0 - self.beta2 ** (k + 1))
        direction = m_scale * m / ((v_scale * v) ** 0.5 + self.epsilon)
        return x - self.step_size_at(k) * direction, (m, v)


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam whose weights decay by themselves: x = (1 - step_size * weight_decay) * x - Adam's step.

    The decay is not the gradient of a penalty, so values and gradients are those of fun alone.
    """

    weight_decay: float = 1e-2

    def update(self, memory: Vectors, x: Array, gradient: Array, k: int) -> tuple[Array, Vectors]:
        """The next x and moments."""
        x = decayed(x, self.step_size_at(k), self.weight_decay)
        return super().update(memory, x, gradient, k)


def decayed(x: Array, step_size: float, weight_decay: float) -> Array:
    """Decoupled weight decay (algorithm 2, line 12): what it leaves of x, before a step."""
    return (1.0 - step_size * weight_decay) * x
