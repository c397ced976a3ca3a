"""Statistics made of reductions, those that leave NaN out, covariance and correlation.

Lazy, but for the sum of weights of ``average``. Floats accumulate in float64; the result has
NumPy's dtype. What NumPy warns of when it meets the values (all are NaN) is NaN without a warning.

Covariances: deviations from the means are multiplied and added up by servers, as in ``T.T @ U``.
Two messages: the means, then the products, each of one sweep that reads what it is given once.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from distvec.array import reductions
from distvec.array.core.handle import express, host_array, is_split_by_columns, make
from distvec.array.core.keywords import NOT_GIVEN, is_given, store
from distvec.array.core.operators import Arithmetic, as_array, as_operand, elementwise, raise_if_any
from distvec.array.core.shapes import broadcast_to, reshape, squeeze
from distvec.array.elementwise import apply, full_like
from distvec.array.transposed import supports_column_split, transpose
from distvec.graph import build
from distvec.graph.build import check_dtype
from ps_backend.program.types import client_type

A = TypeVar("A", bound=Arithmetic)

_FLOAT = np.dtype(np.float64)


@supports_column_split()
def var(
    x: A, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0,
    keepdims: Any = False, *, where: Any = True, mean: Any = NOT_GIVEN, correction: Any = NOT_GIVEN,
) -> A:  # fmt: skip
    """Mean of the squared deviations from the mean, ``ddof`` (or ``correction``) taken off the
    number of elements; NaN or infinity, with NumPy's ``RuntimeWarning``, where none is left.

    Two messages, each of one sweep that reads ``x``: the mean, then the deviations; one where
    ``mean=`` (of the shape that ``keepdims=True`` gives) is known. Source: NumPy's two passes.
    """
    exact = _var(x, axis, keepdims, where, mean, taken(ddof, correction))
    return store(out, exact.astype(result_dtype(x, dtype)), "var", "unsafe")


@supports_column_split()
def std(
    x: A, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0,
    keepdims: Any = False, *, where: Any = True, mean: Any = NOT_GIVEN, correction: Any = NOT_GIVEN,
) -> A:  # fmt: skip
    """The square root of ``var``, which says more."""
    exact = _var(x, axis, keepdims, where, mean, taken(ddof, correction))
    result = elementwise(x, "sqrt", exact).astype(result_dtype(x, dtype))
    return store(out, result, "std", "same_kind")


def _var(x: A, axis: Any, keepdims: Any, where: Any, mean: Any, ddof: float) -> A:
    wide = as_array("var", x).astype(_FLOAT)
    deviation = wide - (mean if is_given(mean) else _centre(wide, axis, where))
    total = reductions.sum(deviation * deviation, axis, keepdims=keepdims, where=where)
    count = reductions.count_reduced(x, axis, keepdims, where)
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
    kept = must_keep_axes(wide, axis)
    total = reductions.sum(wide, axis, keepdims=kept, where=where)
    return elementwise(wide, "divide", total, reductions.count_reduced(wide, axis, kept, where))


def must_keep_axes(x: Arithmetic, axis: Any) -> bool:
    """Whether a reduction of ``x`` must keep its axes to stand beside ``x``: a number need not."""
    return x.ndim > 1 and axis is not None


def taken(ddof: float, correction: Any) -> float:
    """What is taken off the number of elements: ``ddof``, or the array API's name for it."""
    if not is_given(correction):
        return ddof
    if ddof != 0:
        raise ValueError("ddof and correction can't be provided simultaneously.")
    taken: float = correction
    return taken


def result_dtype(x: Arithmetic, dtype: Any) -> np.dtype[Any]:
    """Of a mean of ``x`` and its like: that of floats, float64 for others, or what is asked for."""
    if is_given(dtype):
        return check_dtype(dtype)
    return x.dtype if x.dtype.kind == "f" else _FLOAT


def ptp(x: A, axis: Any = None, out: Any = None, keepdims: Any = False) -> A:
    """Largest less smallest element, in one sweep."""
    most = reductions.max(as_array("ptp", x), axis, keepdims=keepdims)
    least = reductions.min(x, axis, keepdims=keepdims)
    return store(out, elementwise(x, "subtract", most, least), "ptp", "same_kind")


@supports_column_split()
def average(
    x: A, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False
) -> Any:
    """The mean with ``weights`` of the shape of ``x``, or of its length along ``axis``.

    ``returned``: the sum of the weights as well. With weights an implicit evaluation, as weights
    that sum to zero are a ``ZeroDivisionError``.
    """
    as_array("average", x)
    axis = reductions.as_axis_tuple(axis)
    if weights is None:
        mean = reductions.mean(x, axis, keepdims=keepdims)
        return (mean, full_like(mean, reductions.count_reduced(x, axis))) if returned else mean
    weight = align_weights(x, axis, weights)
    at_least = x.dtype if x.dtype.kind == "f" else _FLOAT
    common = np.result_type(at_least, weight.dtype)
    wide = weight.astype(_FLOAT)
    total = reductions.sum(x.astype(_FLOAT) * wide, axis, keepdims=keepdims)
    scale = reductions.sum(_broadcast_weight(wide, x), axis, keepdims=keepdims)
    result = elementwise(x, "divide", total, scale).astype(common)
    x.session.evaluate_implicitly(result, "average() with weights")
    (none_left,) = x.session.compute(reductions.any(elementwise(x, "equal", scale, 0.0)))
    if none_left.value:
        raise ZeroDivisionError("Weights sum to zero, can't be normalized")
    return (result, scale.astype(common)) if returned else result


def align_weights(x: A, axis: Any, given: Any, name: str = "average") -> A:
    """Weights in a shape that can stand beside ``x``; errors as NumPy's."""
    weights = as_operand(x, given, f"{name}: weights")
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


def _broadcast_weight(weight: A, x: A) -> A:
    """``weight`` in the shape of ``x``, so that it is summed as often."""
    return weight if weight.shape == x.shape else broadcast_to(weight, x.shape)


def nansum(
    x: A, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
    initial: Any = NOT_GIVEN, where: Any = True,
) -> A:  # fmt: skip
    """Sum of what is not NaN."""
    rest = _without(as_array("nansum", x), 0)
    result: A = reductions.sum(rest, axis, dtype, out, keepdims, initial, where)
    return result


def nanprod(
    x: A, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
    initial: Any = NOT_GIVEN, where: Any = True,
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
    return store(out, _mean(x, axis, keepdims, where).astype(kind), "nanmean", "unsafe")


def nanvar(
    x: A, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0,
    keepdims: Any = False, *, where: Any = True, mean: Any = NOT_GIVEN, correction: Any = NOT_GIVEN,
) -> A:  # fmt: skip
    """``var`` of what is not NaN; NaN where ``ddof`` leaves nothing. Two sweeps, as ``var``."""
    if as_array("nanvar", x).dtype.kind != "f":
        return var(
            x, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction
        )
    kind = _inexact(x, dtype, out)
    exact = _nanvar(x, axis, keepdims, where, mean, taken(ddof, correction))
    return store(out, exact.astype(kind), "nanvar", "unsafe")


def nanstd(
    x: A, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0,
    keepdims: Any = False, *, where: Any = True, mean: Any = NOT_GIVEN, correction: Any = NOT_GIVEN,
) -> A:  # fmt: skip
    """The square root of ``nanvar``."""
    if as_array("nanstd", x).dtype.kind != "f":
        return std(
            x, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction
        )
    kind = _inexact(x, dtype, out)
    exact = _nanvar(x, axis, keepdims, where, mean, taken(ddof, correction))
    return store(out, elementwise(x, "sqrt", exact).astype(kind), "nanstd", "unsafe")


def _mean(x: A, axis: Any, keepdims: Any, where: Any) -> A:
    total = reductions.sum(_without(x, 0), axis, np.float64, None, keepdims, where=where)
    return elementwise(x, "divide", total, _count(x, axis, keepdims, where))


def _nanvar(x: A, axis: Any, keepdims: Any, where: Any, mean: Any, ddof: float) -> A:
    if _takes_none(x, axis):
        warnings.warn("Degrees of freedom <= 0 for slice.", RuntimeWarning, stacklevel=3)
    centre = mean if is_given(mean) else _mean(x, axis, must_keep_axes(x, axis), where)
    deviation = elementwise(x, "subtract", x.astype(np.float64), centre)
    squares = elementwise(x, "where", _is_nan(x), 0.0, deviation * deviation)
    total = reductions.sum(squares, axis, None, None, keepdims, where=where)
    freedom = elementwise(x, "subtract", _count(x, axis, keepdims, where), ddof)
    usable = elementwise(x, "greater", freedom, 0)
    return elementwise(x, "where", usable, total / freedom, np.nan)


def _takes_none(x: A, axis: Any) -> bool:
    """Whether there is nothing to reduce, as far as that is known."""
    count = reductions.count_reduced(x, axis)
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
    for what, given in (("dtype", kind), ("out", out.dtype if is_given(out) else kind)):
        if given.kind != "f":
            raise TypeError(f"If a is inexact, then {what} must be inexact")
    return kind


def _place(name: str, instead: float) -> Callable[..., Any]:
    locate = reductions.reduction_function(name)

    def function(x: A, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> A:
        as_array(f"nan{name}", x)
        result: A = locate(_without(x, instead), axis, None, keepdims=keepdims)
        if x.dtype.kind == "f" and not reductions.is_empty(x):
            nothing = reductions.any(reductions.all(_is_nan(x), axis))
            if nothing.scalar(f"nan{name}()"):
                raise ValueError("All-NaN slice encountered")
        return store(out, result, f"nan{name}", "unsafe")

    function.__name__ = function.__qualname__ = f"nan{name}"
    function.__doc__ = (
        f"``{name}`` of what is not NaN. An implicit evaluation, which takes the result along: "
        f"``ValueError`` where there is nothing else."
    )
    return function


nanargmin, nanargmax = _place("argmin", np.inf), _place("argmax", -np.inf)


def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None,
    fweights: Any = None, aweights: Any = None, *, dtype: Any = None,
) -> Any:  # fmt: skip
    """The covariances of variables, which are vectors, the rows of tables, or with
    ``rowvar=False`` their columns; those of ``m`` come before those of ``y``. Lazy.

    Of k columns ``(k, k)`` numbers, which the client keeps. Of n rows a table ``(n, n)``, for which
    all of ``m`` goes through the client. Weights are looked at: implicit evaluations.
    Source: ``numpy.cov``; accumulated in float64.
    """
    if ddof is not None and ddof != int(ddof):
        raise ValueError("ddof must be integer")
    kind = _FLOAT if dtype is None else check_dtype(dtype)
    if rowvar and np.ndim(m) == 2 and not len(m):
        kind = _FLOAT  # of no variables, as NumPy, whatever dtype= says
    if kind.kind != "f":
        raise TypeError(
            f"cov: deviations are floats, which are not cast to {kind} by the rule 'same_kind'; "
            f"leave dtype= out, and write .astype({kind.name!r})"
        )
    given = [_variables(one, rowvar) for one in (m, y) if one is not None]
    taken = 1 - bool(bias) if ddof is None else int(ddof)
    if fweights is not None or aweights is not None:
        if len(given) > 1:
            raise NotImplementedError(
                "cov: weights of two arrays; put their columns together first, as in "
                "numpy.cov(numpy.column_stack([x, y]), rowvar=False, aweights=w)"
            )
        return _weighted_covariance(given[0], fweights, aweights, taken).astype(kind)
    if given[0].shape[-1] != given[-1].shape[-1]:
        raise ValueError(
            f"cov: {given[0].shape[-1]} observations of the one array and {given[-1].shape[-1]} of "
            f"the other; give as many of both"
        )
    away = [_deviations(one) for one in given]
    freedom = _freedom(given[0], taken)
    if len(away) == 1:
        products = away[0] @ transpose(away[0])
        return squeeze(products / freedom).astype(kind)
    return (_blocks(away) / freedom).astype(kind)


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    """The correlations of variables: their covariances, as of ``cov``, over their deviations."""
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return c / c  # NaN of what does not vary
    deviations = apply("sqrt", _diagonal(c))
    ratio = c / reshape(deviations, (-1, 1)) / deviations
    return apply("minimum", apply("maximum", ratio, -1.0), 1.0)


def _diagonal(c: Any) -> Any:
    is_diagonal = np.eye(len(c), dtype=np.bool_)
    return reductions.sum(apply("where", host_array(c, is_diagonal), c, 0.0), 1)


def _variables(x: Any, rowvar: bool) -> Any:
    """``x`` in float64 with observations along its last axis."""
    if as_array("cov", x).ndim < 2:
        return reshape(x.astype(_FLOAT), (1,)) if x.ndim == 0 else x.astype(_FLOAT)
    return x.astype(_FLOAT) if rowvar else transpose(x.astype(_FLOAT))


def _deviations(x: Any) -> Any:
    """``x`` less its mean over the observations."""
    if x.is_split_by_columns:
        return transpose(x.table - reductions.sum(x.table, 0) / len(x.table))
    if x.ndim == 1:
        return x - reductions.sum(x) / reductions.count_reduced(x)
    return x - reductions.sum(x, 1, keepdims=True) / x.shape[1]


def _weighted_covariance(x: Any, fweights: Any, aweights: Any, ddof: int) -> Any:
    """The covariances of observations that count so often, or weigh so much."""
    count = x.shape[-1]
    often = _weights(x, fweights, "fweights", count)
    heavy = _weights(x, aweights, "aweights", count)
    if often is not None:
        raise_if_any(often != apply("round", often), TypeError, "fweights must be integer")
    weights = often if heavy is None else heavy if often is None else often * heavy
    total = reductions.sum(weights)
    left = total - ddof
    if heavy is not None and ddof:
        left = total - ddof * reductions.sum(weights * heavy) / total
    mean = np.average(x, axis=x.ndim - 1, weights=weights)
    away = x - (reshape(mean, (-1, 1)) if x.ndim == 2 else mean)
    return squeeze((away * weights) @ transpose(away) / apply("maximum", left, 0.0))


def _weights(like: Any, given: Any, name: str, count: int) -> Any:
    """Weights of ``count`` observations in a vector on the servers; errors as NumPy's."""
    if given is None:
        return None
    weights = given if hasattr(given, "node") else like.session.array(np.asarray(given))
    if weights.ndim > 1:
        raise RuntimeError(f"cannot handle multidimensional {name}")
    if weights.shape != (count,):
        raise RuntimeError(f"incompatible numbers of samples and {name}")
    raise_if_any(weights < 0, ValueError, f"{name} cannot be negative")
    return weights.astype(_FLOAT)


def _freedom(x: Any, ddof: int) -> Any:
    count = reductions.count_reduced(x) if x.ndim == 1 else x.shape[1]
    if isinstance(count, int) and count <= ddof:
        warnings.warn("Degrees of freedom <= 0 for slice", RuntimeWarning, stacklevel=3)
    left = count - ddof
    return max(left, 0) if isinstance(count, int) else apply("maximum", left, 0)


def _blocks(away: list[Any]) -> Any:
    """The products of the variables of two arrays with each other, as the client keeps them."""
    if any(x.ndim == 2 and not is_split_by_columns(x) for x in away):
        raise NotImplementedError(
            "cov: of two arrays the variables must be vectors or columns; "
            "put the observations into the rows of the tables and say rowvar=False"
        )
    first, second = away
    across = first @ transpose(second)
    parts = (first @ transpose(first), across, transpose(across), second @ transpose(second))
    sizes = [len(x) if x.ndim == 2 else 1 for x in away]
    extents = [(row, column) for row in sizes for column in sizes]
    blocks = [
        express(part, build.reshape, part, extent)
        for part, extent in zip(parts, extents, strict=True)
    ]
    return make(across, "client.block", blocks, client_type(_FLOAT, (sum(sizes), sum(sizes))))
