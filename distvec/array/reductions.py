"""Reductions, as NumPy defines them: those of the table, which kernels accumulate, and others made
of them.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np

from distvec.array.creation import reshape
from distvec.array.handle import check_session
from distvec.array.operators import Arithmetic, elementwise
from distvec.array.reduction_keywords import (
    UNSAID,
    as_element,
    is_everywhere,
    joined,
    mask_for,
    selected,
    stored,
)
from distvec.graph import build
from distvec.graph.dtypes import check_dtype
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.types import scalar_type

A = TypeVar("A", bound=Arithmetic)

_FLOAT = np.dtype(np.float64)
_BOOL = np.dtype(np.bool_)


def _reduce(x: A, op: str, dtype: np.dtype[Any]) -> A:
    """``op`` over all of ``x``, in ``dtype``."""
    if x.selects:
        return cast(A, x.reduced(op, dtype))
    graph = x.session.graph
    with x.session.holders.lock:
        node = x.node
        if not node.is_scalar:
            found = REDUCERS[op].accumulators(node.dtype.name)[-1]
            node = graph.make(op, (node,), scalar_type(found))
        return x.like(build.cast(graph, node, dtype))


def _covers(x: Arithmetic, name: str, axis: Any) -> bool:
    """Whether ``axis`` names all there is to reduce; False for ``()``, which names nothing."""
    if not isinstance(x, Arithmetic):
        raise TypeError(
            f"{name}: needs an array on the servers, got {type(x).__name__}; "
            f"use numpy.{name}, or put it there with session.array(...)"
        )
    if axis is None:
        return True
    for one in axis if isinstance(axis, tuple) else (axis,):
        if not -x.ndim <= operator.index(one) < x.ndim:
            raise np.exceptions.AxisError(operator.index(one), x.ndim, name)
    return axis != () or x.ndim == 0


def _kept(x: A, result: A, keepdims: bool) -> A:
    """``result`` of a reduction of ``x``, as a vector of length 1 if its axis is to be kept."""
    if not keepdims or x.ndim == 0 or result.ndim:
        return result
    return reshape(result, (1,))


def _reduced(x: A, op: str, axis: Any, keepdims: bool, dtype: Any = None) -> A:
    """The reduction ``op`` of the table, in ``dtype`` if given."""
    reducer = REDUCERS[op]
    if reducer.locates and axis is not None:
        axis = operator.index(axis)
    covered = _covers(x, op, axis)
    if dtype is not None:
        x = x.astype(dtype)
    result = x.dtype if dtype is not None else reducer.result(x.dtype)
    if not covered:
        return x.astype(result)
    if reducer.locates and x.ndim == 0:
        return x.like(x.session.graph.constant(0, result))
    if reducer.identity is None and has_none(x):
        raise ValueError(reducer.refusal)
    return _kept(x, _reduce(x, op, result), keepdims)


def _given(
    x: A, name: str, axis: Any, dtype: Any, out: Any, keepdims: Any, initial: Any, where: Any
) -> A:
    """The reduction ``name`` of the table with NumPy's keywords."""
    _covers(x, name, None)
    row = REDUCERS[name]
    if dtype is None and row.takes_dtype and isinstance(out, Arithmetic):
        dtype = out.dtype  # as in NumPy, where it goes says in what it is accumulated
    if dtype is not None:
        x = x.astype(dtype)
    element = as_element(x, initial, row.result(x.dtype) if dtype is None else x.dtype)
    chosen = selected(x, row, where, element)
    kept = keepdims is not UNSAID and bool(keepdims)
    if element is UNSAID:
        return stored(out, _reduced(chosen, name, axis, kept, dtype), name)
    if row.identity is not None or not has_none(x):
        return stored(out, joined(_reduced(chosen, name, axis, kept, dtype), row, element), name)
    nothing = _reduced(x, "any", axis, kept)
    return stored(out, elementwise(x, "where", nothing, element, element), name)


@cache
def of_table(name: str) -> Callable[..., Any]:
    """The function of one row of the table, with the parameters of NumPy's."""
    row = REDUCERS[name]

    def accumulating(
        x: A, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
        initial: Any = UNSAID, where: Any = True,
    ) -> A:  # fmt: skip
        return _given(x, name, axis, dtype, out, keepdims, initial, where)

    def choosing(
        x: A, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = UNSAID,
        where: Any = True,
    ) -> A:  # fmt: skip
        return _given(x, name, axis, None, out, keepdims, initial, where)

    def telling(
        x: A, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True
    ) -> A:
        return _given(x, name, axis, None, out, keepdims, UNSAID, where)

    def locating(x: A, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> A:
        return _given(x, name, axis, None, out, keepdims, UNSAID, True)

    function: Callable[..., Any] = choosing
    if row.takes_dtype:
        function = accumulating
    elif row.truth or row.locates:
        function = telling if row.truth else locating
    function.__name__ = function.__qualname__ = name
    function.__doc__ = row.doc
    return function


sum, prod = of_table("sum"), of_table("prod")
min, max = of_table("min"), of_table("max")
any, all = of_table("any"), of_table("all")
argmin, argmax = of_table("argmin"), of_table("argmax")


def mean(
    x: A, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *,
    where: Any = True,
) -> A:  # fmt: skip
    """Arithmetic mean, accumulated in float64; of nothing NaN, with NumPy's ``RuntimeWarning``."""
    _covers(x, "mean", axis)
    natural = x.dtype if x.dtype.kind == "f" else _FLOAT
    keepdims = keepdims is not UNSAID and bool(keepdims)
    count = count_of(x, axis, keepdims and x.ndim > 1, where)
    if isinstance(count, int) and count == 0:
        warnings.warn("Mean of empty slice", RuntimeWarning, stacklevel=2)
    exact = sum(x, axis, _FLOAT, None, keepdims and x.ndim > 1, where=where)
    result = elementwise(x, "divide", exact, count)
    kind = natural if dtype is None else check_dtype(dtype)
    return stored(out, _kept(x, result.astype(kind), keepdims), "mean")


def count_of(x: A, axis: Any = None, keepdims: Any = False, where: Any = True) -> Any:
    """How many elements a reduction of ``x`` takes for each of its results: mostly an ``int``."""
    if not is_everywhere(where):
        return sum(mask_for(x, where, "where"), axis, keepdims=keepdims)
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return math.prod([x.extent(one) for one in axes if x.ndim])


def has_none(x: Arithmetic) -> bool:
    """Whether ``x`` has no elements, as far as that is known without an evaluation."""
    return not x.selects and x.size == 0


def count_nonzero(x: A, axis: Any = None, *, keepdims: bool = False) -> A:
    """Number of elements that are not zero, as int64."""
    _covers(x, "count_nonzero", axis)
    true = elementwise(x, "not_equal", x, 0) if x.dtype != _BOOL else x
    return _reduced(true, "sum", axis, keepdims)


def dot(x: A, y: A) -> A:
    """Inner product of two vectors, accumulated in float64 (int64); a scalar operand multiplies.

    Source: NumPy's ``dot`` for ranks 0 and 1. One pass, no temporary; lazy.
    """
    for operand in (x, y):
        _covers(operand, "dot", None)
    if x.ndim == 0 or y.ndim == 0:
        return elementwise(x, "multiply", x, y)
    x, y = x.beside(y)
    _check_same_length("dot", x, y)
    result = x.dtype if x.dtype == y.dtype else np.result_type(x.dtype, y.dtype)
    return _inner(x, y, result)


def matmul(x: A, y: Any) -> A:
    """``x @ y``: the inner product of two vectors."""
    return dot(x, _vector(x, y))


def matmul_reflected(x: A, y: Any) -> A:
    """``y @ x``."""
    return dot(_vector(x, y), x)


def _vector(x: A, other: Any) -> A:
    """``other``, if it can stand beside ``x`` and ``@``."""
    if not isinstance(other, Arithmetic):
        raise TypeError(
            f"@ needs two arrays on the servers, got {type(other).__name__}; "
            f"put it there with session.array(...)"
        )
    if x.ndim == 0 or other.ndim == 0:
        raise ValueError("@ needs two vectors; multiply by a scalar with *")
    return cast(A, other)


def vecdot(x: A, y: A, *, axis: int = -1) -> A:
    """Inner product of two vectors (array API)."""
    for operand in (x, y):
        if _covers(operand, "vecdot", None) and operand.ndim == 0:
            raise ValueError("vecdot: both operands must have at least one dimension")
    _covers(x, "vecdot", operator.index(axis))
    return dot(x, y)


def _check_same_length(name: str, x: Arithmetic, y: Arithmetic) -> None:
    if x.shape != y.shape:
        raise ValueError(f"{name}: shapes {x.shape} and {y.shape} not aligned")


def _inner(x: A, y: A, result: np.dtype[Any]) -> A:
    check_session(x.session, y, "dot")
    graph = x.session.graph
    if result == _BOOL:
        return _reduce(elementwise(x, "logical_and", x, y), "any", _BOOL)
    (wide,) = REDUCERS["sum"].accumulators(result.name)
    with x.session.holders.lock:
        first, second = build.cast(graph, x.node, wide), build.cast(graph, y.node, wide)
        return x.like(build.cast(graph, graph.inner(first, second), result))


def norm(x: A, ord: Any = None, axis: Any = None, *, keepdims: bool = False) -> A:
    """Vector norm: 2 by default, 1, 0 (number of non-zeros), inf, -inf, or any real p.

    float32 stays float32 (accumulated in float64), other dtypes give float64.
    """
    _covers(x, "norm", axis)
    if x.ndim == 0:
        raise ValueError("norm: needs a vector, got a scalar; use abs(x)")
    if axis == ():
        raise ValueError("norm: axis=() names no axis; leave axis out, or say axis=0")
    result = x.dtype if x.dtype.kind == "f" else _FLOAT
    adds_up = ord is None or (isinstance(ord, int | float) and ord >= 0)
    return _kept(x, _norm(x.filled(0) if adds_up else x, ord, result), keepdims)


def _norm(x: A, ord: Any, result: np.dtype[Any]) -> A:
    wide = x.astype(_FLOAT)
    if ord is None or ord == 2:
        return elementwise(x, "sqrt", _inner(wide, wide, _FLOAT)).astype(result)
    if ord == np.inf and x.size == 0:
        return x.like(x.session.graph.constant(0.0, result))
    if ord in (np.inf, -np.inf):
        return _reduced(_magnitude(x.astype(result)), "max" if ord > 0 else "min", None, False)
    if ord == 1:
        return _reduce(_magnitude(wide), "sum", result)
    if ord == 0:
        return count_nonzero(x).astype(result)
    if not isinstance(ord, int | float):
        raise ValueError(f"norm: ord must be a number, inf or -inf, got {ord!r}")
    total = _reduce(_magnitude(wide) ** float(ord), "sum", _FLOAT)
    return (total ** (1.0 / ord)).astype(result)


def _magnitude(x: A) -> A:
    return elementwise(x, "abs", x)
