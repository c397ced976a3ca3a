"""Are two results the same? Dtypes, shapes, exceptions, and values to bits or within a bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

REFUSALS = (ArithmeticError, LookupError, NotImplementedError, TypeError, ValueError)
"""What NumPy and the servers raise for operands that they do not take."""


def outcome(function: Callable[..., Any], *operands: Any) -> tuple[Any, type[Exception] | None]:
    """The value of ``function`` and None, or None and the type of the refusal that it raised."""
    try:
        with np.errstate(all="ignore"):
            return function(*operands), None
    except REFUSALS as error:
        return None, type(error)


def assert_close(
    ours: npt.NDArray[Any], theirs: npt.NDArray[Any], ulps: float = 0, what: str = "result"
) -> None:
    """Equal dtypes and shapes, and values at most ``ulps`` units in the last place apart.

    With 0 they are equal, signs of zeros too. ``AssertionError`` that names ``what`` otherwise.
    """
    if ulps == 0 or theirs.dtype.kind != "f":
        assert_within(ours, theirs, np.zeros(theirs.shape), what)
        return
    magnitude = np.nan_to_num(np.abs(theirs), posinf=0.0)
    unit = np.spacing(np.maximum(magnitude, np.finfo(theirs.dtype).tiny))
    assert_within(ours, theirs, ulps * unit.astype(np.float64), what)


def assert_within(
    ours: npt.NDArray[Any], theirs: npt.NDArray[Any], bound: npt.NDArray[Any], what: str
) -> None:
    """Equal dtypes and shapes, and ``|ours - theirs| <= bound`` element by element.

    What is not finite must be equal, NaN to NaN; where the bound is 0, so must the sign of a zero.
    """
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        raise AssertionError(
            f"{what}: {ours.dtype} of shape {ours.shape} on servers, "
            f"{theirs.dtype} of shape {theirs.shape} on NumPy"
        )
    wrong = ~_agree(ours, theirs, np.broadcast_to(bound, theirs.shape))
    if not wrong.any():
        return
    first = tuple(int(index[0]) for index in np.nonzero(np.atleast_1d(wrong)))
    place = f" at {first[0]}" if theirs.ndim else ""
    pair = (np.atleast_1d(array)[first] for array in (ours, theirs, bound + np.zeros(theirs.shape)))
    got, expected, allowed = (repr(value.item()) for value in pair)
    raise AssertionError(
        f"{what}: {got} on servers, {expected} on NumPy{place}, where {allowed} apart is allowed; "
        f"{wrong.sum()} of {wrong.size} elements are off"
    )


def _agree(
    ours: npt.NDArray[Any], theirs: npt.NDArray[Any], bound: npt.NDArray[Any]
) -> npt.NDArray[np.bool_]:
    equal = ours == theirs
    if theirs.dtype.kind != "f":
        return np.asarray(equal)
    with np.errstate(all="ignore"):
        distance = np.abs(ours.astype(np.longdouble) - theirs.astype(np.longdouble))
    finite = np.isfinite(ours) & np.isfinite(theirs)
    both_nan = np.isnan(ours) & np.isnan(theirs)
    same_zero = (theirs != 0) | (bound > 0) | (np.signbit(ours) == np.signbit(theirs))
    return np.asarray((equal | both_nan | (finite & (distance <= bound))) & same_zero)
