"""Solvers that take the rows of a table, of shape (n, k), as what they are: embeddings, groups.

A row sees nothing of the others, so that it may have a step of its own whenever it has a gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from optim.core.arrays import Array, namespace, smallest_normal
from optim.proximal.groups import L21Norm, row_norms
from optim.stochastic.adagrad import AdaGrad
from optim.stochastic.base import Vectors
from optim.stochastic.ftrl import FTRL


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
