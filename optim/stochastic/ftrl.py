"""FTRL-Proximal: H. B. McMahan et al., Ad click prediction, KDD 2013, algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from optim.core.arrays import Array, namespace, zeros_like
from optim.core.checks import check_positive
from optim.core.trees import as_tree
from optim.proximal.operators import L1Norm
from optim.stochastic.base import StochasticSolver, Vectors


@dataclass(frozen=True, kw_only=True)
class FTRL(StochasticSolver):
    """Follow the proximally regularised leader, per coordinate: sparse, exactly 0 below l1.

    step_size   alpha, a number: the paper's step sizes are alpha / (beta + sqrt(sum gradient^2))
    beta        tempers the first steps
    l1, l2      weights lambda_1 and lambda_2 (numbers or arrays like x), against the *sum* of all
                gradients so far, as in the paper

    x_k+1 is the minimum of (sum of gradients) @ x + l1 * |x|_1 + l2 / 2 * |x|^2 + proximal terms.
    So after k steps the penalties weigh 1/k of what the same numbers mean to AdaGrad or OWLQN, and
    values and gradients are those of fun alone. Without them the path is that of
    AdaGrad(step_size=alpha, epsilon=beta).

    Vectors kept: two.
    """

    step_size: float = 0.1
    beta: float = 1.0
    l1: Any = 0.0
    l2: Any = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if callable(self.step_size):
            raise TypeError(
                "FTRL(step_size=...) must be a number: the step sizes fall with the gradients "
                "already; give for instance step_size=0.1"
            )
        check_positive(self, "step_size")
        check_positive(self, "beta")

    @property
    def slots(self) -> tuple[str, ...]:
        """z and n of the paper."""
        return ("leader", "squares")

    def init_memory(self, x: Array) -> Vectors:
        """The z for which `x` is the minimum before any gradient, and no squares."""
        sign = namespace(x).sign(x)
        z = -(x * (self.beta / self.step_size + self._l2) + self._threshold.weight * sign)
        return z, zeros_like(x)

    def update(self, memory: Vectors, x: Array, gradient: Array, k: int) -> tuple[Array, Vectors]:
        """The next x, z and n."""
        z, n = memory
        root, n = n**0.5, n + gradient * gradient
        new_root = n**0.5
        sigma = (new_root - root) / self.step_size
        z = z + gradient - sigma * x
        x = -self.thresholded(z) / ((self.beta + new_root) / self.step_size + self._l2)
        return x, (z, n)

    def thresholded(self, z: Array) -> Array:
        """`z` without what the penalties that are not smooth keep at 0."""
        return self._threshold.prox(z, 1.0)

    def started(self, memory: Vectors, x: Array) -> Vectors:
        """As of a start at `x` where no gradient came yet."""
        z, n = memory
        start, _ = self.init_memory(x)
        return namespace(x).where(n == 0.0, start, z), n

    @cached_property
    def _l2(self) -> Any:
        return as_tree(self.l2)

    @cached_property
    def _threshold(self) -> L1Norm:
        return L1Norm(self.l1)
