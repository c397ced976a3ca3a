"""Stochastic gradient descent with momentum.

H. Robbins, S. Monro, Ann. Math. Statist. 22 (1951); B. T. Polyak, USSR Comput. Math. Math. Phys. 4
(1964), momentum; I. Sutskever et al., ICML 2013, equations 3 and 4, Nesterov's momentum; B. T.
Polyak, A. B. Juditsky, SIAM J. Control Optim. 30 (1992), averaging.
"""

from __future__ import annotations

from dataclasses import dataclass

from optim.core.arrays import Array
from optim.stochastic.base import StochasticSolver, Vectors


@dataclass(frozen=True, kw_only=True)
class SGD(StochasticSolver):
    """Gradient descent for objectives that may be noisy.

    step_size   a number or a schedule k -> step size, k = 0, 1, ...
    momentum    v = momentum * v + gradient; x = x - step_size * v
    nesterov    step along gradient + momentum * v instead

    Vectors kept: one with momentum, else none. `StochasticSolver` tells of all other parameters,
    and which point is returned.
    """

    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov=True needs momentum, for instance SGD(momentum=0.9)")

    @property
    def slots(self) -> tuple[str, ...]:
        """The velocity, if there is momentum."""
        return ("velocity",) if self.momentum else ()

    def update(self, memory: Vectors, x: Array, gradient: Array, k: int) -> tuple[Array, Vectors]:
        """The next x and velocity."""
        step_size = self.step_size_at(k)
        if not self.momentum:
            return x - step_size * gradient, memory
        (velocity,) = memory
        velocity = self.momentum * velocity + gradient
        direction = gradient + self.momentum * velocity if self.nesterov else velocity
        return x - step_size * direction, (velocity,)
