"""Limited-memory BFGS: the pairs and the two-loop recursion.

J. Nocedal, S. J. Wright, Numerical Optimization, 2nd edition (2006), algorithm 7.4, equation 7.20.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from optim.core.arrays import Array, fetch, vdot


@dataclass(frozen=True)
class CurvaturePair:
    """A step s and the gradient's change y along it, with s.y and y.y."""

    s: Array
    y: Array
    sy: float
    yy: float


@dataclass(frozen=True)
class History:
    """The last `capacity` pairs, oldest first. Immutable."""

    capacity: int
    pairs: tuple[CurvaturePair, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pairs)

    @property
    def scale(self) -> float:
        """The length of H_0 = scale * identity: s.y / y.y of the newest pair (eq. 7.20)."""
        newest = self.pairs[-1]
        return newest.sy / newest.yy

    @property
    def newest(self) -> tuple[Array, ...]:
        """The vectors of the newest pair, which lazy arrays have yet to compute."""
        return tuple(vector for pair in self.pairs[-1:] for vector in (pair.s, pair.y))

    def push(self, pair: CurvaturePair, epsilon: float) -> History:
        """With `pair`, if it has the positive curvature that keeps H positive definite."""
        if self.capacity == 0 or not pair.sy > epsilon * pair.yy > 0.0:
            return self
        return History(self.capacity, (*self.pairs, pair)[-self.capacity :])

    def restricted(self, part: Callable[[Array], Array], epsilon: float) -> History:
        """The pairs on a subspace, where `part` is the projection on it; one message.

        Pairs without positive curvature there are left out.
        """
        vectors = [(part(pair.s), part(pair.y)) for pair in self.pairs]
        dots = [dot for s, y in vectors for dot in (vdot(s, y), vdot(y, y))]
        numbers = iter(fetch(*dots, also=tuple(v for pair in vectors for v in pair)))
        history = History(self.capacity)
        for (s, y), sy, yy in zip(vectors, numbers, numbers, strict=False):
            history = history.push(CurvaturePair(s, y, sy, yy), epsilon)
        return history

    def inverse_hessian_times(
        self, q: Array, restrict: Callable[[Array], Array] = lambda v: v
    ) -> Array:
        """H q, the inverse Hessian's estimate times a vector; the dots stay lazy scalars.

        `restrict` projects on the coordinates that may move: H_0 = scale * projection. Where the
        steps s lie in that subspace, so does H q, and up to the scale it is what the recursion
        gives on the subspace alone; restricting the result instead would overshoot.
        """
        alphas = []
        for pair in reversed(self.pairs):
            alpha = vdot(pair.s, q) / pair.sy
            q = q - alpha * pair.y
            alphas.append(alpha)
        r = self.scale * restrict(q) if self.pairs else restrict(q)
        for pair, alpha in zip(self.pairs, reversed(alphas), strict=True):
            beta = vdot(pair.y, r) / pair.sy
            r = r + (alpha - beta) * pair.s
        return r
