"""The penalty sum(weights * |x|) and what follows from its kinks.

G. Andrew, J. Gao, Scalable training of L1-regularized log-linear models, ICML 2007.
Coordinates of weight 0 have no kink: they keep their gradient and belong to no orthant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from optim.core.arrays import Array, Scalar, fetch, fitted, namespace
from optim.core.trees import Tree, applied


@dataclass(frozen=True)
class L1:
    """`weights` is a number, or an array of the shape and dtype of x.

    `free` marks the coordinates of weight 0: a mask, or one answer for all.
    """

    weights: Any
    free: Array | bool

    @classmethod
    def like(cls, weights: Any, x: Array) -> L1:
        """With weights made to fit `x`: a number >= 0 or one such number per element.

        Of a table one for each column, of shape (k,), or for each row, of shape (n, 1), will do.
        """
        if isinstance(weights, (int, float)):
            _check_least(weights)
            return cls(float(weights), weights == 0)
        if isinstance(x, Tree):
            return cls._like_tree(weights, x)
        if np.shape(weights) == ():
            return cls.like(float(weights), x)
        own = fitted(weights, x)
        if own is None:
            raise ValueError(
                f"l1 has shape {np.shape(weights)}, but x has {tuple(x.shape)}; give a number, "
                "or one weight per element of x (0 for an unpenalised intercept)"
            )
        (least,) = fetch(namespace(x).min(own), also=(own,))
        _check_least(least)
        return cls(own, own == 0.0)

    @classmethod
    def _like_tree(cls, weights: Any, x: Tree) -> L1:
        parts = applied(cls.like, x.spread(weights, "l1"), x).leaves
        return cls(
            Tree(x.structure, tuple(part.weights for part in parts)),
            Tree(x.structure, tuple(part.free for part in parts)),
        )

    def value(self, x: Array) -> Scalar:
        """The penalty at `x`."""
        xp = namespace(x)
        return xp.sum(self.weights * xp.abs(x))

    def pseudo_gradient(self, x: Array, g: Array) -> Array:
        """The one-sided derivative where the penalised objective falls, else 0."""
        xp = namespace(x)
        shrunk = xp.sign(g) * xp.maximum(xp.abs(g) - self.weights, 0.0)
        return xp.where(x == 0.0, shrunk, g + self.weights * xp.sign(x))

    def aligned(self, d: Array, x: Array, pseudo: Array) -> Array:
        """The direction with 0 where it would leave a kink on the wrong side.

        Andrew and Gao drop every coordinate that points against -pseudo. Where x != 0 that only
        spoils the quasi-Newton direction: a short step stays in the orthant either way, and descent
        follows from H being positive definite. So only coordinates at the kink are aligned.
        """
        xp = namespace(d)
        return self._kept(d, (x != 0.0) | (xp.sign(d) == -xp.sign(pseudo)))

    def movable(self, v: Array, x: Array, pseudo: Array) -> Array:
        """`v` with 0 for the coordinates that the kink holds at 0."""
        return self._kept(v, (x != 0.0) | (pseudo != 0.0))

    def projected(self, new: Array, x: Array, pseudo: Array) -> Array:
        """`new` with 0 for what left the orthant of `x`; where x is 0, that of -pseudo."""
        xp = namespace(x)
        orthant = xp.where(x == 0.0, -xp.sign(pseudo), xp.sign(x))
        return self._kept(new, xp.sign(new) == orthant)

    def _kept(self, values: Array, where: Array) -> Array:
        if self.free is True:
            return values
        allowed = where if self.free is False else where | self.free
        return namespace(values).where(allowed, values, 0.0)


def _check_least(weight: float) -> None:
    if not weight >= 0.0:
        raise ValueError(f"l1 holds {weight}; weights must be 0 or more")
