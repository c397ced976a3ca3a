"""Reductions and running sums, with the parameters of the array API standard; lazy."""

from __future__ import annotations

from typing import Any

import numpy as np

from distvec.array import reductions
from distvec.array import statistics as moments
from distvec.array.standard.given import check_given


def sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The sum along ``axis``, or of all elements."""
    return reductions.sum(x, axis, dtype, keepdims=keepdims)


def prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The product along ``axis``, or of all elements."""
    return reductions.prod(x, axis, dtype, keepdims=keepdims)


def max(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The largest element along ``axis``, or of all."""
    return reductions.max(x, axis, keepdims=keepdims)


def min(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The smallest element along ``axis``, or of all."""
    return reductions.min(x, axis, keepdims=keepdims)


def mean(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The mean along ``axis``, or of all elements."""
    return reductions.mean(x, axis, keepdims=keepdims)


def std(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The standard deviation along ``axis``, or of all elements."""
    return moments.std(x, axis, correction=correction, keepdims=keepdims)


def var(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The variance along ``axis``, or of all elements."""
    return moments.var(x, axis, correction=correction, keepdims=keepdims)


def all(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether all elements along ``axis``, or all, are true."""
    return reductions.all(x, axis, keepdims=keepdims)


def any(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether some element along ``axis``, or of all, is true."""
    return reductions.any(x, axis, keepdims=keepdims)


def argmax(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Index of the first of the largest elements along ``axis``, or of all."""
    return reductions.argmax(x, axis, keepdims=keepdims)


def argmin(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Index of the first of the smallest elements along ``axis``, or of all."""
    return reductions.argmin(x, axis, keepdims=keepdims)


def count_nonzero(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """How many elements along ``axis``, or of all, are not zero."""
    return reductions.count_nonzero(x, axis, keepdims=keepdims)


def cumulative_sum(
    x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    """Running sums along ``axis``, which may be left out of a vector."""
    check_given("cumulative_sum", x)
    return np.cumulative_sum(x, axis=axis, dtype=dtype, include_initial=include_initial)


def cumulative_prod(
    x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    """Running products along ``axis``, which may be left out of a vector."""
    check_given("cumulative_prod", x)
    return np.cumulative_prod(x, axis=axis, dtype=dtype, include_initial=include_initial)


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours along ``axis``, ``n`` times."""
    check_given("diff", x)
    ends = {"prepend": prepend, "append": append}
    given = {name: end for name, end in ends.items() if end is not None}
    return np.diff(x, n, axis, **given)
