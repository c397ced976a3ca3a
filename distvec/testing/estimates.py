"""How far the servers' results may be from NumPy's where ``Bounded`` arrays are reduced, put in
another order, or added up on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from distvec.testing.error_bounds import (
    EPSILON,
    Undecidable,
    rounding,
    total,
    unclear_truth,
    unit_in_last_place,
)

_WIDEST_EXPONENT = 900.0

Estimate = tuple[npt.NDArray[Any], Any]
"""A value, and how far that of the servers may be from it."""


class Bounded(Protocol):
    """What is reduced: see ``distvec.testing.bounded``."""

    value: npt.NDArray[Any]
    error: npt.NDArray[np.float64]
    magnitude: npt.NDArray[np.float64]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values."""

    @property
    def exact(self) -> bool:
        """Whether the servers have the very same bits."""


def sum(x: Bounded) -> Estimate:
    """``np.sum``."""
    if x.dtype.kind != "f":
        return np.sum(x.value), 0.0
    wide = x.value.astype(np.float64)
    return _round(np.sum(wide), total(wide, x.error, np.abs(wide)), x.dtype)


def mean(x: Bounded) -> Estimate:
    """``np.mean``."""
    if not x.value.size:
        raise Undecidable("the mean of an empty array is a warning on NumPy")
    wide = x.value.astype(np.float64)
    error = total(wide, x.error, np.abs(wide)) / x.value.size
    return _round(np.mean(wide), error, x.dtype if x.dtype.kind == "f" else wide.dtype)


def prod(x: Bounded) -> Estimate:
    """``np.prod``, of floats whose product cannot leave the range of float64 on the way."""
    if x.dtype.kind != "f":
        return np.prod(x.value), 0.0
    wide = x.value.astype(np.float64)
    with np.errstate(all="ignore"):
        exponents = np.abs(np.log2(np.abs(wide))).sum()
    if not x.exact or not exponents < _WIDEST_EXPONENT:
        raise Undecidable("a product that may overflow on the way, or of factors that may be off")
    value = np.prod(wide)
    return _round(value, rounding(x.value.size) * abs(value), x.dtype)


def extreme(name: str) -> Callable[[Bounded], Estimate]:
    """``np.min`` or ``np.max``."""

    def reduction(x: Bounded) -> Estimate:
        return _extreme(getattr(np, name)(x.value), x)

    return reduction


def extreme_number(ufunc: Any) -> Callable[[Bounded], Estimate]:
    """``np.nanmin`` or ``np.nanmax``, which are ``np.fmin.reduce`` and ``np.fmax.reduce``."""

    def reduction(x: Bounded) -> Estimate:
        return _extreme(ufunc.reduce(x.value), x)

    return reduction


def _extreme(value: Any, x: Bounded) -> Estimate:
    """One of the elements of ``x``; of a zero the sign is open, as zeros of both are equal."""
    if value == 0 and x.dtype.kind == "f":
        return value, max(x.error.max(), np.finfo(x.dtype).smallest_subnormal)
    return value, x.error.max() if np.isfinite(value) else 0.0


def where_extreme(name: str) -> Callable[[Bounded], Estimate]:
    """``np.argmin`` or ``np.argmax``, where the winner is clear."""

    def reduction(x: Bounded) -> Estimate:
        winner = getattr(np, name)(x.value)
        if not x.exact:
            with np.errstate(all="ignore"):
                distance = np.abs(x.value - x.value[winner])
            if not np.count_nonzero(distance <= x.error + x.error[winner]) == 1:
                raise Undecidable(f"{name} of values that may be off")
        return winner, 0.0

    return reduction


def truth(name: str) -> Callable[[Bounded], Estimate]:
    """``np.any``, ``np.all`` or ``np.count_nonzero``."""

    def reduction(x: Bounded) -> Estimate:
        if not x.exact and unclear_truth(x.value, x.error).any():
            raise Undecidable(f"{name} of values that may be 0")
        return np.asarray(getattr(np, name)(x.value)), 0.0

    return reduction


def dot(x: Bounded, y: Bounded) -> Estimate:
    """The inner product of two vectors; of scalars, a ``ValueError`` as NumPy's."""
    natural = np.matmul(x.value, y.value)
    if natural.dtype.kind != "f":
        return natural, 0.0
    a, b = x.value.astype(np.float64), y.value.astype(np.float64)
    with np.errstate(all="ignore"):
        terms = a * b
        errors = _times(np.abs(a), y.error) + _times(np.abs(b), x.error) + x.error * y.error
        magnitudes = x.magnitude * y.magnitude
        return _round(a @ b, total(terms, errors, magnitudes), natural.dtype)


def _times(magnitude: npt.NDArray[np.float64], error: npt.NDArray[np.float64]) -> Any:
    return np.where(error > 0, magnitude * error, 0.0)


def _round(value: Any, error: Any, dtype: np.dtype[Any]) -> Estimate:
    """``value``, accumulated in float64, in the dtype of the result."""
    with np.errstate(all="ignore"):
        result = np.asarray(value).astype(dtype)
    if error > 0 and np.isinf(result):
        raise Undecidable("a result near the greatest number")
    narrow = unit_in_last_place(result) if dtype.itemsize < 8 and error > 0 else 0.0
    return result, error + narrow + EPSILON * (error > 0) * abs(float(value))


REDUCTION_ESTIMATES: dict[Any, Callable[..., Estimate]] = {
    np.sum: sum,
    np.mean: mean,
    np.prod: prod,
    np.min: extreme("min"),
    np.max: extreme("max"),
    np.nanmin: extreme_number(np.fmin),
    np.nanmax: extreme_number(np.fmax),
    np.argmin: where_extreme("argmin"),
    np.argmax: where_extreme("argmax"),
    np.any: truth("any"),
    np.all: truth("all"),
    np.count_nonzero: truth("count_nonzero"),
}
"""What stands for NumPy's functions."""


def roll(x: Bounded, shift: int) -> Estimate:
    """``np.roll``."""
    return np.roll(x.value, shift), np.roll(x.error, shift)


def sort(x: Bounded) -> Estimate:
    """``np.sort``, whose order of zeros of both signs is open."""
    if x.dtype.kind == "f":
        zeros = np.signbit(x.value[x.value == 0])
        if zeros.any() and not zeros.all():
            raise Undecidable("zeros of both signs are sorted in any order")
    return np.sort(x.value), x.error.max(initial=0.0)


def argsort(x: Bounded, **stable: Any) -> Estimate:
    """``np.argsort(x, stable=True)`` of values that are the same on the servers."""
    if not x.exact:
        raise Undecidable("the order of values that may be off")
    return np.argsort(x.value, stable=True), 0.0


def cumsum(x: Bounded) -> Estimate:
    """``np.cumsum``: NumPy adds in the dtype, one after the other."""
    with np.errstate(all="ignore"):
        value = np.cumsum(x.value)
        if value.dtype.kind != "f":
            return value, 0.0
        size = np.cumsum(np.abs(x.value.astype(np.float64)) + x.error)
        unit: npt.NDArray[np.float64] = len(value) * np.finfo(value.dtype).eps * size
        error = np.cumsum(x.error) + 2 * unit
    if not np.isfinite(size).all() or (size > np.finfo(value.dtype).max / 2).any():
        raise Undecidable("running sums that may overflow on the way")
    return value, error


MOVEMENT_ESTIMATES: dict[Any, Callable[..., Estimate]] = {
    np.roll: roll,
    np.sort: sort,
    np.argsort: argsort,
    np.cumsum: cumsum,
}
"""By NumPy's function."""
