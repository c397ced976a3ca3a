"""FTRL-Proximal, and solvers that step by whole rows of a table: embeddings, groups.

H. B. McMahan et al., Ad click prediction, KDD 2013, algorithm 1. A row of a table of shape (n, k)
sees none of the others, so that it may take a step of its own whenever it has a gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from optim.core.arrays import Array, namespace, smallest_normal, zeros_like
from optim.core.checks import check_positive
from optim.core.trees import as_tree
from optim.proximal.operators import L1Norm, L21Norm, row_norms
from optim.stochastic.base import StochasticSolver, Vectors
from optim.stochastic.sgd import AdaGrad


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


@dataclass(frozen=True, kw_only=True)
class RowwiseAdaGrad(AdaGrad):
    """AdaGrad with one step size for each row: by the mean of its squared gradients.

    s = s + mean of gradient^2 along the row, otherwise as `AdaGrad`: a k-th of its memory. So in
    M. Naumov et al., Deep Learning Recommendation Model, arXiv 1906.00091 (2019), and in what
    TorchRec calls EXACT_ROWWISE_ADAGRAD (D. Khudia et al., FBGEMM, arXiv 2101.05615 (2021)).

    Vectors kept: one, of shape (n, 1).
    """

    of_rows: ClassVar[frozenset[str]] = frozenset(("squares",))
    needs_table: ClassVar[bool] = True

    def init_memory(self, x: Array) -> Vectors:
        """The accumulator's start."""
        return (0.0 * x[:, :1] + self.accumulator,)

    def squared(self, gradient: Array) -> Array:
        """What is added to the means of squares."""
        xp = namespace(gradient)
        return xp.sum(gradient * gradient, axis=-1, keepdims=True) / float(gradient.shape[-1])


@dataclass(frozen=True, kw_only=True)
class GroupFTRL(FTRL):
    """FTRL with sparse group lasso: whole rows are exactly 0 until there is reason for them.

    l21     weight of sqrt(k) * |row|, on the scale of l1: against the *sum* of all gradients

    After soft thresholding by l1, a row of z no longer than l21 * sqrt(k) gives a row of zeros, any
    other is shortened by that: x = -s * max(0, 1 - l21 * sqrt(k) / |s|) / (the divisor of `FTRL`),
    where s is z after soft thresholding. So Y. Yue et al., Adaptive Optimizers with Sparse Group
    Lasso for Neural Networks in CTR Prediction, ECML PKDD 2021 (arXiv 2107.14432), Group AdaGrad,
    and its authors' code (TFPlus, SparseGroupFtrl), whose beta is 0, and whose l2 is half of ours.

    Exactly those rows are 0 that are so where the sum of gradients, proximal terms and penalties
    is least, and the others are that minimum as far as the divisors of a row's columns are equal;
    where they differ, the columns keep the proportions that they have without l21.

    Vectors kept: two.
    """

    l21: float = 0.0

    needs_table: ClassVar[bool] = True

    def init_memory(self, x: Array) -> Vectors:
        """The z for which `x` is the minimum before any gradient, and no squares."""
        z, n = super().init_memory(x)
        norms = namespace(x).maximum(row_norms(x), smallest_normal(x))
        return z - self._lasso(x).weight * (x / norms), n

    def thresholded(self, z: Array) -> Array:
        """`z` without what l1, and l21 of whole rows, keep at 0."""
        return self._lasso(z).prox(super().thresholded(z), 1.0)

    def _lasso(self, x: Array) -> L21Norm:
        return L21Norm(self.l21 * float(x.shape[-1]) ** 0.5)
