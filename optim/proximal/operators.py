"""Penalties as proximal operators, on single elements or on groups of them.

prox(v, step) is the minimum over u of penalty(u) + |u - v|^2 / (2 * step), where |.| is the 2-norm.
N. Parikh, S. Boyd, Proximal Algorithms, Foundations and Trends in Optimization 1 (2014), chapter 6.
Groups are zero as a whole, or not at all: M. Yuan, Y. Lin, J. R. Statist. Soc. B 68 (2006) 49-67.

All are built from operators and reductions, so lazy arrays cost no message here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from optim.core.arrays import Array, Scalar, fetch, namespace, smallest_normal, vdot
from optim.core.checks import check_positive
from optim.core.trees import as_tree, named_leaves


class Proximal(ABC):
    """A convex function whose proximal operator is known: a penalty, or a set's indicator."""

    @abstractmethod
    def value(self, x: Array) -> Scalar:
        """The function at `x`, as a rank-0 array; inf outside of its domain."""

    @abstractmethod
    def prox(self, x: Array, step: float) -> Array:
        """The minimum over u of value(u) + |u - x|^2 / (2 * step), for step > 0."""

    def feasible(self, x: Array) -> Array:
        """A point of the domain: `x` itself, unless it lies outside."""
        return x


@dataclass(frozen=True)
class L1Norm(Proximal):
    """sum(weight * |x|); weight is a number >= 0, or one for each element of x in an array.

    Elements of weight 0, as an intercept's, are not penalised. Of parameters in several arrays
    each has its weight: L1Norm({"w": 0.1, "V": 0.0}).
    """

    weight: Any = 1.0

    def __post_init__(self) -> None:
        _adopt_weight(self, "weight")

    def value(self, x: Array) -> Scalar:
        """The penalty at `x`."""
        xp = namespace(x)
        return xp.sum(self.weight * xp.abs(x))

    def prox(self, x: Array, step: float) -> Array:
        """Soft thresholding (Parikh and Boyd, section 6.5.2)."""
        return _soft_threshold(x, step * self.weight)


@dataclass(frozen=True)
class L2Norm(Proximal):
    """weight * |x|: the 2-norm, not squared. It sets the whole vector to 0, or none of it."""

    weight: float = 1.0

    def __post_init__(self) -> None:
        check_weight(self, "weight")

    def value(self, x: Array) -> Scalar:
        """The penalty at `x`."""
        return self.weight * vdot(x, x) ** 0.5

    def prox(self, x: Array, step: float) -> Array:
        """Block soft thresholding (Parikh and Boyd, section 6.5.1)."""
        return kept_part(x, vdot(x, x) ** 0.5, step * self.weight) * x


@dataclass(frozen=True)
class SquaredL2Norm(Proximal):
    """sum(weight * x^2) / 2, as of ridge regression; weight is a number >= 0, or an array like x.

    Solvers for smooth objectives take it as part of the objective: `with_l2(fun, weight)`.
    """

    weight: Any = 1.0

    def __post_init__(self) -> None:
        _adopt_weight(self, "weight")

    def value(self, x: Array) -> Scalar:
        """The penalty at `x`."""
        return 0.5 * vdot(self.weight * x, x)

    def prox(self, x: Array, step: float) -> Array:
        """Shrinkage (Parikh and Boyd, section 6.1.1)."""
        return x / (1.0 + step * self.weight)


@dataclass(frozen=True)
class ElasticNet(Proximal):
    """sum(l1 * |x|) + sum(l2 * x^2) / 2; weights are numbers >= 0, or arrays like x.

    Of parameters in several arrays each has its weights: ElasticNet(l1={"w": 0.1, "V": 0.0}, l2=1).
    """

    l1: Any = 1.0
    l2: Any = 1.0

    def __post_init__(self) -> None:
        _adopt_weight(self, "l1")
        _adopt_weight(self, "l2")

    def value(self, x: Array) -> Scalar:
        """The penalty at `x`."""
        xp = namespace(x)
        return xp.sum(self.l1 * xp.abs(x)) + 0.5 * xp.sum(self.l2 * x * x)

    def prox(self, x: Array, step: float) -> Array:
        """Soft thresholding, then shrinkage (Parikh and Boyd, section 6.5.3)."""
        return _soft_threshold(x, step * self.l1) / (1.0 + step * self.l2)


@dataclass(frozen=True)
class Huber(Proximal):
    """weight * sum(h(x)): h is x^2 / 2 up to |x| = threshold, linear beyond.

    P. J. Huber, Ann. Math. Statist. 35 (1964) 73-101.
    """

    weight: float = 1.0
    threshold: float = 1.0

    def __post_init__(self) -> None:
        check_weight(self, "weight")
        check_positive(self, "threshold")

    def value(self, x: Array) -> Scalar:
        """The penalty at `x`."""
        xp = namespace(x)
        size = xp.abs(x)
        inner = xp.minimum(size, self.threshold)
        return self.weight * xp.sum(inner * (size - 0.5 * inner))

    def prox(self, x: Array, step: float) -> Array:
        """x - step * h'(prox), where h' is cut off at the threshold."""
        xp = namespace(x)
        scale = step * self.weight
        slope = xp.maximum(xp.minimum(x / (1.0 + scale), self.threshold), -self.threshold)
        return x - scale * slope


def _soft_threshold(x: Array, threshold: Any) -> Array:
    xp = namespace(x)
    return xp.sign(x) * xp.maximum(xp.abs(x) - threshold, 0.0)


def kept_part(x: Array, norm: Any, threshold: float) -> Any:
    """max(1 - threshold / norm, 0), and 0 for a norm of 0, of arrays like `x`."""
    xp = namespace(x)
    return xp.maximum(norm - threshold, 0.0) / xp.maximum(norm, smallest_normal(x))


def adopt_arrays(owner: object, name: str) -> None:
    """Let a parameter that holds an array like x be one of a frozen `owner`, for trees as well."""
    given = as_tree(getattr(owner, name))
    for place, leaf in named_leaves(given):
        if not hasattr(leaf, "shape"):
            raise TypeError(
                f"{type(owner).__name__}({name}{place}) must be an array like x{place}, but is "
                f"{type(leaf).__name__}; give for instance numpy.full(x{place}.shape, {leaf!r})"
            )
    object.__setattr__(owner, name, given)


def _adopt_weight(owner: object, name: str) -> None:
    """The same for one that may be a number, or hold numbers; all at least 0."""
    object.__setattr__(owner, name, as_tree(getattr(owner, name)))
    check_weight(owner, name)


def check_weight(owner: object, name: str) -> None:
    """Refuse negative weights; reading the least of an array costs one message."""
    given = getattr(owner, name)
    if hasattr(given, "shape") and tuple(given.shape) != ():
        (least,) = fetch(namespace(given).min(given), also=(given,))
    elif hasattr(given, "__float__"):
        least = float(given)
    else:
        raise TypeError(
            f"{type(owner).__name__}({name}) must be a number or an array like x, but is "
            f"{type(given).__name__}; give for instance numpy.asarray({name})"
        )
    if not 0.0 <= least < math.inf:
        raise ValueError(f"{type(owner).__name__}({name}) holds {least}; weights must be 0 or more")


def check_proximal(owner: object, name: str, given: object) -> None:
    """Refuse what is no `Proximal`."""
    if not isinstance(given, Proximal):
        raise TypeError(
            f"{type(owner).__name__}({name}={given!r}): must be an optim.Proximal; give "
            "for instance L1Norm(0.1), Box(0.0, 1.0), or an instance of your own subclass of it"
        )


@dataclass(frozen=True)
class L21Norm(Proximal):
    """weight * sum of |row| over the rows of a table: sets whole rows to 0, or nothing of them.

    M. Yuan, Y. Lin, J. R. Statist. Soc. B 68 (2006) 49-67, where the rows are the groups.
    """

    weight: float = 1.0

    def __post_init__(self) -> None:
        check_weight(self, "weight")

    def value(self, x: Array) -> Scalar:
        """The penalty at `x`."""
        return self.weight * namespace(x).sum(row_norms(x))

    def prox(self, x: Array, step: float) -> Array:
        """Block soft thresholding of each row (Parikh and Boyd, section 6.5.4)."""
        return kept_part(x, row_norms(x), step * self.weight) * x


@dataclass(frozen=True)
class GroupLasso(Proximal):
    """weight * sum over groups of |x_group|, the 2-norm: groups are zero as a whole, or not at all.

    labels      an integer array like x; element i belongs to group labels[i] of 0 ... groups - 1.
                Any other label, as -1, is of no group and is not penalised. Of parameters in
                several arrays each has its array of labels
    groups      how many groups there are. Each costs a sweep over x: meant for dozens, not for
                thousands

    M. Yuan, Y. Lin, J. R. Statist. Soc. B 68 (2006) 49-67, without their weights by group size.
    """

    labels: Array
    groups: int
    weight: float = 1.0

    def __post_init__(self) -> None:
        adopt_arrays(self, "labels")
        check_weight(self, "weight")
        check_positive(self, "groups")

    def value(self, x: Array) -> Scalar:
        """The penalty at `x`."""
        parts = [self._part(x, group) for group in range(self.groups)]
        return self.weight * sum(vdot(part, part) ** 0.5 for part in parts)

    def prox(self, x: Array, step: float) -> Array:
        """Block soft thresholding of each group (Parikh and Boyd, section 6.5.4)."""
        # All norms are of x itself, as groups are disjoint: lazy arrays read them together.
        parts = [self._part(x, group) for group in range(self.groups)]
        norms = [vdot(part, part) ** 0.5 for part in parts]
        dropped = [1.0 - kept_part(x, norm, step * self.weight) for norm in norms]
        return x - sum(part * drop for part, drop in zip(parts, dropped, strict=True))

    def _part(self, x: Array, group: int) -> Array:
        return namespace(x).where(self.labels == group, x, 0.0)


def row_norms(x: Array) -> Array:
    """The 2-norms of the rows of a table, of shape (n, 1)."""
    return namespace(x).sum(x * x, axis=-1, keepdims=True) ** 0.5
