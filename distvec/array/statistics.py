"""Statistics made of reductions: ``var``, ``std``, ``ptp``, ``average``.

Lazy, but for the sum of weights of ``average``. Floats accumulate in float64; the result has
NumPy's dtype.
"""

from __future__ import annotations

import operator
import warnings
from typing import Any, TypeVar

import numpy as np

from distvec.array import reductions
from distvec.array.creation import broadcast_to, reshape
from distvec.array.functions import full_like
from distvec.array.operators import Arithmetic, elementwise
from distvec.array.reduction_keywords import UNSAID, beside, is_said, stored
from distvec.graph.build import check_dtype

A = TypeVar("A", bound=Arithmetic)

_FLOAT = np.dtype(np.float64)


def var(
    x: A, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0,
    keepdims: Any = False, *, where: Any = True, mean: Any = UNSAID, correction: Any = UNSAID,
) -> A:  # fmt: skip
    """Mean of the squared deviations from the mean, ``ddof`` (or ``correction``) taken off the
    number of elements; NaN or infinity, with NumPy's ``RuntimeWarning``, where none is left.

    Two messages, each of one sweep that reads ``x``: the mean, then the deviations; one where
    ``mean=`` (of the shape that ``keepdims=True`` gives) is known. Source: NumPy's two passes.
    """
    exact = _var(x, axis, keepdims, where, mean, taken(ddof, correction))
    return stored(out, exact.astype(result_dtype(x, dtype)), "var")


def std(
    x: A, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0,
    keepdims: Any = False, *, where: Any = True, mean: Any = UNSAID, correction: Any = UNSAID,
) -> A:  # fmt: skip
    """The square root of ``var``, which says more."""
    exact = _var(x, axis, keepdims, where, mean, taken(ddof, correction))
    result = elementwise(x, "sqrt", exact).astype(result_dtype(x, dtype))
    return stored(out, result, "std", "same_kind")


def _var(x: A, axis: Any, keepdims: Any, where: Any, mean: Any, ddof: float) -> A:
    wide = as_array("var", x).astype(_FLOAT)
    deviation = wide - (mean if is_said(mean) else _centre(wide, axis, where))
    total = reductions.sum(deviation * deviation, axis, keepdims=keepdims, where=where)
    count = reductions.count_of(x, axis, keepdims, where)
    if isinstance(count, int) and count <= ddof:
        warnings.warn("Degrees of freedom <= 0 for slice", RuntimeWarning, stacklevel=3)
    freedom = (
        max(count - ddof, 0)
        if isinstance(count, int)
        else elementwise(x, "maximum", count - ddof, 0)
    )
    return elementwise(x, "divide", total, freedom)


def _centre(wide: A, axis: Any, where: Any) -> A:
    """The mean, in a shape that can stand beside ``wide``."""
    kept = keeps(wide, axis)
    total = reductions.sum(wide, axis, keepdims=kept, where=where)
    return elementwise(wide, "divide", total, reductions.count_of(wide, axis, kept, where))


def keeps(x: Arithmetic, axis: Any) -> bool:
    """Whether a reduction of ``x`` must keep its axes to stand beside ``x``: a number need not."""
    return x.ndim > 1 and axis is not None


def taken(ddof: float, correction: Any) -> float:
    """What is taken off the number of elements: ``ddof``, or the array API's name for it."""
    if not is_said(correction):
        return ddof
    if ddof != 0:
        raise ValueError("ddof and correction can't be provided simultaneously.")
    taken: float = correction
    return taken


def result_dtype(x: Arithmetic, dtype: Any) -> np.dtype[Any]:
    """Of a mean of ``x`` and its like: that of floats, float64 for others, or what is asked for."""
    if is_said(dtype):
        return check_dtype(dtype)
    return x.dtype if x.dtype.kind == "f" else _FLOAT


def as_array(name: str, x: A) -> A:
    """``x``, which must be an array on the servers."""
    if not isinstance(x, Arithmetic):
        raise TypeError(
            f"{name}: needs an array on the servers, got {type(x).__name__}; "
            f"use numpy.{name}, or put it there with session.array(...)"
        )
    return x


def ptp(x: A, axis: Any = None, out: Any = None, keepdims: Any = False) -> A:
    """Largest less smallest element, in one sweep."""
    most = reductions.max(as_array("ptp", x), axis, keepdims=keepdims)
    least = reductions.min(x, axis, keepdims=keepdims)
    return stored(out, elementwise(x, "subtract", most, least), "ptp", "same_kind")


def average(
    x: A, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False
) -> Any:
    """The mean with ``weights`` of the shape of ``x``, or of its length along ``axis``.

    ``returned``: the sum of the weights as well. With weights an implicit evaluation, as weights
    that sum to zero are a ``ZeroDivisionError``.
    """
    as_array("average", x)
    axis = reductions.as_axes(axis)
    if weights is None:
        mean = reductions.mean(x, axis, keepdims=keepdims)
        return (mean, full_like(mean, reductions.count_of(x, axis))) if returned else mean
    weight = weights_beside(x, axis, weights)
    at_least = x.dtype if x.dtype.kind == "f" else _FLOAT
    common = np.result_type(at_least, weight.dtype)
    wide = weight.astype(_FLOAT)
    total = reductions.sum(x.astype(_FLOAT) * wide, axis, keepdims=keepdims)
    scale = reductions.sum(_beside(wide, x), axis, keepdims=keepdims)
    result = elementwise(x, "divide", total, scale).astype(common)
    x.session.evaluate_implicitly(result, "average() with weights")
    (none_left,) = x.session.compute(reductions.any(elementwise(x, "equal", scale, 0.0)))
    if none_left.value:
        raise ZeroDivisionError("Weights sum to zero, can't be normalized")
    return (result, scale.astype(common)) if returned else result


def weights_beside(x: A, axis: Any, given: Any, name: str = "average") -> A:
    """Weights in a shape that can stand beside ``x``; errors as NumPy's."""
    weights = beside(x, given, f"{name}: weights")
    if weights.shape == x.shape:
        return weights
    if axis is None:
        raise TypeError("Axis must be specified when shapes of a and weights differ.")
    axis = operator.index(axis) % x.ndim
    if weights.shape != x.shape[axis : axis + 1]:
        raise ValueError(
            "Shape of weights must be consistent with shape of a along specified axis."
        )
    return reshape(weights, (-1, 1)) if axis == 0 and x.ndim == 2 else weights


def _beside(weight: A, x: A) -> A:
    """``weight`` in the shape of ``x``, so that it is summed as often."""
    return weight if weight.shape == x.shape else broadcast_to(weight, x.shape)
