"""NumPy's reductions that leave NaN out, fused into one sweep; ``nanmin`` and ``nanmax`` are rows
of the table.

Lazy, so what NumPy warns of when it meets the values (all are NaN) is NaN here without a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from distvec.array import reductions, statistics
from distvec.array.operators import Arithmetic, elementwise
from distvec.array.reduction_keywords import UNSAID, is_said, stored
from distvec.array.statistics import as_array, result_dtype

A = TypeVar("A", bound=Arithmetic)


def nansum(
    x: A, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
    initial: Any = UNSAID, where: Any = True,
) -> A:  # fmt: skip
    """Sum of what is not NaN."""
    rest = _without(as_array("nansum", x), 0)
    result: A = reductions.sum(rest, axis, dtype, out, keepdims, initial, where)
    return result


def nanprod(
    x: A, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
    initial: Any = UNSAID, where: Any = True,
) -> A:  # fmt: skip
    """Product of what is not NaN."""
    rest = _without(as_array("nanprod", x), 1)
    result: A = reductions.prod(rest, axis, dtype, out, keepdims, initial, where)
    return result


def nanmean(
    x: A, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *,
    where: Any = True,
) -> A:  # fmt: skip
    """Mean of what is not NaN; NaN where nothing is left."""
    if as_array("nanmean", x).dtype.kind != "f":
        return reductions.mean(x, axis, dtype, out, keepdims, where=where)
    kind = _inexact(x, dtype, out)
    if _takes_none(x, axis):
        warnings.warn("Mean of empty slice", RuntimeWarning, stacklevel=2)
    return stored(out, _mean(x, axis, keepdims, where).astype(kind), "nanmean")


def nanvar(
    x: A, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0,
    keepdims: Any = False, *, where: Any = True, mean: Any = UNSAID, correction: Any = UNSAID,
) -> A:  # fmt: skip
    """``var`` of what is not NaN; NaN where ``ddof`` leaves nothing. Two sweeps, as ``var``."""
    if as_array("nanvar", x).dtype.kind != "f":
        return statistics.var(
            x, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction
        )
    kind = _inexact(x, dtype, out)
    exact = _var(x, axis, keepdims, where, mean, statistics.taken(ddof, correction))
    return stored(out, exact.astype(kind), "nanvar")


def nanstd(
    x: A, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0,
    keepdims: Any = False, *, where: Any = True, mean: Any = UNSAID, correction: Any = UNSAID,
) -> A:  # fmt: skip
    """The square root of ``nanvar``."""
    if as_array("nanstd", x).dtype.kind != "f":
        return statistics.std(
            x, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction
        )
    kind = _inexact(x, dtype, out)
    exact = _var(x, axis, keepdims, where, mean, statistics.taken(ddof, correction))
    return stored(out, elementwise(x, "sqrt", exact).astype(kind), "nanstd")


def _mean(x: A, axis: Any, keepdims: Any, where: Any) -> A:
    total = reductions.sum(_without(x, 0), axis, np.float64, None, keepdims, where=where)
    return elementwise(x, "divide", total, _count(x, axis, keepdims, where))


def _var(x: A, axis: Any, keepdims: Any, where: Any, mean: Any, ddof: float) -> A:
    if _takes_none(x, axis):
        warnings.warn("Degrees of freedom <= 0 for slice.", RuntimeWarning, stacklevel=3)
    centre = mean if is_said(mean) else _mean(x, axis, statistics.keeps(x, axis), where)
    deviation = elementwise(x, "subtract", x.astype(np.float64), centre)
    squares = elementwise(x, "where", _is_nan(x), 0.0, deviation * deviation)
    total = reductions.sum(squares, axis, None, None, keepdims, where=where)
    freedom = elementwise(x, "subtract", _count(x, axis, keepdims, where), ddof)
    usable = elementwise(x, "greater", freedom, 0)
    return elementwise(x, "where", usable, total / freedom, np.nan)


def _takes_none(x: A, axis: Any) -> bool:
    """Whether there is nothing to reduce, as far as that is known."""
    count = reductions.count_of(x, axis)
    return isinstance(count, int) and count == 0


def _is_nan(x: A) -> A:
    return elementwise(x, "isnan", x)


def _without(x: A, instead: float) -> A:
    """``x`` with ``instead`` for NaN."""
    return elementwise(x, "where", _is_nan(x), instead, x) if x.dtype.kind == "f" else x


def _count(x: A, axis: Any, keepdims: Any, where: Any) -> A:
    """How many elements are not NaN."""
    number = elementwise(x, "logical_not", _is_nan(x))
    count: A = reductions.sum(number, axis, None, None, keepdims, where=where)
    return count


def _inexact(x: A, dtype: Any, out: Any) -> np.dtype[Any]:
    """The dtype of the result; ``TypeError`` as NumPy's for one of integers."""
    kind = result_dtype(x, dtype)
    for what, given in (("dtype", kind), ("out", out.dtype if is_said(out) else kind)):
        if given.kind != "f":
            raise TypeError(f"If a is inexact, then {what} must be inexact")
    return kind


def _place(name: str, instead: float) -> Callable[..., Any]:
    locate = reductions.of_table(name)

    def function(x: A, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> A:
        as_array(f"nan{name}", x)
        result: A = locate(_without(x, instead), axis, None, keepdims=keepdims)
        if x.dtype.kind == "f" and not reductions.has_none(x):
            nothing = reductions.any(reductions.all(_is_nan(x), axis))
            if nothing.scalar(f"nan{name}()"):
                raise ValueError("All-NaN slice encountered")
        return stored(out, result, f"nan{name}")

    function.__name__ = function.__qualname__ = f"nan{name}"
    function.__doc__ = (
        f"``{name}`` of what is not NaN. An implicit evaluation, which takes the result along: "
        f"``ValueError`` where there is nothing else."
    )
    return function


nanargmin, nanargmax = _place("argmin", np.inf), _place("argmax", -np.inf)
