"""Closed convex sets as projections, the nearest point in the 2-norm.

A set is called to project, `Box(0.0, 1.0)(x)`, and serves as the penalty that is 0 inside and inf
outside, whose proximal operator is the projection whatever the step.

Sets with a threshold (`Simplex`, `L1Ball`) find it from sums over the vector, never by sorting it:
one request for each Newton step. The others are plain expressions without a request.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from optim.core.arrays import (
    Array,
    Scalar,
    Weights,
    fetch,
    machine_epsilon,
    max_norm,
    namespace,
    vdot,
)
from optim.core.checks import check_positive
from optim.core.trees import as_tree, named_leaves
from optim.proximal.operators import Proximal, adopt_arrays


class ConvexSet(Proximal):
    """Base class of closed convex sets: call a set to project a vector on it.

    As a penalty a set is 0 inside and ``inf`` outside; its proximal operator is the projection. To
    write a set, derive from this class and define ``__call__`` and `excess`.

    See Also
    --------
    SpectralProjectedGradient : Minimises a smooth objective over a set.

    Examples
    --------
    A set of one's own, the vectors with equal elements:

    >>> class Equal(optim.ConvexSet):
    ...     def __call__(self, x):
    ...         return 0.0 * x + x.__array_namespace__().mean(x)
    ...
    ...     def excess(self, x):
    ...         xp = x.__array_namespace__()
    ...         return xp.max(xp.abs(x - self(x))), xp.max(xp.abs(x))
    >>> Equal()(np.array([1.0, 2.0, 6.0]))
    array([3., 3., 3.])
    """

    @abstractmethod
    def __call__(self, x: Array) -> Array:
        """Return the point of the set nearest to `x`."""

    @abstractmethod
    def excess(self, x: Array) -> tuple[Scalar, Scalar]:
        """Measure by how much a point violates the set.

        Parameters
        ----------
        x : Array
            The point.

        Returns
        -------
        tuple of (Scalar, Scalar)
            The violation, at most 0 inside, and the scale that it is compared with.
        """

    def value(self, x: Array) -> Scalar:
        """Return 0 inside, up to rounding, and ``inf`` outside."""
        excess, scale = self.excess(x)
        xp = namespace(x)
        inside = excess <= machine_epsilon(x) ** 0.5 * scale
        return xp.where(inside, 0.0 * xp.maximum(excess, 0.0), float("inf"))

    def prox(self, x: Array, step: float) -> Array:
        """Project `x`; the step does not matter."""
        return self(x)

    def feasible(self, x: Array) -> Array:
        """Project `x`."""
        return self(x)


@dataclass(frozen=True)
class Box(ConvexSet):
    """Set of all x with ``lower <= x <= upper``.

    Parameters
    ----------
    lower : float, Array or structure, default -inf
        Lower bound: a number, or an array like x. If x is a structure of arrays, each has its own
        bound: ``Box(lower={"w": 0.0, "V": float("-inf")})``.
    upper : float, Array or structure, default inf
        Upper bound, given like `lower`.

    Examples
    --------
    >>> optim.Box(0.0, np.array([1.0, 5.0]))(np.array([3.0, -4.0]))
    array([1., 0.])
    """

    lower: Weights = float("-inf")
    upper: Weights = float("inf")

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            bound = as_tree(getattr(self, name))
            for place, leaf in named_leaves(bound):
                if not hasattr(leaf, "__float__"):
                    raise TypeError(
                        f"Box({name}{place}) must be a number or an array like x, got "
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
        """Move each element of `x` into its bounds."""
        xp = namespace(x)
        return xp.minimum(xp.maximum(x, self.lower), self.upper)

    def excess(self, x: Array) -> tuple[Scalar, Scalar]:
        """Measure the largest violation of a bound, on the scale of x."""
        xp = namespace(x)
        return xp.max(xp.maximum(self.lower - x, x - self.upper)), max_norm(x)


@dataclass(frozen=True)
class NonNegative(ConvexSet):
    """Set of all x >= 0.

    Examples
    --------
    >>> optim.NonNegative()(np.array([3.0, -4.0]))
    array([3., 0.])
    """

    def __call__(self, x: Array) -> Array:
        """Replace negative elements of `x` by 0."""
        return namespace(x).maximum(x, 0.0)

    def excess(self, x: Array) -> tuple[Scalar, Scalar]:
        """Measure the most negative element, on the scale of x."""
        return namespace(x).max(-x), max_norm(x)


@dataclass(frozen=True)
class Simplex(ConvexSet):
    """Set of all x >= 0 with ``sum(x) = total``; for total 1 the probability simplex.

    Parameters
    ----------
    total : float, default 1.0
        Positive sum of the elements.

    Notes
    -----
    A projection finds a threshold by Newton's method, mostly in three to eight steps. On
    distributed vectors it takes one request per server, and one more for each step.

    References
    ----------
    .. [1] C. Michelot, A finite algorithm for finding the projection of a point onto the canonical
       simplex of R^n, J. Optim. Theory Appl. 50 (1986) 195-200.

    Examples
    --------
    >>> optim.Simplex()(np.array([1.0, 0.5, -2.0]))
    array([0.75, 0.25, 0.  ])
    """

    total: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self, "total")

    def __call__(self, x: Array) -> Array:
        """Project: ``max(x - threshold, 0)``. One request, and one more for each Newton step."""
        (peak,) = fetch(namespace(x).max(x), also=(x,))
        return _with_sum(self.total, x, peak)

    def excess(self, x: Array) -> tuple[Scalar, Scalar]:
        """Measure the larger violation of the sum and of the signs, on the scale of the total."""
        xp = namespace(x)
        return xp.maximum(xp.abs(xp.sum(x) - self.total), xp.max(-x)), self.total


@dataclass(frozen=True)
class L1Ball(ConvexSet):
    """Set of all x with ``sum(|x|) <= radius``.

    Parameters
    ----------
    radius : float, default 1.0
        Positive radius.

    Notes
    -----
    On distributed vectors a projection takes one request per server. For a point outside it takes
    as many more as for `Simplex`.

    Examples
    --------
    >>> optim.L1Ball()(np.array([1.0, -0.5, 0.0]))
    array([ 0.75, -0.25,  0.  ])
    """

    radius: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self, "radius")

    def __call__(self, x: Array) -> Array:
        """Project: `x`, or ``sign(x) * max(|x| - threshold, 0)``. One request, outside more."""
        xp = namespace(x)
        size = xp.abs(x)
        norm, peak = fetch(xp.sum(size), xp.max(size), also=(x,))
        if norm <= self.radius:
            return x
        return xp.sign(x) * _with_sum(self.radius, size, peak)

    def excess(self, x: Array) -> tuple[Scalar, Scalar]:
        """Measure by how much the norm exceeds the radius, on the scale of the radius."""
        xp = namespace(x)
        return xp.sum(xp.abs(x)) - self.radius, self.radius


@dataclass(frozen=True)
class L2Ball(ConvexSet):
    """Set of all x with ``|x| <= radius``, in the 2-norm.

    Parameters
    ----------
    radius : float, default 1.0
        Positive radius.

    Examples
    --------
    >>> optim.L2Ball()(np.array([3.0, 4.0]))
    array([0.6, 0.8])
    """

    radius: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self, "radius")

    def __call__(self, x: Array) -> Array:
        """Scale `x` down to the radius if it is longer."""
        return (self.radius / namespace(x).maximum(vdot(x, x) ** 0.5, self.radius)) * x

    def excess(self, x: Array) -> tuple[Scalar, Scalar]:
        """Measure by how much the norm exceeds the radius, on the scale of the radius."""
        return vdot(x, x) ** 0.5 - self.radius, self.radius


@dataclass(frozen=True)
class Hyperplane(ConvexSet):
    """Set of all x with ``normal @ x = offset``.

    Parameters
    ----------
    normal : Array or structure of arrays
        Array like x, finite and not all 0.
    offset : float, default 0.0
        Value of ``normal @ x`` in the set.

    Examples
    --------
    >>> optim.Hyperplane(np.array([1.0, 1.0]), offset=4.0)(np.array([0.0, 0.0]))
    array([2., 2.])
    """

    normal: Array
    offset: float = 0.0

    def __post_init__(self) -> None:
        adopt_arrays(self, "normal")
        (largest,) = fetch(max_norm(self.normal), also=(self.normal,))
        if not 0.0 < largest < float("inf"):
            raise ValueError(
                f"Hyperplane(normal): the largest absolute value must be positive and finite, got "
                f"{largest}; give finite numbers that are not all 0"
            )

    def __call__(self, x: Array) -> Array:
        """Move `x` along the normal."""
        a = self.normal
        return x - ((vdot(a, x) - self.offset) / vdot(a, a)) * a

    def excess(self, x: Array) -> tuple[Scalar, Scalar]:
        """Measure the distance from the plane, on the scale of x."""
        xp, a = namespace(x), self.normal
        return xp.abs(vdot(a, x) - self.offset) / vdot(a, a) ** 0.5, vdot(x, x) ** 0.5


def _with_sum(total: float, x: Array, peak: float) -> Array:
    """max(x - threshold, 0) with the threshold that makes its sum `total`; `peak` is max(x).

    The sum falls, convex and piecewise linear, as the threshold rises. So Newton's method rises
    from below to the exact threshold, and ends once all elements stay: C. Michelot, J. Optim.
    Theory Appl. 50 (1986) 195-200. It starts with the elements within `total` of the peak, as no
    other stays positive. Mostly three to eight steps, each of one request.
    """
    xp = namespace(x)
    # Relative to the peak, a total that is small beside x keeps its digits.
    x = x - peak
    threshold = -total
    while True:
        above = x > threshold
        part, count = fetch(xp.sum(xp.where(above, x, 0.0)), xp.sum(xp.astype(above, x.dtype)))
        if not (part - total) / count > threshold:  # Equal up to rounding, or not a number.
            return xp.maximum(x - threshold, 0.0)
        threshold = (part - total) / count
