"""The limited-memory BFGS matrix B itself, not its inverse, as a sum of products of vectors.

J. Nocedal, S. J. Wright, Numerical Optimization, 2nd edition (2006), section 7.2, "Unrolling
the update".
"""

from __future__ import annotations

from dataclasses import dataclass

from optim.core.arrays import Array, Scalar, persist, vdot
from optim.quasi_newton.history import CurvaturePair, History


@dataclass(frozen=True)
class BFGSMatrix:
    """B v = scale * v + sum over the pairs of (y.v / s.y) y - (a.v) a, where a = B s / sqrt(s.B s).

    The B of each a is the one of the pairs before it. Positive definite, as all s.y are.
    """

    scale: Scalar
    pairs: tuple[CurvaturePair, ...] = ()
    images: tuple[Array, ...] = ()

    @classmethod
    def of(cls, history: History, scale: Scalar) -> BFGSMatrix:
        """From the pairs; `scale` is for no pairs. Costs history^2 products, and one message."""
        matrix = cls(1.0 / history.scale if history else scale)
        for pair in history.pairs:
            image = matrix @ pair.s
            a = image / vdot(pair.s, image) ** 0.5
            matrix = cls(matrix.scale, (*matrix.pairs, pair), (*matrix.images, a))
        if history:
            persist(*matrix.images, *history.newest)
        return matrix

    def __matmul__(self, v: Array) -> Array:
        product = self.scale * v
        for pair, a in zip(self.pairs, self.images, strict=True):
            product = product + (vdot(pair.y, v) / pair.sy) * pair.y - vdot(a, v) * a
        return product
