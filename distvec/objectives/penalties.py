"""Penalties of an objective, by parameter: what is smooth, and what is left to the solver.

Intercepts are never penalised: a mask says where the others are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from distvec.losses.loss import Parameter
from optim import ElasticNet, GroupLasso, L1Norm, L2Norm, Proximal, SquaredL2Norm
from optim.core.arrays import Array, Scalar, namespace, reshape_like, vdot
from optim.core.trees import Tree
from optim.proximal.projections import ConvexSet
from optim.proximal.separable import Separable

Penalty: TypeAlias = "Proximal | Sequence[Proximal] | Mapping[str, Proximal | Sequence[Proximal]]"
"""Of each parameter, several are added; or by the names of parameters."""

_OF_NO_GROUP = -1
"""A label of ``GroupLasso`` for what is not penalised."""


@dataclass(frozen=True)
class Kinked(Proximal):
    """The sum of ``terms`` at the elements of ``mask`` (all where it is None): an l1 norm, a
    penalty of groups, or first the one and then the other.

    Proximal operators of norms of groups follow that of an l1 norm: J. Friedman, T. Hastie, R.
    Tibshirani, A note on the group lasso and a sparse group lasso (2010), section 3.
    """

    terms: tuple[Proximal, ...]
    mask: Array | None = None
    box: Callable[[Array], Array] | None = None
    """Projects on bounds afterwards: exact beside l1 norms, as each element is on its own."""

    def value(self, x: Array) -> Scalar:
        """The penalty at ``x``; what ``prox`` returns is within the bounds."""
        chosen = _mask_penalised(self.mask, x)
        return sum(term.value(chosen) for term in self.terms)

    def prox(self, x: Array, step: float) -> Array:
        """Of each term in turn; what is not penalised stays."""
        new = _mask_penalised(self.mask, x)
        for term in self.terms:
            new = term.prox(new, step)
        if self.mask is not None:
            new = namespace(x).where(self.mask, new, x)
        return self.feasible(new)

    def feasible(self, x: Array) -> Array:
        """``x`` within the bounds."""
        return x if self.box is None else self.box(x)


@dataclass(frozen=True)
class Term:
    """``sum(l2 * y^2) / 2 + sum(l1 * |y|) + other(y)``, over the elements ``y`` of one parameter
    that are in ``mask``; over all where it is None."""

    l1: Any = 0.0
    l2: Any = 0.0
    other: Proximal | None = None
    mask: Array | None = None

    @property
    def has_l1(self) -> bool:
        """Whether there is an l1 norm."""
        return not _is_zero(self.l1)

    @property
    def is_smooth(self) -> bool:
        """Whether nothing is left to the solver."""
        return self.other is None and not self.has_l1

    def quadratic(self, y: Array) -> tuple[Scalar, Array] | None:
        """The smooth part and its gradient; None: there is none. No message."""
        if _is_zero(self.l2):
            return None
        chosen = _mask_penalised(self.mask, y)
        gradient = in_dtype_of(y, self.l2) * chosen
        return 0.5 * vdot(gradient, chosen), gradient

    def quadratic_product(self, v: Array) -> Array | None:
        """The Hessian of the smooth part times ``v``; None: it is 0."""
        if _is_zero(self.l2):
            return None
        return in_dtype_of(v, self.l2) * _mask_penalised(self.mask, v)

    def kinked_value(self, y: Array) -> Scalar:
        """The part that has kinks; a number where there is none. No message."""
        chosen, value = _mask_penalised(self.mask, y), 0.0
        if self.has_l1:
            xp = namespace(y)
            value = xp.sum(in_dtype_of(y, self.l1) * xp.abs(chosen))
        return value if self.other is None else value + self.other.value(chosen)

    def l1_weights(self) -> Any:
        """A number, or an array with 0 for what is not penalised, as ``OWLQN(l1=...)`` takes it."""
        if self.mask is None or not self.has_l1:
            return self.l1
        return namespace(self.mask).where(self.mask, self.l1, 0.0)

    def kinked(self, y: Array, box: Callable[[Array], Array] | None = None) -> Kinked:
        """The part that has kinks, for arrays of the dtype of ``y``, within a box."""
        l1 = (L1Norm(in_dtype_of(y, self.l1)),) if self.has_l1 else ()
        return Kinked(l1 if self.other is None else (*l1, self.other), self.mask, box)

    def plus(self, more: Term) -> Term:
        """The sum of two."""
        others = [one for one in (self.other, more.other) if one is not None]
        term = replace(
            self,
            l1=_sum(self.l1, more.l1),
            l2=_sum(self.l2, more.l2),
            other=others[0] if others else None,
        )
        if len(others) > 1 or (term.has_l1 and not isinstance(term.other, _AFTER_L1)):
            names = [type(one).__name__ for one in others] + ["an l1 norm"] * term.has_l1
            raise NotImplementedError(
                f"the sum of {' and '.join(names)} has no proximal operator here; give one of them "
                "to the objective, and minimise by optim.ADMM(penalty=..., terms=...)"
            )
        return term


_AFTER_L1 = (GroupLasso, L2Norm, type(None))


def term_of(penalty: Any, like: Array, mask: Array | None, name: str = "") -> Term:
    """The term of one parameter, an array like ``like``. TypeError, ValueError."""
    if penalty is None:
        return Term(mask=mask)
    if isinstance(penalty, (tuple, list)):
        term = Term(mask=mask)
        for one in penalty:
            term = term.plus(term_of(one, like, mask, name))
        return term
    match penalty:
        case SquaredL2Norm(weight):
            return Term(l2=_weights(weight, like, mask, "weight"), mask=mask)
        case ElasticNet(l1, l2):
            weights = _weights(l1, like, mask, "l1"), _weights(l2, like, mask, "l2")
            return Term(*weights, mask=mask)
        case L1Norm(weight):
            return Term(l1=_weights(weight, like, mask, "weight"), mask=mask)
        case GroupLasso():
            return Term(other=_fit_groups(penalty, like, mask), mask=mask)
        case ConvexSet():
            raise TypeError(
                f"penalty={penalty!r} is a set; bounds go to objective.minimize(bounds=...), other "
                "sets to a solver: optim.ProximalGradient(penalty=...).minimize(objective, x0)"
            )
        case Proximal():
            return Term(other=penalty, mask=mask)
    where = f"penalty[{name!r}]" if name else "penalty"
    raise TypeError(
        f"{where}={penalty!r}: must be a penalty of optim, such as "
        "optim.SquaredL2Norm(0.1), optim.L1Norm(0.1) or optim.ElasticNet(l1=0.1, l2=0.1)"
    )


def by_parameter(penalty: Any, parameters: Sequence[Parameter]) -> list[Any]:
    """What was given for each parameter. TypeError or ValueError for other names."""
    names = [one.name for one in parameters]
    if isinstance(penalty, Separable):
        penalty = penalty.terms
    if not isinstance(penalty, Mapping):
        return [_of_name(penalty, name) for name in names]
    if names == [""]:
        raise TypeError(
            "penalty is a dict, but there is only one array of parameters; give its penalty"
        )
    if unknown := sorted(set(penalty) - set(names)):
        raise ValueError(f"penalty has {unknown}; the parameters are {names}")
    return [penalty.get(name) for name in names]


def _of_name(penalty: Any, name: str) -> Any:
    """Of penalties with weights by names, as ``L1Norm({"w": 0.1, "V": 0.0})``, those of one."""
    if isinstance(penalty, (tuple, list)):
        return [_of_name(one, name) for one in penalty]
    if not isinstance(penalty, Proximal) or not is_dataclass(penalty):
        return penalty
    given = {one.name: getattr(penalty, one.name) for one in fields(penalty)}
    trees = {key: value.arranged() for key, value in given.items() if isinstance(value, Tree)}
    if trees and isinstance(penalty, GroupLasso):
        raise NotImplementedError(
            "groups over several arrays have no proximal operator here; give a GroupLasso for "
            f"each: penalty={{{name!r}: GroupLasso(...)}}"
        )
    for key, by_names in trees.items():
        if not isinstance(by_names, Mapping) or name not in by_names:
            raise ValueError(f"penalty: {key} of {type(penalty).__name__} lacks {name!r}")
    return replace(penalty, **{key: value[name] for key, value in trees.items()})


def _weights(given: Any, like: Array, mask: Array | None, name: str) -> Any:
    """A number, or an array that fits ``like``."""
    if np.shape(given) == ():
        return float(given)
    return _fit(given, like, mask, name, rest=0.0)


def _fit_groups(penalty: GroupLasso, like: Array, mask: Array | None) -> GroupLasso:
    labels = _fit(penalty.labels, like, mask, "labels", rest=_OF_NO_GROUP)
    return replace(penalty, labels=labels)


def _fit(given: Any, like: Array, mask: Array | None, name: str, rest: float) -> Array:
    """``given`` like ``like``; where it has no row for the intercept, with ``rest`` there."""
    count = like.shape[0] - 1
    if mask is not None and isinstance(given, (np.ndarray, list)) and len(given) == count:
        given = np.asarray(given)
        given = np.concatenate([given, np.full((1, *given.shape[1:]), rest, given.dtype)])
    found = reshape_like(given, like)
    if found is None:
        raise ValueError(
            f"penalty: {name} has shape {np.shape(given)}, but the parameter has "
            f"{tuple(like.shape)}; give a number, or an array of that shape"
        )
    return found


def in_dtype_of(y: Array, weights: Any) -> Any:
    """``weights``, a number or an array, so that products with ``y`` have its dtype."""
    if getattr(weights, "dtype", y.dtype) == y.dtype:
        return weights
    return namespace(weights).astype(weights, y.dtype)


def _mask_penalised(mask: Array | None, y: Array) -> Array:
    """``y`` with 0 for what is not penalised."""
    return y if mask is None else namespace(y).where(mask, y, 0.0)


def _is_zero(weight: Any) -> bool:
    return isinstance(weight, (int, float)) and weight == 0


def _sum(first: Any, second: Any) -> Any:
    return second if _is_zero(first) else first if _is_zero(second) else first + second
