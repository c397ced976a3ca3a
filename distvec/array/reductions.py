"""Reductions, as NumPy defines them, from the eight that kernels accumulate in 64 bits."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from distvec.graph import build
from distvec.graph.dtypes import check_dtype
from distvec.graph.expr import Node
from ps_backend.program.space import DenseSpace

if TYPE_CHECKING:
    from distvec.array.dist_array import DistArray

_FLOAT = np.dtype(np.float64)
_INT = np.dtype(np.int64)
_BOOL = np.dtype(np.bool_)


def _accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return _FLOAT if dtype.kind == "f" else _INT


def _reduce(x: DistArray, op: str, node: Node, dtype: np.dtype[Any]) -> Node:
    """The rank-0 node of ``op`` over ``node``, in ``dtype``."""
    graph = x.session.graph
    if node.space is None:
        return build.cast(x.session, node, dtype)
    accumulator = _INT if op in ("any", "all", "argmin", "argmax") else _accumulator(node.dtype)
    return build.cast(x.session, graph.make(op, (node,), accumulator, None), dtype)


def _covers(x: DistArray, name: str, axis: Any) -> bool:
    """Whether ``axis`` names all there is to reduce; False for ``()``, which names nothing."""
    from distvec.array.dist_array import DistArray

    if not isinstance(x, DistArray):
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


def _kept(x: DistArray, result: DistArray, keepdims: bool) -> DistArray:
    """``result`` of a reduction of ``x``, as a vector of length 1 if its axis is to be kept."""
    if not keepdims or x.ndim == 0 or result.ndim:
        return result
    node = x.session.graph.make("fill", (result.node,), result.dtype, DenseSpace(1))
    return x.session.wrap(node)


def _reduced(
    x: DistArray, op: str, axis: Any, dtype: np.dtype[Any] | None, keepdims: bool
) -> DistArray:
    """``op`` over ``axis`` in ``dtype``, that of ``x`` if None."""
    if not _covers(x, op, axis):
        return x.astype(dtype or x.dtype)
    empty = _EMPTY.get(op)
    if empty is not None and x.size == 0:
        raise ValueError(empty)
    return _kept(x, x.session.wrap(_reduce(x, op, x.node, dtype or x.dtype)), keepdims)


_EMPTY = {
    "min": "zero-size array to reduction operation minimum which has no identity",
    "max": "zero-size array to reduction operation maximum which has no identity",
    "argmin": "attempt to get argmin of an empty sequence",
    "argmax": "attempt to get argmax of an empty sequence",
}


def _accumulated(x: DistArray, op: str, axis: Any, dtype: Any, keepdims: bool) -> DistArray:
    """A sum or product, in ``dtype`` if given."""
    covered = _covers(x, op, axis)
    if dtype is not None:
        x = x.astype(dtype)
    result = x.dtype if x.dtype.kind == "f" or dtype is not None else _INT
    if not covered:
        return x.astype(result)
    return _kept(x, x.session.wrap(_reduce(x, op, x.node, result)), keepdims)


def sum(x: DistArray, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> DistArray:
    """Sum of the elements: float64 and float32 as they are, integers and booleans as int64."""
    return _accumulated(x, "sum", axis, dtype, keepdims)


def prod(x: DistArray, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> DistArray:
    """Product of the elements; dtypes as for ``sum``."""
    return _accumulated(x, "prod", axis, dtype, keepdims)


def min(x: DistArray, axis: Any = None, *, keepdims: bool = False) -> DistArray:
    """Smallest element; NaN if there is one."""
    return _reduced(x, "min", axis, None, keepdims)


def max(x: DistArray, axis: Any = None, *, keepdims: bool = False) -> DistArray:
    """Largest element; NaN if there is one."""
    return _reduced(x, "max", axis, None, keepdims)


def any(x: DistArray, axis: Any = None, *, keepdims: bool = False) -> DistArray:
    """Whether any element is true (not zero)."""
    return _reduced(x, "any", axis, _BOOL, keepdims)


def all(x: DistArray, axis: Any = None, *, keepdims: bool = False) -> DistArray:
    """Whether all elements are true (not zero)."""
    return _reduced(x, "all", axis, _BOOL, keepdims)


def argmin(x: DistArray, axis: int | None = None, *, keepdims: bool = False) -> DistArray:
    """Index of the first smallest element, or of the first NaN."""
    return _where_extreme(x, "argmin", axis, keepdims)


def argmax(x: DistArray, axis: int | None = None, *, keepdims: bool = False) -> DistArray:
    """Index of the first largest element, or of the first NaN."""
    return _where_extreme(x, "argmax", axis, keepdims)


def _where_extreme(x: DistArray, op: str, axis: Any, keepdims: bool) -> DistArray:
    if axis is not None:
        axis = operator.index(axis)
    if _covers(x, op, axis) and x.ndim == 0:
        return x.session.wrap(x.session.graph.constant(0, _INT))
    return _reduced(x, op, axis, _INT, keepdims)


def mean(x: DistArray, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> DistArray:
    """Arithmetic mean, accumulated in float64; NaN for an empty array."""
    covered = _covers(x, "mean", axis)
    natural = x.dtype if x.dtype.kind == "f" else _FLOAT
    result = natural if dtype is None else check_dtype(dtype)
    if not covered:
        return x.astype(result)
    exact = x.session.wrap(_reduce(x, "sum", build.cast(x.session, x.node, _FLOAT), _FLOAT))
    return _kept(x, (exact / np.float64(x.size)).astype(result), keepdims)


def count_nonzero(x: DistArray, axis: Any = None, *, keepdims: bool = False) -> DistArray:
    """Number of elements that are not zero, as int64."""
    _covers(x, "count_nonzero", axis)
    return sum(x != 0 if x.dtype != _BOOL else x, axis, keepdims=keepdims)


def dot(x: DistArray, y: DistArray) -> DistArray:
    """Inner product of two vectors, accumulated in float64 (int64); a scalar operand multiplies.

    Source: NumPy's ``dot`` for ranks 0 and 1. One pass, no temporary; lazy.
    """
    for operand in (x, y):
        _covers(operand, "dot", None)
    if x.ndim == 0 or y.ndim == 0:
        return x * y
    _check_same_length("dot", x, y)
    result = x.dtype if x.dtype == y.dtype else np.result_type(x.dtype, y.dtype)
    return x.session.wrap(_inner(x, y, result))


def vecdot(x: DistArray, y: DistArray, *, axis: int = -1) -> DistArray:
    """Inner product of two vectors (array API)."""
    for operand in (x, y):
        if _covers(operand, "vecdot", None) and operand.ndim == 0:
            raise ValueError("vecdot: both operands must have at least one dimension")
    _covers(x, "vecdot", operator.index(axis))
    return dot(x, y)


def _check_same_length(name: str, x: DistArray, y: DistArray) -> None:
    if x.shape != y.shape:
        raise ValueError(f"{name}: shapes {x.shape} and {y.shape} not aligned")


def _inner(x: DistArray, y: DistArray, result: np.dtype[Any]) -> Node:
    session = x.session
    build.check_session(session, y, "dot")
    if result == _BOOL:
        both = build.elementwise(session, "logical_and", x, y)
        return _reduce(x, "any", both.node, _BOOL)
    wide = _accumulator(result)
    first, second = build.cast(session, x.node, wide), build.cast(session, y.node, wide)
    return build.cast(session, session.graph.inner(first, second), result)


def norm(x: DistArray, ord: Any = None, axis: Any = None, *, keepdims: bool = False) -> DistArray:
    """Vector norm: 2 by default, 1, 0 (number of non-zeros), inf, -inf, or any real p.

    float32 stays float32 (accumulated in float64), other dtypes give float64.
    """
    _covers(x, "norm", axis)
    if x.ndim == 0:
        raise ValueError("norm: needs a vector, got a scalar; use abs(x)")
    if axis == ():
        raise ValueError("norm: axis=() names no axis; leave axis out, or say axis=0")
    result = x.dtype if x.dtype.kind == "f" else _FLOAT
    return _kept(x, _norm(x, ord, result), keepdims)


def _norm(x: DistArray, ord: Any, result: np.dtype[Any]) -> DistArray:
    wide = x.astype(_FLOAT)
    if ord is None or ord == 2:
        return _root(x, wide).astype(result)
    if ord == np.inf and x.size == 0:
        return x.session.full((), 0.0, result)
    if ord in (np.inf, -np.inf):
        return (max if ord > 0 else min)(abs(x.astype(result)))
    if ord == 1:
        return sum(abs(wide)).astype(result)
    if ord == 0:
        return count_nonzero(x).astype(result)
    if not isinstance(ord, int | float):
        raise ValueError(f"norm: ord must be a number, inf or -inf, got {ord!r}")
    return (sum(abs(wide) ** float(ord)) ** (1.0 / ord)).astype(result)


def _root(x: DistArray, wide: DistArray) -> DistArray:
    squared = x.session.wrap(_inner(wide, wide, _FLOAT))
    return build.elementwise(x.session, "sqrt", squared)
