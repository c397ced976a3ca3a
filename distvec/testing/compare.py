"""Are two results the same? Dtypes, shapes, exceptions, values to bits or within a bound, where the
paths of an iteration diverge, and whether a plan costs what it should.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array.array import DistArray

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


_BEFORE, _AFTER = 2, 5
_FLOATS = (np.ndarray, np.generic, float)


def describe_divergence(ours: Sequence[Any], theirs: Sequence[Any], first: int) -> str:
    """Which iteration is the ``first`` too far apart, and how it was before and goes on."""
    last = min(len(ours), len(theirs)) - 1
    shown = [*range(max(first - _BEFORE, 0), min(first + _AFTER, last + 1))]
    shown += [last] if shown[-1] < last else []
    steps = ", ".join(
        f"{number}: {distance_between(ours[number], theirs[number]):.1e}" for number in shown
    )
    return (
        f"the paths part at iteration {first} of 0 to {last}; "
        f"apart, relative to the largest element: {steps}"
    )


def distance_between(ours: Any, theirs: Any) -> float:
    """The largest difference of floats, each relative to the largest element of its array."""
    return max(_differences(ours, theirs), default=0.0)


def _differences(ours: Any, theirs: Any) -> Iterator[float]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in ours.keys() & theirs.keys():
            yield from _differences(ours[key], theirs[key])
    elif isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        for pair in zip(ours, theirs, strict=False):
            yield from _differences(*pair)
    elif isinstance(ours, _FLOATS) and isinstance(theirs, _FLOATS):
        mine, other = np.asarray(ours), np.asarray(theirs)
        if mine.shape != other.shape or {mine.dtype.kind, other.dtype.kind} != {"f"}:
            return
        with np.errstate(all="ignore"):
            difference = np.abs(mine - other)
            size = np.abs(other).max(initial=0.0)
            yield float(np.where(difference == 0, 0.0, difference / size).max(initial=0.0))


def assert_plan(
    *arrays: DistArray,
    messages: int | None = None,
    sweeps: int | None = None,
    vectors_read: int | None = None,
    vectors_written: int | None = None,
    programs: int | None = None,
    phases: int | None = None,
) -> None:
    """``AssertionError``, with the plan, unless computing ``arrays`` now would cost just this.

    ``messages`` to each server (one per program), ``sweeps`` over memory, vectors read (once per
    sweep) and written, ``phases`` of movements. What is not given is not checked. Nothing runs.
    """
    wanted = {
        "messages": messages,
        "sweeps": sweeps,
        "vectors_read": vectors_read,
        "vectors_written": vectors_written,
        "programs": programs,
        "phases": phases,
    }
    checked = {name: count for name, count in wanted.items() if count is not None}
    if not arrays or not checked:
        raise TypeError(
            f"assert_plan: needs arrays and at least one of {', '.join(wanted)}, "
            f"for instance assert_plan(x @ y, messages=1)"
        )
    plan = arrays[0].session.plan(*arrays)
    counts = {name: getattr(plan, name) for name in checked if name != "programs"}
    counts["programs"] = len(plan.programs)
    wrong = [
        f"{n} is {counts[n]}, not {count}" for n, count in checked.items() if counts[n] != count
    ]
    if wrong:
        raise AssertionError(f"{'; '.join(wrong)} in this plan:\n{plan}")
