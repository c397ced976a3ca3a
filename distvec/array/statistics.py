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
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array import reductions
from distvec.array.core.handle import express, host_array, is_split_by_columns, make
from distvec.array.core.keywords import NOT_GIVEN, is_given, store
from distvec.array.core.operators import (
    A,
    Arithmetic,
    as_array,
    as_operand,
    elementwise,
    raise_if_any,
)
from distvec.array.core.shapes import broadcast_to, reshape, squeeze
from distvec.array.elementwise import apply, full_like
from distvec.array.transposed import supports_column_split, transpose
from distvec.graph import build
from distvec.graph.build import check_dtype
from ps_backend.program.types import client_type

_FLOAT = np.dtype(np.float64)


@supports_column_split()
def var(
    x: A, axis: int | tuple[int, ...] | None = None, dtype: npt.DTypeLike | None = None, out: A |
    None = None, ddof: float = 0, keepdims: bool = False, *, where: A | npt.ArrayLike = True, mean:
    A | npt.ArrayLike = NOT_GIVEN, correction: float = NOT_GIVEN,
) -> A:  # fmt: skip
    """Compute the variance, of all elements or along an axis.

    Parameters
    ----------
    x : DistArray
        Input array of rank 0, 1 or 2.
    axis : int or tuple of int, optional
        Axis to reduce. None (default) reduces all elements.
    dtype : dtype, optional
        Dtype of the result. Default: floats keep theirs, other dtypes give float64.
    out : DistArray, optional
        Array of the result's shape that receives the result.
    ddof : float, default 0
        Subtracted from the number of elements in the divisor.
    keepdims : bool, default False
        Keep each reduced axis with length 1.
    where : array_like of bool, default True
        Mask that is broadcast to ``x``; only elements with a true mask are reduced.
    mean : array_like, optional
        Known mean, of the shape that ``keepdims=True`` gives.
    correction : float, optional
        Name of ``ddof`` in the array API.

    Returns
    -------
    DistArray
        Lazy scalar, or lazy array without the reduced axis.

    Raises
    ------
    ValueError
        If both ``ddof`` and ``correction`` are given.

    See Also
    --------
    numpy.var : The same function of arrays on the client.

    Notes
    -----
    Two requests per server, each with one pass over memory: the mean, then the deviations from it.
    With ``mean`` it is one. If the divisor is 0, the result is NaN or infinity, with NumPy's
    ``RuntimeWarning``.

    Examples
    --------
    >>> dv.var(ps.array([1.0, 2.0, 3.0, 6.0]))
    DistArray(3.5, dtype=float64, shape=())
    """
    exact = _var(x, axis, keepdims, where, mean, taken(ddof, correction))
    return store(out, exact.astype(result_dtype(x, dtype)), "var", "unsafe")


@supports_column_split()
def std(
    x: A, axis: int | tuple[int, ...] | None = None, dtype: npt.DTypeLike | None = None, out: A |
    None = None, ddof: float = 0, keepdims: bool = False, *, where: A | npt.ArrayLike = True, mean:
    A | npt.ArrayLike = NOT_GIVEN, correction: float = NOT_GIVEN,
) -> A:  # fmt: skip
    """Compute the standard deviation, of all elements or along an axis.

    Parameters
    ----------
    x : DistArray
        Input array of rank 0, 1 or 2.
    axis : int or tuple of int, optional
        Axis to reduce. None (default) reduces all elements.
    dtype : dtype, optional
        Dtype of the result. Default: floats keep theirs, other dtypes give float64.
    out : DistArray, optional
        Array of the result's shape that receives the result.
    ddof : float, default 0
        Subtracted from the number of elements in the divisor.
    keepdims : bool, default False
        Keep each reduced axis with length 1.
    where : array_like of bool, default True
        Mask that is broadcast to ``x``; only elements with a true mask are reduced.
    mean : array_like, optional
        Known mean, of the shape that ``keepdims=True`` gives.
    correction : float, optional
        Name of ``ddof`` in the array API.

    Returns
    -------
    DistArray
        Lazy scalar, or lazy array without the reduced axis.

    See Also
    --------
    distvec.var : The square of the result; it has the same cost.
    numpy.std : The same function of arrays on the client.

    Examples
    --------
    >>> dv.std(ps.array([1.0, 2.0, 3.0]), ddof=1)
    DistArray(1.0, dtype=float64, shape=())
    """
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


def ptp(
    x: A, axis: int | tuple[int, ...] | None = None, out: A | None = None, keepdims: bool = False
) -> A:
    """Compute the range: the largest element minus the smallest.

    Parameters
    ----------
    x : DistArray
        Input array.
    axis : int or tuple of int, optional
        Axis to reduce. None (default) reduces all elements.
    out : DistArray, optional
        Array of the result's shape that receives the result.
    keepdims : bool, default False
        Keep each reduced axis with length 1.

    Returns
    -------
    DistArray
        Lazy scalar, or lazy array without the reduced axis.

    Raises
    ------
    ValueError
        If there are no elements to reduce.

    See Also
    --------
    numpy.ptp : The same function of arrays on the client.

    Notes
    -----
    One request per server and one pass over memory.

    Examples
    --------
    >>> dv.ptp(ps.array([3.0, -1.0, 2.0]))
    DistArray(4.0, dtype=float64, shape=())
    """
    most = reductions.max(as_array("ptp", x), axis, keepdims=keepdims)
    least = reductions.min(x, axis, keepdims=keepdims)
    return store(out, elementwise(x, "subtract", most, least), "ptp", "same_kind")


@supports_column_split()
def average(
    x: A,
    axis: int | tuple[int, ...] | None = None,
    weights: A | npt.ArrayLike | None = None,
    returned: bool = False,
    *,
    keepdims: bool = False,
) -> Any:
    """Compute the weighted average, of all elements or along an axis.

    Parameters
    ----------
    x : DistArray
        Input array.
    axis : int or tuple of int, optional
        Axis to reduce. None (default) reduces all elements.
    weights : DistArray or array_like, optional
        Weights of the shape of ``x``, or a vector of its length along ``axis``. Default: all 1.
    returned : bool, default False
        Whether to return the sum of the weights, too.
    keepdims : bool, default False
        Keep each reduced axis with length 1.

    Returns
    -------
    DistArray or tuple of DistArray
        The average, and with ``returned`` the sum of the weights.

    Raises
    ------
    ZeroDivisionError
        If the weights sum to zero.
    TypeError
        If the weights differ in shape from ``x`` and ``axis`` is not given.

    See Also
    --------
    numpy.average : The same function of arrays on the client.

    Notes
    -----
    Lazy without weights. With weights the result is evaluated, to check their sum; this counts as
    an implicit evaluation.

    Examples
    --------
    >>> dv.average(ps.array([1.0, 4.0]), weights=ps.array([3.0, 1.0]))
    DistArray(1.75, dtype=float64, shape=())
    """
    if isinstance(weights, Arithmetic) and not isinstance(x, Arithmetic):
        x = as_operand(weights, x, "average")
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
    x: A, axis: int | tuple[int, ...] | None = None, dtype: npt.DTypeLike | None = None, out: A |
    None = None, keepdims: bool = False, initial: A | float = NOT_GIVEN, where: A | npt.ArrayLike =
    True,
) -> A:  # fmt: skip
    """Sum the elements that are not NaN.

    Parameters
    ----------
    x : DistArray
        Input array.
    axis : int or tuple of int, optional
        Axis to reduce. None (default) reduces all elements.
    dtype : dtype, optional
        Dtype to cast the elements to first; the result has it, too.
    out : DistArray, optional
        Array of the result's shape that receives the result.
    keepdims : bool, default False
        Keep each reduced axis with length 1.
    initial : number, optional
        Value that is added to the sum.
    where : array_like of bool, default True
        Mask that is broadcast to ``x``; only elements with a true mask are reduced.

    Returns
    -------
    DistArray
        Lazy scalar, or lazy array without the reduced axis.

    See Also
    --------
    numpy.nansum : The same function of arrays on the client.

    Examples
    --------
    >>> dv.nansum(ps.array([1.0, np.nan, 2.0]))
    DistArray(3.0, dtype=float64, shape=())
    """
    rest = _without(as_array("nansum", x), 0)
    result: A = reductions.sum(rest, axis, dtype, out, keepdims, initial, where)
    return result


def nanprod(
    x: A, axis: int | tuple[int, ...] | None = None, dtype: npt.DTypeLike | None = None, out: A |
    None = None, keepdims: bool = False, initial: A | float = NOT_GIVEN, where: A | npt.ArrayLike =
    True,
) -> A:  # fmt: skip
    """Multiply the elements that are not NaN.

    Parameters
    ----------
    x : DistArray
        Input array.
    axis : int or tuple of int, optional
        Axis to reduce. None (default) reduces all elements.
    dtype : dtype, optional
        Dtype to cast the elements to first; the result has it, too.
    out : DistArray, optional
        Array of the result's shape that receives the result.
    keepdims : bool, default False
        Keep each reduced axis with length 1.
    initial : number, optional
        Value that the product is multiplied by.
    where : array_like of bool, default True
        Mask that is broadcast to ``x``; only elements with a true mask are reduced.

    Returns
    -------
    DistArray
        Lazy scalar, or lazy array without the reduced axis.

    See Also
    --------
    numpy.nanprod : The same function of arrays on the client.

    Examples
    --------
    >>> dv.nanprod(ps.array([3.0, np.nan, 2.0]))
    DistArray(6.0, dtype=float64, shape=())
    """
    rest = _without(as_array("nanprod", x), 1)
    result: A = reductions.prod(rest, axis, dtype, out, keepdims, initial, where)
    return result


def nanmean(
    x: A, axis: int | tuple[int, ...] | None = None, dtype: npt.DTypeLike | None = None, out: A |
    None = None, keepdims: bool = False, *, where: A | npt.ArrayLike = True,
) -> A:  # fmt: skip
    """Compute the mean of the elements that are not NaN.

    Parameters
    ----------
    x : DistArray
        Input array.
    axis : int or tuple of int, optional
        Axis to reduce. None (default) reduces all elements.
    dtype : dtype, optional
        Dtype of the result. Default: floats keep theirs, other dtypes give float64.
    out : DistArray, optional
        Array of the result's shape that receives the result.
    keepdims : bool, default False
        Keep each reduced axis with length 1.
    where : array_like of bool, default True
        Mask that is broadcast to ``x``; only elements with a true mask are reduced.

    Returns
    -------
    DistArray
        Lazy scalar, or lazy array without the reduced axis; NaN if all elements are NaN.

    See Also
    --------
    numpy.nanmean : The same function of arrays on the client.

    Examples
    --------
    >>> dv.nanmean(ps.array([1.0, np.nan, 2.0]))
    DistArray(1.5, dtype=float64, shape=())
    """
    if as_array("nanmean", x).dtype.kind != "f":
        return reductions.mean(x, axis, dtype, out, keepdims, where=where)
    kind = _inexact(x, dtype, out)
    if _takes_none(x, axis):
        warnings.warn("Mean of empty slice", RuntimeWarning, stacklevel=2)
    return store(out, _mean(x, axis, keepdims, where).astype(kind), "nanmean", "unsafe")


def nanvar(
    x: A, axis: int | tuple[int, ...] | None = None, dtype: npt.DTypeLike | None = None, out: A |
    None = None, ddof: float = 0, keepdims: bool = False, *, where: A | npt.ArrayLike = True, mean:
    A | npt.ArrayLike = NOT_GIVEN, correction: float = NOT_GIVEN,
) -> A:  # fmt: skip
    """Compute the variance of the elements that are not NaN.

    Parameters
    ----------
    x : DistArray
        Input array.
    axis : int or tuple of int, optional
        Axis to reduce. None (default) reduces all elements.
    dtype : dtype, optional
        Dtype of the result. Default: floats keep theirs, other dtypes give float64.
    out : DistArray, optional
        Array of the result's shape that receives the result.
    ddof : float, default 0
        Subtracted from the number of elements in the divisor.
    keepdims : bool, default False
        Keep each reduced axis with length 1.
    where : array_like of bool, default True
        Mask that is broadcast to ``x``; only elements with a true mask are reduced.
    mean : array_like, optional
        Known mean, of the shape that ``keepdims=True`` gives.
    correction : float, optional
        Name of ``ddof`` in the array API.

    Returns
    -------
    DistArray
        Lazy scalar, or lazy array without the reduced axis; NaN if the divisor is 0 or less.

    See Also
    --------
    distvec.var : Variance of all elements, with the same cost.
    numpy.nanvar : The same function of arrays on the client.

    Examples
    --------
    >>> dv.nanvar(ps.array([1.0, np.nan, 3.0]))
    DistArray(1.0, dtype=float64, shape=())
    """
    if as_array("nanvar", x).dtype.kind != "f":
        return var(
            x, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction
        )
    kind = _inexact(x, dtype, out)
    exact = _nanvar(x, axis, keepdims, where, mean, taken(ddof, correction))
    return store(out, exact.astype(kind), "nanvar", "unsafe")


def nanstd(
    x: A, axis: int | tuple[int, ...] | None = None, dtype: npt.DTypeLike | None = None, out: A |
    None = None, ddof: float = 0, keepdims: bool = False, *, where: A | npt.ArrayLike = True, mean:
    A | npt.ArrayLike = NOT_GIVEN, correction: float = NOT_GIVEN,
) -> A:  # fmt: skip
    """Compute the standard deviation of the elements that are not NaN.

    Parameters
    ----------
    x : DistArray
        Input array.
    axis : int or tuple of int, optional
        Axis to reduce. None (default) reduces all elements.
    dtype : dtype, optional
        Dtype of the result. Default: floats keep theirs, other dtypes give float64.
    out : DistArray, optional
        Array of the result's shape that receives the result.
    ddof : float, default 0
        Subtracted from the number of elements in the divisor.
    keepdims : bool, default False
        Keep each reduced axis with length 1.
    where : array_like of bool, default True
        Mask that is broadcast to ``x``; only elements with a true mask are reduced.
    mean : array_like, optional
        Known mean, of the shape that ``keepdims=True`` gives.
    correction : float, optional
        Name of ``ddof`` in the array API.

    Returns
    -------
    DistArray
        Lazy scalar, or lazy array without the reduced axis; NaN if the divisor is 0 or less.

    See Also
    --------
    distvec.nanvar : The square of the result.
    numpy.nanstd : The same function of arrays on the client.

    Examples
    --------
    >>> dv.nanstd(ps.array([1.0, np.nan, 3.0]))
    DistArray(1.0, dtype=float64, shape=())
    """
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


_PLACE_TEXT = """Return the index of the {extreme} element that is not NaN.

Parameters
----------
x : DistArray
    Input array.
axis : int, optional
    Axis to reduce. None (default) gives an index into the flattened array.
out : DistArray, optional
    Array of the result's shape that receives the result.
keepdims : bool, default False
    Keep each reduced axis with length 1.

Returns
-------
DistArray
    Scalar or vector of int64.

Raises
------
ValueError
    If all elements to reduce are NaN.

See Also
--------
numpy.nan{name} : The same function of arrays on the client.

Notes
-----
The result is evaluated together with the check for NaN; this counts as an implicit evaluation.

Examples
--------
>>> dv.nan{name}(ps.array([np.nan, 3.0, 1.0]))
DistArray({place}, dtype=int64, shape=())
"""


def _place(name: str, instead: float, extreme: str, place: int) -> Callable[..., Any]:
    locate = reductions.reduction_function(name)

    def function(
        x: A, axis: int | None = None, out: A | None = None, *, keepdims: bool = False
    ) -> A:
        as_array(f"nan{name}", x)
        result: A = locate(_without(x, instead), axis, None, keepdims=keepdims)
        if x.dtype.kind == "f" and not reductions.is_empty(x):
            nothing = reductions.any(reductions.all(_is_nan(x), axis))
            if nothing.scalar(f"nan{name}()"):
                raise ValueError("All-NaN slice encountered")
        return store(out, result, f"nan{name}", "unsafe")

    function.__name__ = function.__qualname__ = f"nan{name}"
    function.__doc__ = _PLACE_TEXT.format(name=name, extreme=extreme, place=place)
    return function


nanargmin, nanargmax = (
    _place("argmin", np.inf, "smallest", 2),
    _place("argmax", -np.inf, "largest", 1),
)


def cov(
    m: A, y: A | None = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None,
    fweights: A | npt.ArrayLike | None = None, aweights: A | npt.ArrayLike | None = None, *, dtype:
    npt.DTypeLike | None = None,
) -> A:  # fmt: skip
    """Compute the covariance matrix of variables.

    Parameters
    ----------
    m : DistArray
        A vector is one variable; each row of a table is one variable, with observations along axis
        1.
    y : DistArray, optional
        More variables with the same number of observations.
    rowvar : bool, default True
        False: the columns of tables are the variables.
    bias : bool, default False
        True divides by the number of observations ``n``, False by ``n - 1``.
    ddof : int, optional
        Divides by ``n - ddof`` instead; overrides ``bias``.
    fweights : array_like of int, optional
        How often each observation counts; shape ``(n,)``.
    aweights : array_like, optional
        Weight of each observation; shape ``(n,)``.
    dtype : dtype, optional
        Floating dtype of the result. Default: float64.

    Returns
    -------
    DistArray
        Lazy covariance matrix, or a lazy scalar for one variable.

    Raises
    ------
    ValueError
        If ``m`` and ``y`` differ in the number of observations.
    TypeError
        If ``dtype`` is not a floating dtype, or ``fweights`` are not integers.
    NotImplementedError
        If weights are given for two arrays.

    See Also
    --------
    numpy.cov : The same function of arrays on the client.

    Notes
    -----
    Two requests per server, each with one pass over memory: the means, then the products. The
    ``k`` columns of a table give a ``(k, k)`` matrix that is stored on the client. The ``n`` rows
    of a table give an ``(n, n)`` table on the servers, and all of ``m`` passes through the client.
    Weights are checked with implicit evaluations.

    Examples
    --------
    >>> T = ps.array([[1.0, 2.0], [3.0, 6.0]])
    >>> dv.cov(T, rowvar=False)
    DistArray([[2., 4.],
               [4., 8.]], dtype=float64, shape=(2, 2))
    """
    if ddof is not None and ddof != int(ddof):
        raise ValueError("ddof must be integer")
    kind = _FLOAT if dtype is None else check_dtype(dtype)
    if rowvar and np.ndim(m) == 2 and not len(m):  # type: ignore[arg-type]
        kind = _FLOAT  # of no variables, as NumPy, whatever dtype= says
    if kind.kind != "f":
        raise TypeError(
            f"cov: dtype must be a floating dtype, got {kind}; leave out dtype=, and write "
            f".astype({kind.name!r})"
        )
    given = [_variables(one, rowvar) for one in (m, y) if one is not None]
    taken = 1 - bool(bias) if ddof is None else int(ddof)
    if fweights is not None or aweights is not None:
        if len(given) > 1:
            raise NotImplementedError(
                "cov: weights with two arrays are not supported; join their columns first, as in "
                "numpy.cov(numpy.column_stack([x, y]), rowvar=False, aweights=w)"
            )
        return _weighted_covariance(given[0], fweights, aweights, taken).astype(kind)  # type: ignore[no-any-return]
    if given[0].shape[-1] != given[-1].shape[-1]:
        raise ValueError(
            f"cov: m and y must have the same number of observations, got {given[0].shape[-1]} and "
            f"{given[-1].shape[-1]}"
        )
    away = [_deviations(one) for one in given]
    freedom = _freedom(given[0], taken)
    if len(away) == 1:
        products = away[0] @ transpose(away[0])
        return squeeze(products / freedom).astype(kind)  # type: ignore[no-any-return]
    return (_blocks(away) / freedom).astype(kind)  # type: ignore[no-any-return]


def corrcoef(
    x: A, y: A | None = None, rowvar: bool = True, *, dtype: npt.DTypeLike | None = None
) -> A:
    """Compute the matrix of Pearson correlation coefficients of variables.

    Parameters
    ----------
    x : DistArray
        A vector is one variable; each row of a table is one variable, with observations along axis
        1.
    y : DistArray, optional
        More variables with the same number of observations.
    rowvar : bool, default True
        False: the columns of tables are the variables.
    dtype : dtype, optional
        Floating dtype of the result. Default: float64.

    Returns
    -------
    DistArray
        Lazy matrix of coefficients between -1 and 1; NaN for a variable that is constant.

    See Also
    --------
    distvec.cov : The covariances, with the same cost.
    numpy.corrcoef : The same function of arrays on the client.

    Examples
    --------
    >>> T = ps.array([[1.0, 2.0], [3.0, 6.0], [5.0, 10.0]])
    >>> dv.corrcoef(T, rowvar=False).numpy().round(3)
    array([[1., 1.],
           [1., 1.]])
    """
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return c / c  # NaN if the variable is constant
    deviations = apply("sqrt", _diagonal(c))
    ratio = c / reshape(deviations, (-1, 1)) / deviations
    return apply("minimum", apply("maximum", ratio, -1.0), 1.0)  # type: ignore[no-any-return]


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
            "cov: variables of two arrays must be vectors or columns; put the observations into "
            "rows, and write rowvar=False"
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
