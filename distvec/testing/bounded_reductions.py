"""Reductions of ``Bounded`` arrays: NumPy's values, and how far the servers' may be from them.

Servers accumulate floats in float64, so that is what NumPy is asked for here as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from distvec.testing.bounded import Bounded

_WIDEST_EXPONENT = 900.0


def sum(x: Bounded) -> Bounded:
    """``np.sum``."""
    if x.dtype.kind != "f":
        return _bounded(np.sum(x.value))
    wide = x.value.astype(np.float64)
    return _rounded(np.sum(wide), total(wide, x.error, np.abs(wide)), x.dtype)


def mean(x: Bounded) -> Bounded:
    """``np.mean``."""
    if not len(x):
        raise Undecidable("the mean of nothing is a warning on NumPy")
    wide = x.value.astype(np.float64)
    error = total(wide, x.error, np.abs(wide)) / len(x)
    return _rounded(np.mean(wide), error, x.dtype if x.dtype.kind == "f" else wide.dtype)


def prod(x: Bounded) -> Bounded:
    """``np.prod``, of floats whose product cannot leave the range of float64 on the way."""
    if x.dtype.kind != "f":
        return _bounded(np.prod(x.value))
    wide = x.value.astype(np.float64)
    with np.errstate(all="ignore"):
        exponents = np.abs(np.log2(np.abs(wide))).sum()
    if not x.exact or not exponents < _WIDEST_EXPONENT:
        raise Undecidable("a product that may overflow on the way, or of factors that may be off")
    value = np.prod(wide)
    return _rounded(value, rounding(len(x)) * abs(value), x.dtype)


def extreme(name: str) -> Callable[[Bounded], Bounded]:
    """``np.min`` or ``np.max``."""

    def reduction(x: Bounded) -> Bounded:
        value = getattr(np, name)(x.value)
        return _bounded(value, x.error.max() if np.isfinite(value) else 0.0)

    return reduction


def where_extreme(name: str) -> Callable[[Bounded], Bounded]:
    """``np.argmin`` or ``np.argmax``, where the winner is clear."""

    def reduction(x: Bounded) -> Bounded:
        winner = getattr(np, name)(x.value)
        if not x.exact:
            with np.errstate(all="ignore"):
                distance = np.abs(x.value - x.value[winner])
            if not np.count_nonzero(distance <= x.error + x.error[winner]) == 1:
                raise Undecidable(f"{name} of values that may be off")
        return _bounded(winner)

    return reduction


def truth(name: str) -> Callable[[Bounded], Bounded]:
    """``np.any``, ``np.all`` or ``np.count_nonzero``."""

    def reduction(x: Bounded) -> Bounded:
        if not x.exact and unclear_truth(x.value, x.error).any():
            raise Undecidable(f"{name} of values that may be 0")
        return _bounded(np.asarray(getattr(np, name)(x.value)))

    return reduction


def dot(x: Bounded, y: Bounded) -> Bounded:
    """The inner product of two vectors; of scalars, a ``ValueError`` as NumPy's."""
    natural = np.matmul(x.value, y.value)
    if natural.dtype.kind != "f":
        return _bounded(natural)
    a, b = x.value.astype(np.float64), y.value.astype(np.float64)
    with np.errstate(all="ignore"):
        terms = a * b
        errors = _times(np.abs(a), y.error) + _times(np.abs(b), x.error) + x.error * y.error
        magnitudes = x.magnitude * y.magnitude
        return _rounded(a @ b, total(terms, errors, magnitudes), natural.dtype)


def norm(x: Bounded) -> Bounded:
    """The Euclidean norm, which is 0 or safely not."""
    dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
    wide: Bounded = np.sqrt(dot(x.astype(np.float64), x.astype(np.float64)))
    return wide if wide.dtype == dtype else wide.astype(dtype)


def _times(magnitude: npt.NDArray[np.float64], error: npt.NDArray[np.float64]) -> Any:
    return np.where(error > 0, magnitude * error, 0.0)


def _rounded(value: Any, error: Any, dtype: np.dtype[Any]) -> Bounded:
    """``value``, accumulated in float64, in the dtype of the result."""
    with np.errstate(all="ignore"):
        result = np.asarray(value).astype(dtype)
    if error > 0 and np.isinf(result):
        raise Undecidable("a result near the greatest number")
    narrow = unit_in_last_place(result) if dtype.itemsize < 8 and error > 0 else 0.0
    return _bounded(result, error + narrow + EPSILON * (error > 0) * abs(float(value)))


def _bounded(value: Any, error: Any = 0.0) -> Bounded:
    from distvec.testing.bounded import Bounded

    return Bounded(value, error)


BY_FUNCTION: dict[Any, Callable[..., Bounded]] = {
    np.sum: sum,
    np.mean: mean,
    np.prod: prod,
    np.min: extreme("min"),
    np.max: extreme("max"),
    np.argmin: where_extreme("argmin"),
    np.argmax: where_extreme("argmax"),
    np.any: truth("any"),
    np.all: truth("all"),
    np.count_nonzero: truth("count_nonzero"),
    np.linalg.norm: norm,
}
"""What stands for NumPy's functions."""
