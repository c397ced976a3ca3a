"""Elements of ``Bounded`` arrays in another order, or added up on the way.

Each returns NumPy's values, and how far those of the servers may be from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.testing.bounded_reductions import Bounded, Estimate
from distvec.testing.error_bounds import Undecidable


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


BY_FUNCTION: dict[Any, Callable[..., Estimate]] = {
    np.roll: roll,
    np.sort: sort,
    np.argsort: argsort,
    np.cumsum: cumsum,
}
"""By NumPy's function."""
