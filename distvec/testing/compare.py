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
"""Exceptions of NumPy and the servers for unsupported operands."""


def outcome(function: Callable[..., Any], *operands: object) -> tuple[Any, type[Exception] | None]:
    """Call a function, and return its value or the type of its exception.

    Parameters
    ----------
    function : callable
        The function.
    *operands : object
        Its arguments.

    Returns
    -------
    tuple
        ``(value, None)``, or ``(None, type)`` if the operands are not supported: for an
        ``ArithmeticError``, ``LookupError``, ``NotImplementedError``, ``TypeError`` or
        ``ValueError``.

    Examples
    --------
    >>> from distvec.testing import outcome
    >>> outcome(int, "3")
    (3, None)
    >>> outcome(int, "three")
    (None, <class 'ValueError'>)
    """
    try:
        with np.errstate(all="ignore"):
            return function(*operands), None
    except REFUSALS as error:
        return None, type(error)


def assert_close(
    ours: npt.NDArray[Any], theirs: npt.NDArray[Any], ulps: float = 0, what: str = "result"
) -> None:
    """Check that two arrays have equal dtypes and shapes, and nearly equal values.

    Parameters
    ----------
    ours, theirs : numpy.ndarray
        The array from the servers, and NumPy's.
    ulps : float, default 0
        Allowed difference in units in the last place. With 0 the values must be equal, including
        the signs of zeros.
    what : str, default "result"
        Name of the array in the error.

    Raises
    ------
    AssertionError
        If the arrays differ; the message has the first differing element.

    Examples
    --------
    >>> from distvec.testing import assert_close
    >>> assert_close(ps.array([0.1, 0.2]).numpy() * 3, np.array([0.3, 0.6]), ulps=1)
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
    """Check that two arrays have equal dtypes and shapes, and values within a bound.

    Parameters
    ----------
    ours, theirs : numpy.ndarray
        The array from the servers, and NumPy's.
    bound : array_like of float
        Allowed difference of each element. Non-finite values must be equal, NaN to NaN. At a bound
        of 0 the signs of zeros must be equal, too.
    what : str
        Name of the array in the error.

    Raises
    ------
    AssertionError
        If the arrays differ; the message has the first differing element.

    Examples
    --------
    >>> from distvec.testing import assert_within
    >>> assert_within(np.array([1.0, 2.5]), np.array([1.0, 2.0]), np.array([0.0, 0.5]), "x")
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
        f"{what}: {got} on servers, {expected} on NumPy{place}, allowed difference {allowed}; "
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
    """Name the ``first`` iteration that differs too much, with the differences around it."""
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
    """Check the cost of computing arrays, without computing them.

    Parameters
    ----------
    *arrays : DistArray
        Arrays of one session.
    messages : int, optional
        Number of requests to each server.
    sweeps : int, optional
        Number of passes over memory.
    vectors_read : int, optional
        Number of vectors read; a vector counts once per pass.
    vectors_written : int, optional
        Number of vectors written.
    programs : int, optional
        Number of server programs.
    phases : int, optional
        Number of stages of data exchanges.

    Raises
    ------
    AssertionError
        If a given number differs from the plan; the message contains the plan.
    TypeError
        If there is no array or no number.

    Examples
    --------
    >>> from distvec.testing import assert_plan
    >>> x = ps.array([1.0, 2.0, 3.0])
    >>> assert_plan(2 * x + 1, x @ x, messages=1, sweeps=1)
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
