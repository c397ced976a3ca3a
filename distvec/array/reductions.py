"""Reductions, as NumPy defines them: those of the table, which kernels accumulate, and others made
of them.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, Concatenate, cast

import numpy as np
import numpy.typing as npt

from distvec.array import docstrings
from distvec.array.core.handle import check_cast, express, is_split_by_columns, stored_table
from distvec.array.core.keywords import (
    NOT_GIVEN,
    accumulation_dtype,
    include_initial,
    initial_in,
    is_everywhere,
    is_given,
    select_where,
    store,
    where_mask,
)
from distvec.array.core.on_client import reduction_of_known
from distvec.array.core.operators import A, Arithmetic, as_array, elementwise
from distvec.array.core.shapes import full, reshape
from distvec.array.transposed import exchange_axes, supports_column_split
from distvec.graph import build
from distvec.graph.build import check_dtype
from distvec.graph.node import Graph, Node
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.types import array_type, client_type

_FLOAT = np.dtype(np.float64)
_BOOL = np.dtype(np.bool_)


def axis_of(x: Arithmetic, name: str, axis: Any) -> int | tuple[()] | None:
    """What ``axis`` names: 0 or 1 of a table, None for all elements, ``()`` for nothing.

    ``AxisError`` for an axis that ``x`` has not.
    """
    as_array(name, x)
    if axis is None:
        return None
    if type(axis) is int and x.ndim == 2 and -2 <= axis < 2:
        return axis % 2
    axes = []
    for one in axis if isinstance(axis, tuple) else (axis,):
        number = operator.index(one)
        if not -x.ndim <= number < x.ndim:
            raise np.exceptions.AxisError(number, x.ndim, name)
        axes.append(number % x.ndim)
    if len(set(axes)) < len(axes):
        raise ValueError(f"{name}: duplicate value in 'axis'")
    if len(axes) == x.ndim:
        return None
    return axes[0] if axes else ()


def as_axis_tuple(axis: Any) -> Any:
    """``axis`` of a function of NumPy that takes lists of axes as well as tuples."""
    return tuple(axis) if isinstance(axis, list) else axis


def reduce_along(x: A, op: str, axis: int | None, dtype: np.dtype[Any]) -> A:
    """The reduction ``op`` over an axis, or over all elements, in ``dtype``; lazy.

    Of a table, axis 1 makes a vector on the servers; axis 0 makes a row, which the client keeps.
    """
    if x.selects:
        return cast(A, x.reduce(op, None if x.ndim == 1 else axis, dtype))
    known = reduction_of_known(x, op, axis, dtype)
    return express(x, _along, x, op, axis, dtype) if known is None else known


def _along(graph: Graph, node: Node, op: str, axis: int | None, dtype: np.dtype[Any]) -> Node:
    return build.cast(graph, _accumulate_node(graph, node, op, axis), dtype)


def _accumulate_node(graph: Graph, node: Node, op: str, axis: int | None) -> Node:
    row = REDUCERS[op]
    first, wide = _accumulators(op, node.dtype)
    if node.is_scalar:
        return node
    if node.on_client:
        rest = () if axis is None else node.type.shape[:axis] + node.type.shape[axis + 1 :]
        params = op, axis, first.name
        return build.on_client(graph, "client.reduce", (node,), client_type(wide, rest), params)
    if axis is None:
        return graph.make(op, (node,), client_type(wide))
    if axis == 0:
        return graph.make(op, (node,), client_type(wide, node.type.row), (0,))
    return graph.make(f"row_{op}", (node,), array_type(node.type.space, row.result(node.dtype)))


@cache
def _accumulators(op: str, dtype: np.dtype[Any]) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """The first and the last dtype that a reduction accumulates in: NumPy names dtypes slowly."""
    found = REDUCERS[op].accumulators(dtype.name)
    return found[0], found[-1]


def keep_axes(x: A, result: A, axis: int | None, keepdims: bool) -> A:
    """``result`` of a reduction of ``x``, with axes of length 1 where others were, if wanted."""
    if not keepdims or x.ndim == 0:
        return result
    shape = tuple(1 if axis in (None, k) else n for k, n in enumerate(x.shape))
    if not result.node.on_client:
        return reshape(result, shape)
    return express(x, build.reshape, result, shape)


def _reduce_table(x: A, op: str, axis: Any, keepdims: bool, dtype: Any = None) -> A:
    """The reduction ``op`` of the table, in ``dtype`` if given."""
    reducer = REDUCERS[op]
    if reducer.locates and axis is not None:
        axis = operator.index(axis)
    over = axis_of(x, op, axis)
    if dtype is not None:
        x = x.astype(dtype)
    result = x.dtype if dtype is not None else reducer.result(x.dtype)
    if isinstance(over, tuple):
        return x.astype(result)
    if reducer.locates and x.ndim == 0:
        return full(x, (), 0, result)
    if reducer.identity is None and not x.selects and 0 in _extents(x, over):
        raise ValueError(reducer.refusal)
    found = reduce_along(x, op, over, result)
    return keep_axes(x, found, over, keepdims) if keepdims else found


def _locate(table: A, locate: Callable[..., Any]) -> A:
    """Where ``locate`` finds an extreme in the transpose: of equal elements the first one.

    That of the table may be another one; its value is looked for. Three sweeps.
    """
    k, n = table.shape
    column = table.session.namespace.arange(k).reshape(k, 1)
    value = sum(elementwise(table, "where", column * n + np.arange(n) == locate(table), table, 0))
    equal = (table == value) | ((table != table) & (value != value))
    found: A = min(elementwise(table, "where", equal, column + np.arange(n) * k, table.size))
    return found


def _extents(x: Arithmetic, over: int | None) -> tuple[int, ...]:
    """The lengths of the axes that are reduced."""
    return x.shape if over is None else x.shape[over : over + 1]


def _reduce_with_keywords(
    x: A, name: str, axis: Any, dtype: Any, out: Any, keepdims: Any, initial: Any, where: Any
) -> A:
    """The reduction ``name`` of the table with NumPy's keywords."""
    axis_of(x, name, None)
    if x.is_split_by_columns:  # as by the decorator, but without a call more on the way of most
        given = (x, name, axis, dtype, out, keepdims, initial, where)
        return exchange_axes(_reduce_with_keywords, 0, None, given)  # type: ignore[no-any-return]
    row = REDUCERS[name]
    if dtype is None and row.takes_dtype and isinstance(out, Arithmetic):
        dtype = accumulation_dtype(out, x)
    if dtype is not None:
        x = x.astype(dtype)
    element = initial_in(x, initial, row.result(x.dtype) if dtype is None else x.dtype)
    chosen = select_where(x, row, where, element)
    keep = keepdims is not NOT_GIVEN and bool(keepdims)
    if row.locates and is_given(out):
        check_cast(out.dtype, np.dtype(np.int64), "safe")  # as NumPy, which writes into out=
    if element is NOT_GIVEN:
        return store(out, _reduce_table(chosen, name, axis, keep, dtype), name, "unsafe")
    if row.identity is not None or not is_empty(x):
        return store(
            out,
            include_initial(_reduce_table(chosen, name, axis, keep, dtype), row, element),
            name,
            "unsafe",
        )
    nothing = _reduce_table(x, "any", axis, keep)
    return store(out, elementwise(x, "where", nothing, element, element), name, "unsafe")


@cache  # type: ignore[arg-type]
def reduction_function(name: str) -> Callable[Concatenate[A, ...], A]:
    """The function of one row of the table, with the parameters of NumPy's."""
    row = REDUCERS[name]

    def accumulating(
        x: A, axis: int | tuple[int, ...] | None = None, dtype: npt.DTypeLike | None = None,
        out: A | None = None, keepdims: bool = False, initial: A | float = NOT_GIVEN,
        where: A | npt.ArrayLike = True,
    ) -> A:  # fmt: skip
        return _reduce_with_keywords(x, name, axis, dtype, out, keepdims, initial, where)

    def choosing(
        x: A, axis: int | tuple[int, ...] | None = None, out: A | None = None,
        keepdims: bool = False, initial: A | float = NOT_GIVEN,
        where: A | npt.ArrayLike = True,
    ) -> A:  # fmt: skip
        return _reduce_with_keywords(x, name, axis, None, out, keepdims, initial, where)

    def telling(
        x: A, axis: int | tuple[int, ...] | None = None, out: A | None = None,
        keepdims: bool = False, *, where: A | npt.ArrayLike = True,
    ) -> A:  # fmt: skip
        return _reduce_with_keywords(x, name, axis, None, out, keepdims, NOT_GIVEN, where)

    def locating(
        x: A, axis: int | None = None, out: A | None = None, *, keepdims: bool = False
    ) -> A:
        if axis is None and is_split_by_columns(x):
            keep = keepdims is not NOT_GIVEN and bool(keepdims)
            table: A = stored_table(x)
            return store(
                out, keep_axes(table, _locate(table, function), None, keep), name, "unsafe"
            )
        return _reduce_with_keywords(x, name, axis, None, out, keepdims, NOT_GIVEN, True)

    function: Callable[..., Any] = choosing
    if row.takes_dtype:
        function = accumulating
    elif row.truth or row.locates:
        function = telling if row.truth else locating
    function.__name__ = function.__qualname__ = name
    function.__doc__ = docstrings.of_reduction(row)
    return function


sum, prod = reduction_function("sum"), reduction_function("prod")
min, max = reduction_function("min"), reduction_function("max")
any, all = reduction_function("any"), reduction_function("all")
argmin, argmax = reduction_function("argmin"), reduction_function("argmax")


@supports_column_split()
def mean(
    x: A, axis: int | tuple[int, ...] | None = None, dtype: npt.DTypeLike | None = None, out: A |
    None = None, keepdims: bool = False, *, where: A | npt.ArrayLike = True,
) -> A:  # fmt: skip
    """Compute the arithmetic mean, of all elements or along an axis.

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
    keepdims : bool, default False
        Keep each reduced axis with length 1.
    where : array_like of bool, default True
        Mask that is broadcast to ``x``; only elements with a true mask are reduced.

    Returns
    -------
    DistArray
        Lazy scalar, or lazy array without the reduced axis.

    Raises
    ------
    AxisError
        If ``x`` does not have the axis.

    See Also
    --------
    numpy.mean : The same function of arrays on the client.

    Notes
    -----
    Elements are accumulated in float64. The mean of an empty array is NaN, with NumPy's
    ``RuntimeWarning``. The evaluation takes one request per server and one pass over memory.

    Examples
    --------
    >>> dv.mean(ps.array([[1.0, 2.0], [3.0, 6.0]]), axis=0)
    DistArray([2., 4.], dtype=float64, shape=(2,))
    """
    axis_of(x, "mean", axis)
    natural = x.dtype if x.dtype.kind == "f" else _FLOAT
    keepdims = keepdims is not NOT_GIVEN and bool(keepdims)
    count = count_reduced(x, axis, keepdims, where)
    if isinstance(count, int) and count == 0:
        warnings.warn("Mean of empty slice", RuntimeWarning, stacklevel=2)
    exact = sum(x, axis, _FLOAT, None, keepdims, where=where)
    result = elementwise(x, "divide", exact, count)
    return store(
        out, result.astype(natural if dtype is None else check_dtype(dtype)), "mean", "unsafe"
    )


def count_reduced(x: A, axis: Any = None, keepdims: Any = False, where: Any = True) -> Any:
    """How many elements a reduction of ``x`` takes for each of its results: mostly an ``int``."""
    if not is_everywhere(where):
        return sum(where_mask(x, where, "where"), axis, keepdims=keepdims)
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return math.prod([x.axis_length(one) for one in axes if x.ndim])


def is_empty(x: Arithmetic) -> bool:
    """Whether ``x`` has no elements, as far as that is known without an evaluation."""
    return not x.selects and x.size == 0


@supports_column_split()
def count_nonzero(x: A, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> A:
    """Count the elements that are not zero.

    Parameters
    ----------
    x : DistArray
        Input array of rank 0, 1 or 2.
    axis : int or tuple of int, optional
        Axis to reduce. None (default) counts in all elements.
    keepdims : bool, default False
        Keep each reduced axis with length 1.

    Returns
    -------
    DistArray
        Lazy int64 scalar, or lazy int64 array without the reduced axis.

    See Also
    --------
    numpy.count_nonzero : The same function of arrays on the client.

    Examples
    --------
    >>> dv.count_nonzero(ps.array([0.0, 2.0, 3.0]))
    DistArray(2, dtype=int64, shape=())
    """
    axis_of(x, "count_nonzero", axis)
    true = elementwise(x, "not_equal", x, 0) if x.dtype != _BOOL else x
    return _reduce_table(true, "sum", axis, keepdims)


def softmax(x: A, axis: int | tuple[int, ...] | None = None) -> A:
    """Compute exponentials that are divided by their sum.

    Parameters
    ----------
    x : DistArray
        Input array.
    axis : int or tuple of int, optional
        Axis along which the results sum to 1. None (default) uses all elements.

    Returns
    -------
    DistArray
        Lazy array of the shape of ``x``.

    See Also
    --------
    scipy.special.softmax : The same function of arrays on the client.

    Notes
    -----
    The largest element is subtracted first, so the exponentials do not overflow. Along axis 1 of a
    table the evaluation takes one pass over memory.

    Examples
    --------
    >>> dv.softmax(ps.array([[0.0, 0.0], [1.0, 0.0]]), axis=1)
    DistArray([[0.5       , 0.5       ],
               [0.73105858, 0.26894142]], dtype=float64, shape=(2, 2))
    """
    small = elementwise(x, "exp", elementwise(x, "subtract", x, _peak(x, axis)))
    return elementwise(x, "divide", small, sum(small, axis, keepdims=True))


def log_softmax(x: A, axis: int | tuple[int, ...] | None = None) -> A:
    """Compute the logarithm of the softmax function, accurate for small probabilities.

    Parameters
    ----------
    x : DistArray
        Input array.
    axis : int or tuple of int, optional
        Axis along which the probabilities sum to 1. None (default) uses all elements.

    Returns
    -------
    DistArray
        Lazy array of the shape of ``x``.

    See Also
    --------
    scipy.special.log_softmax : The same function of arrays on the client.

    Examples
    --------
    >>> dv.log_softmax(ps.array([0.0, 1000.0]))
    DistArray([-1000.,     0.], dtype=float64, shape=(2,))
    """
    shifted = elementwise(x, "subtract", x, _peak(x, axis))
    total = sum(elementwise(x, "exp", shifted), axis, keepdims=True)
    return elementwise(x, "subtract", shifted, elementwise(x, "log", total))


def logsumexp(x: A, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> A:
    """Compute ``log(sum(exp(x)))`` without overflow.

    Parameters
    ----------
    x : DistArray
        Input array.
    axis : int or tuple of int, optional
        Axis to reduce. None (default) reduces all elements.
    keepdims : bool, default False
        Keep each reduced axis with length 1.

    Returns
    -------
    DistArray
        Lazy scalar, or lazy array without the reduced axis.

    See Also
    --------
    scipy.special.logsumexp : The same function of arrays on the client.

    Examples
    --------
    >>> dv.logsumexp(ps.array([0.0, 1000.0]))
    DistArray(1000.0, dtype=float64, shape=())
    """
    peak = _peak(x, axis)
    total = sum(elementwise(x, "exp", elementwise(x, "subtract", x, peak)), axis, keepdims=True)
    result = elementwise(x, "add", elementwise(x, "log", total), peak)
    over = axis_of(x, "logsumexp", axis)
    if keepdims or isinstance(over, tuple) or x.ndim == 0:
        return result
    return reshape(result, () if over is None else result.shape[:over] + result.shape[over + 1 :])


def _peak(x: A, axis: Any) -> A:
    """The largest elements along ``axis``, 0 where that is not finite.

    The results are the same whatever is subtracted, so derivatives take it as constant.
    """
    peak = max(x, axis, keepdims=True)
    found = elementwise(x, "where", elementwise(x, "isfinite", peak), peak, 0.0)
    if not x.selects:
        x.session.graph.still.add(found.node)
    return found
