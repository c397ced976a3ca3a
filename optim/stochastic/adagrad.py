"""AdaGrad with composite penalties: J. Duchi, E. Hazan, Y. Singer, JMLR 12 (2011) 2121-2159."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from optim.core.arrays import Array, zeros_like
from optim.core.checks import check_positive
from optim.proximal.operators import ElasticNet
from optim.stochastic.base import StochasticSolver, Vectors


@dataclass(frozen=True, kw_only=True)
class AdaGrad(StochasticSolver):
    """A step size per coordinate, by the gradients it has seen: minimises fun plus penalty.

    l1            weight of sum(|x|): a number, or an array like x of weights >= 0
    l2            weight of x @ x / 2. Of parameters in several arrays each may have its weights:
                  {"w": 0.1, "V": 0.0}
    epsilon       added to the root of the sum of squares
    accumulator   the sum of squares before the first step

    s = s + gradient^2; h = (sqrt(s) + epsilon) / step_size; then the composite mirror descent
    update (figure 1 and section 5.1): x = argmin over y of
    gradient @ y + penalty(y) + sum(h * (y - x)^2) / 2, which sets coordinates exactly to 0.

    Vectors kept: one. An array for l1 costs one message more, at the start.
    """

    l1: Any = 0.0
    l2: Any = 0.0
    epsilon: float = 1e-10
    accumulator: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "epsilon")

    @property
    def slots(self) -> tuple[str, ...]:
        """The sum of squared gradients."""
        return ("squares",)

    @cached_property
    def penalty(self) -> ElasticNet | None:
        """l1 and l2."""
        has_l1 = not isinstance(self.l1, (int, float)) or self.l1 > 0.0
        return ElasticNet(self.l1, self.l2) if has_l1 or self.l2 else None

    def init_memory(self, x: Array) -> Vectors:
        """The accumulator's start."""
        return (zeros_like(x) + self.accumulator,)

    def update(self, memory: Vectors, x: Array, gradient: Array, k: int) -> tuple[Array, Vectors]:
        """The next x and sum of squares."""
        (squares,) = memory
        squares = squares + self.squared(gradient)
        step = self.step_size_at(k) / (squares**0.5 + self.epsilon)
        x = x - step * gradient
        return (x if self.penalty is None else self.penalty.prox(x, step)), (squares,)

    def squared(self, gradient: Array) -> Array:
        """What is added to the sum of squares."""
        return gradient * gradient
