"""Closed convex sets as projections, the nearest point in the 2-norm.

A set is called to project, `Box(0.0, 1.0)(x)`, and serves as the penalty that is 0 inside and inf
outside, whose proximal operator is the projection whatever the step.

Sets with a threshold (`Simplex`, `L1Ball`) find it from sums over the vector, never by sorting it:
one message for each Newton step. The others are plain expressions and cost none.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from optim.core.arrays import Array, Scalar, fetch, machine_epsilon, max_norm, namespace, vdot
from optim.core.checks import check_positive
from optim.core.trees import as_tree, named_leaves
from optim.proximal.operators import Proximal, adopt_arrays


class ConvexSet(Proximal):
    """A set with a projection."""

    @abstractmethod
    def __call__(self, x: Array) -> Array:
        """The point of the set nearest to `x`."""

    @abstractmethod
    def excess(self, x: Array) -> tuple[Scalar, Scalar]:
        """By how much `x` violates the set, at most 0 inside, and the scale to judge that by."""

    def value(self, x: Array) -> Scalar:
        """0 inside, as far as rounding lets tell; inf outside."""
        excess, scale = self.excess(x)
        xp = namespace(x)
        inside = excess <= machine_epsilon(x) ** 0.5 * scale
        return xp.where(inside, 0.0 * xp.maximum(excess, 0.0), float("inf"))

    def prox(self, x: Array, step: float) -> Array:
        """The projection."""
        return self(x)

    def feasible(self, x: Array) -> Array:
        """The projection."""
        return self(x)


@dataclass(frozen=True)
class Box(ConvexSet):
    """lower <= x <= upper; each bound a number, -inf and inf among them, or an array like x.

    Of parameters in several arrays each has its bound: Box(lower={"w": 0.0, "V": float("-inf")}).
    """

    lower: Any = float("-inf")
    upper: Any = float("inf")

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            bound = as_tree(getattr(self, name))
            for place, leaf in named_leaves(bound):
                if not hasattr(leaf, "__float__"):
                    raise TypeError(
                        f"Box({name}{place}) must be a number or an array like x, but is "
                        f"{type(leaf).__name__}; give for instance numpy.asarray({name}{place})"
                    )
            object.__setattr__(self, name, bound)
        gap = self.lower - self.upper
        (widest,) = fetch(namespace(gap).max(gap) if getattr(gap, "shape", ()) else gap)
        if not widest <= 0.0:
            raise ValueError(
                f"Box: lower exceeds upper by {widest}, or one of them is not a number; "
                "give lower <= upper for each element"
            )

    def __call__(self, x: Array) -> Array:
        """`x` with each element moved into its bounds."""
        xp = namespace(x)
        return xp.minimum(xp.maximum(x, self.lower), self.upper)

    def excess(self, x: Array) -> tuple[Scalar, Scalar]:
        """The largest violation of a bound; on the scale of x."""
        xp = namespace(x)
        return xp.max(xp.maximum(self.lower - x, x - self.upper)), max_norm(x)


@dataclass(frozen=True)
class NonNegative(ConvexSet):
    """x >= 0."""

    def __call__(self, x: Array) -> Array:
        """`x` with 0 for its negative elements."""
        return namespace(x).maximum(x, 0.0)

    def excess(self, x: Array) -> tuple[Scalar, Scalar]:
        """The most negative element; on the scale of x."""
        return namespace(x).max(-x), max_norm(x)


@dataclass(frozen=True)
class Simplex(ConvexSet):
    """x >= 0 with sum(x) = total; for total = 1 the probability simplex."""

    total: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self, "total")

    def __call__(self, x: Array) -> Array:
        """max(x - threshold, 0). One message, and one more for each Newton step."""
        (peak,) = fetch(namespace(x).max(x), also=(x,))
        return _with_sum(self.total, x, peak)

    def excess(self, x: Array) -> tuple[Scalar, Scalar]:
        """The larger violation of the sum and of the signs; on the scale of the total."""
        xp = namespace(x)
        return xp.maximum(xp.abs(xp.sum(x) - self.total), xp.max(-x)), self.total


@dataclass(frozen=True)
class L1Ball(ConvexSet):
    """sum(|x|) <= radius."""

    radius: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self, "radius")

    def __call__(self, x: Array) -> Array:
        """`x`, or sign(x) * max(|x| - threshold, 0). One message; outside more, as for Simplex."""
        xp = namespace(x)
        size = xp.abs(x)
        norm, peak = fetch(xp.sum(size), xp.max(size), also=(x,))
        if norm <= self.radius:
            return x
        return xp.sign(x) * _with_sum(self.radius, size, peak)

    def excess(self, x: Array) -> tuple[Scalar, Scalar]:
        """By how much the norm exceeds the radius; on the scale of the radius."""
        xp = namespace(x)
        return xp.sum(xp.abs(x)) - self.radius, self.radius


@dataclass(frozen=True)
class L2Ball(ConvexSet):
    """|x| <= radius, in the 2-norm."""

    radius: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self, "radius")

    def __call__(self, x: Array) -> Array:
        """`x` scaled down to the radius if it is longer."""
        return (self.radius / namespace(x).maximum(vdot(x, x) ** 0.5, self.radius)) * x

    def excess(self, x: Array) -> tuple[Scalar, Scalar]:
        """By how much the norm exceeds the radius; on the scale of the radius."""
        return vdot(x, x) ** 0.5 - self.radius, self.radius


@dataclass(frozen=True)
class Hyperplane(ConvexSet):
    """normal @ x = offset; `normal` is an array like x, or arrays arranged as x, not all 0."""

    normal: Array
    offset: float = 0.0

    def __post_init__(self) -> None:
        adopt_arrays(self, "normal")
        (largest,) = fetch(max_norm(self.normal), also=(self.normal,))
        if not 0.0 < largest < float("inf"):
            raise ValueError(
                f"Hyperplane(normal): its largest absolute value is {largest}; "
                "give finite numbers that are not all 0"
            )

    def __call__(self, x: Array) -> Array:
        """`x` moved along the normal."""
        a = self.normal
        return x - ((vdot(a, x) - self.offset) / vdot(a, a)) * a

    def excess(self, x: Array) -> tuple[Scalar, Scalar]:
        """The distance from the plane; on the scale of x."""
        xp, a = namespace(x), self.normal
        return xp.abs(vdot(a, x) - self.offset) / vdot(a, a) ** 0.5, vdot(x, x) ** 0.5


def _with_sum(total: float, x: Array, peak: float) -> Array:
    """max(x - threshold, 0) with the threshold that makes its sum `total`; `peak` is max(x).

    The sum falls, convex and piecewise linear, as the threshold rises. So Newton's method rises
    from below to the exact threshold, and ends once no element drops out any more: C. Michelot,
    J. Optim. Theory Appl. 50 (1986) 195-200. It starts with the elements within `total` of the
    peak, as no other stays positive. Mostly three to eight steps, each of one message.
    """
    xp = namespace(x)
    # Relative to the peak, a total far below the size of x keeps its digits.
    x = x - peak
    threshold = -total
    while True:
        above = x > threshold
        part, count = fetch(xp.sum(xp.where(above, x, 0.0)), xp.sum(xp.astype(above, x.dtype)))
        if not (part - total) / count > threshold:  # equal, up to rounding; or not a number
            return xp.maximum(x - threshold, 0.0)
        threshold = (part - total) / count
