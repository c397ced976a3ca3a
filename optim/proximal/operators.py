"""Penalties as proximal operators, on single elements or on groups of them.

prox(v, step) is the minimum over u of penalty(u) + |u - v|^2 / (2 * step), for the 2-norm |.|.
N. Parikh, S. Boyd, Proximal Algorithms, Foundations and Trends in Optimization 1 (2014), chapter 6.
Groups are zero as a whole, or not at all: M. Yuan, Y. Lin, J. R. Statist. Soc. B 68 (2006) 49-67.

All are built from operators and reductions, so lazy arrays send no request here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from optim.core.arrays import Array, Scalar, Weights, fetch, namespace, smallest_normal, vdot
from optim.core.checks import check_positive
from optim.core.docstrings import inherit_sections
from optim.core.trees import as_tree, named_leaves


class Proximal(ABC):
    """Base class of penalties: convex functions with a known proximal operator.

    To write a penalty, derive from this class and define `value` and `prox` with array operators.

    See Also
    --------
    ConvexSet : The base class of sets: 0 inside and ``inf`` outside.
    ProximalGradient : Minimises a smooth function plus a penalty.

    References
    ----------
    .. [1] N. Parikh, S. Boyd, Proximal Algorithms, Foundations and Trends in Optimization 1 (2014).

    Examples
    --------
    A penalty of one's own, ``sum(max(x, 0))``:

    >>> class Positive(optim.Proximal):
    ...     def value(self, x):
    ...         xp = x.__array_namespace__()
    ...         return xp.sum(xp.maximum(x, 0.0))
    ...
    ...     def prox(self, x, step):
    ...         xp = x.__array_namespace__()
    ...         return xp.minimum(x, xp.maximum(x - step, 0.0))
    >>> Positive().prox(np.array([-1.0, 0.25, 2.0]), 0.5)
    array([-1. ,  0. ,  1.5])
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        inherit_sections(cls)

    @abstractmethod
    def value(self, x: Array) -> Scalar:
        """Evaluate the function.

        Parameters
        ----------
        x : Array
            The point.

        Returns
        -------
        Scalar
            The value, as a rank-0 array that may be lazy; ``inf`` outside the domain.
        """

    @abstractmethod
    def prox(self, x: Array, step: float) -> Array:
        """Evaluate the proximal operator.

        Parameters
        ----------
        x : Array
            The point.
        step : float
            Positive step size.

        Returns
        -------
        Array
            The minimum over u of ``value(u) + |u - x|^2 / (2 * step)``.
        """

    def feasible(self, x: Array) -> Array:
        """Return a point of the domain.

        Parameters
        ----------
        x : Array
            The point.

        Returns
        -------
        Array
            `x` itself, unless it lies outside.
        """
        return x


@dataclass(frozen=True)
class L1Norm(Proximal):
    """Penalty ``sum(weight * |x|)``, which sets elements exactly to 0 (lasso).

    Parameters
    ----------
    weight : float, Array or structure, default 1.0
        A number >= 0, or one for each element of x in an array. Elements of weight 0, such as an
        intercept, are not penalised. If x is a structure of arrays, each may have its own weight:
        ``L1Norm({"w": 0.1, "V": 0.0})``.

    Examples
    --------
    >>> optim.L1Norm(1.0).prox(np.array([3.0, -0.5]), 1.0)
    array([ 2., -0.])
    """

    weight: Weights = 1.0

    def __post_init__(self) -> None:
        _adopt_weight(self, "weight")

    def value(self, x: Array) -> Scalar:
        """Evaluate the penalty."""
        xp = namespace(x)
        return xp.sum(self.weight * xp.abs(x))

    def prox(self, x: Array, step: float) -> Array:
        """Soft thresholding (Parikh and Boyd, section 6.5.2)."""
        return _soft_threshold(x, step * self.weight)


@dataclass(frozen=True)
class L2Norm(Proximal):
    """Penalty ``weight * |x|``, the 2-norm (not squared), which sets all of x to 0, or no element.

    Parameters
    ----------
    weight : float, default 1.0
        A number >= 0.

    See Also
    --------
    SquaredL2Norm : The penalty of ridge regression.

    Examples
    --------
    >>> optim.L2Norm(1.0).prox(np.array([3.0, 4.0]), 2.5)
    array([1.5, 2. ])
    """

    weight: float = 1.0

    def __post_init__(self) -> None:
        check_weight(self, "weight")

    def value(self, x: Array) -> Scalar:
        """Evaluate the penalty."""
        return self.weight * vdot(x, x) ** 0.5

    def prox(self, x: Array, step: float) -> Array:
        """Block soft thresholding (Parikh and Boyd, section 6.5.1)."""
        return kept_part(x, vdot(x, x) ** 0.5, step * self.weight) * x


@dataclass(frozen=True)
class SquaredL2Norm(Proximal):
    """Penalty ``sum(weight * x^2) / 2`` (ridge regression).

    Parameters
    ----------
    weight : float, Array or structure, default 1.0
        A number >= 0, or one for each element of x in an array. If x is a structure of arrays, each
        may have its own weight.

    See Also
    --------
    with_l2 : Add the same penalty to an objective, for solvers of smooth objectives.

    Examples
    --------
    >>> optim.SquaredL2Norm(2.0).value(np.array([3.0, 4.0]))
    np.float64(25.0)
    """

    weight: Weights = 1.0

    def __post_init__(self) -> None:
        _adopt_weight(self, "weight")

    def value(self, x: Array) -> Scalar:
        """Evaluate the penalty."""
        return 0.5 * vdot(self.weight * x, x)

    def prox(self, x: Array, step: float) -> Array:
        """Shrinkage (Parikh and Boyd, section 6.1.1)."""
        return x / (1.0 + step * self.weight)


@dataclass(frozen=True)
class ElasticNet(Proximal):
    """Penalty ``sum(l1 * |x|) + sum(l2 * x^2) / 2``.

    Parameters
    ----------
    l1 : float, Array or structure, default 1.0
        A number >= 0, or one for each element of x in an array. If x is a structure of arrays, each
        may have its own weight: ``ElasticNet(l1={"w": 0.1, "V": 0.0}, l2=1)``.
    l2 : float, Array or structure, default 1.0
        Given like `l1`.

    Examples
    --------
    >>> optim.ElasticNet(l1=1.0, l2=1.0).prox(np.array([3.0, -0.5]), 1.0)
    array([ 1., -0.])
    """

    l1: Weights = 1.0
    l2: Weights = 1.0

    def __post_init__(self) -> None:
        _adopt_weight(self, "l1")
        _adopt_weight(self, "l2")

    def value(self, x: Array) -> Scalar:
        """Evaluate the penalty."""
        xp = namespace(x)
        return xp.sum(self.l1 * xp.abs(x)) + 0.5 * xp.sum(self.l2 * x * x)

    def prox(self, x: Array, step: float) -> Array:
        """Soft thresholding, then shrinkage (Parikh and Boyd, section 6.5.3)."""
        return _soft_threshold(x, step * self.l1) / (1.0 + step * self.l2)


@dataclass(frozen=True)
class Huber(Proximal):
    """Penalty ``weight * sum(h(x))``: h is ``x^2 / 2`` up to the threshold and linear beyond it.

    This is the penalty on parameters. ``distvec.losses.Huber`` is the loss of a row.

    Parameters
    ----------
    weight : float, default 1.0
        A number >= 0.
    threshold : float, default 1.0
        Positive absolute value of x at which h becomes linear.

    References
    ----------
    .. [1] P. J. Huber, Robust estimation of a location parameter, Ann. Math. Statist. 35 (1964)
       73-101.

    Examples
    --------
    >>> optim.Huber().value(np.array([0.5, 3.0]))
    np.float64(2.625)
    """

    weight: float = 1.0
    threshold: float = 1.0

    def __post_init__(self) -> None:
        check_weight(self, "weight")
        check_positive(self, "threshold")

    def value(self, x: Array) -> Scalar:
        """Evaluate the penalty."""
        xp = namespace(x)
        size = xp.abs(x)
        inner = xp.minimum(size, self.threshold)
        return self.weight * xp.sum(inner * (size - 0.5 * inner))

    def prox(self, x: Array, step: float) -> Array:
        """Evaluate ``x - step * h'(prox)``; h' is cut off at the threshold."""
        xp = namespace(x)
        scale = step * self.weight
        slope = xp.maximum(xp.minimum(x / (1.0 + scale), self.threshold), -self.threshold)
        return x - scale * slope


def _soft_threshold(x: Array, threshold: Any) -> Array:
    xp = namespace(x)
    return xp.sign(x) * xp.maximum(xp.abs(x) - threshold, 0.0)


def kept_part(x: Array, norm: Any, threshold: float) -> Any:
    """max(1 - threshold / norm, 0), and 0 for a norm of 0, for arrays like `x`."""
    xp = namespace(x)
    return xp.maximum(norm - threshold, 0.0) / xp.maximum(norm, smallest_normal(x))


def adopt_arrays(owner: object, name: str) -> None:
    """Let a parameter of a frozen `owner` hold an array like x, or a structure of such."""
    given = as_tree(getattr(owner, name))
    for place, leaf in named_leaves(given):
        if not hasattr(leaf, "shape"):
            raise TypeError(
                f"{type(owner).__name__}({name}{place}) must be an array like x{place}, got "
                f"{type(leaf).__name__}; give for instance numpy.full(x{place}.shape, {leaf!r})"
            )
    object.__setattr__(owner, name, given)


def _adopt_weight(owner: object, name: str) -> None:
    """The same for one that may be a number, or hold numbers; all at least 0."""
    object.__setattr__(owner, name, as_tree(getattr(owner, name)))
    check_weight(owner, name)


def check_weight(owner: object, name: str) -> None:
    """Refuse negative weights; the least of an array is read in one request."""
    given = getattr(owner, name)
    if hasattr(given, "shape") and tuple(given.shape) != ():
        (least,) = fetch(namespace(given).min(given), also=(given,))
    elif hasattr(given, "__float__"):
        least = float(given)
    else:
        raise TypeError(
            f"{type(owner).__name__}({name}) must be a number or an array like x, got "
            f"{type(given).__name__}; give for instance numpy.asarray({name})"
        )
    if not 0.0 <= least < math.inf:
        raise ValueError(
            f"{type(owner).__name__}({name}) holds {least}; weights must be finite and 0 or more"
        )


def check_proximal(owner: object, name: str, given: object) -> None:
    """Refuse any other object than a `Proximal`."""
    if not isinstance(given, Proximal):
        raise TypeError(
            f"{type(owner).__name__}({name}={given!r}): must be an optim.Proximal; give "
            "for instance L1Norm(0.1), Box(0.0, 1.0), or an instance of your own subclass of it"
        )


@dataclass(frozen=True)
class L21Norm(Proximal):
    """weight * sum of |row| over the rows of a table: sets whole rows to 0, or keeps the whole row.

    M. Yuan, Y. Lin, J. R. Statist. Soc. B 68 (2006) 49-67, with the rows as groups.
    """

    weight: float = 1.0

    def __post_init__(self) -> None:
        check_weight(self, "weight")

    def value(self, x: Array) -> Scalar:
        """Evaluate the penalty."""
        return self.weight * namespace(x).sum(row_norms(x))

    def prox(self, x: Array, step: float) -> Array:
        """Block soft thresholding of each row (Parikh and Boyd, section 6.5.4)."""
        return kept_part(x, row_norms(x), step * self.weight) * x


@dataclass(frozen=True)
class GroupLasso(Proximal):
    """Penalty ``weight * sum(|x_group|)`` over groups, which sets whole groups to 0.

    Parameters
    ----------
    labels : Array or structure of arrays
        Integer array like x: element i belongs to group ``labels[i]`` of 0 ... groups - 1. Elements
        with other labels, such as -1, belong to no group and are not penalised. If x is a structure
        of arrays, each has its array of labels.
    groups : int
        Number of groups. Each costs a pass over x: use it for dozens of groups, not for thousands.
    weight : float, default 1.0
        A number >= 0.

    Notes
    -----
    Norms are 2-norms, without weights by the size of a group. On distributed vectors a prox takes
    two requests per server for all groups together.

    References
    ----------
    .. [1] M. Yuan, Y. Lin, Model selection and estimation in regression with grouped variables,
       J. R. Statist. Soc. B 68 (2006) 49-67.

    Examples
    --------
    >>> penalty = optim.GroupLasso(np.array([0, 0, 1, 1]), groups=2)
    >>> penalty.prox(np.array([3.0, 4.0, 0.1, 0.1]), 2.5)
    array([1.5, 2. , 0. , 0. ])
    """

    labels: Array
    groups: int
    weight: float = 1.0

    def __post_init__(self) -> None:
        adopt_arrays(self, "labels")
        check_weight(self, "weight")
        check_positive(self, "groups")

    def value(self, x: Array) -> Scalar:
        """Evaluate the penalty."""
        parts = [self._part(x, group) for group in range(self.groups)]
        return self.weight * sum(vdot(part, part) ** 0.5 for part in parts)

    def prox(self, x: Array, step: float) -> Array:
        """Block soft thresholding of each group (Parikh and Boyd, section 6.5.4)."""
        # Groups are disjoint, so all norms are of x itself, and one request reads them together.
        parts = [self._part(x, group) for group in range(self.groups)]
        norms = [vdot(part, part) ** 0.5 for part in parts]
        dropped = [1.0 - kept_part(x, norm, step * self.weight) for norm in norms]
        return x - sum(part * drop for part, drop in zip(parts, dropped, strict=True))

    def _part(self, x: Array, group: int) -> Array:
        return namespace(x).where(self.labels == group, x, 0.0)


def row_norms(x: Array) -> Array:
    """The 2-norms of the rows of a table, of shape (n, 1)."""
    return namespace(x).sum(x * x, axis=-1, keepdims=True) ** 0.5
