"""Reductions, as NumPy defines them, from the eight that kernels accumulate in 64 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from distvec import build
from distvec.expr import Node

if TYPE_CHECKING:
    from distvec.array import DistArray

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


def _check_axis(x: DistArray, name: str, axis: Any) -> None:
    if axis is None or axis == 0 or axis == -1 or axis in ((0,), (-1,), ()):
        if axis is not None and axis != () and x.ndim == 0:
            raise np.exceptions.AxisError(axis if isinstance(axis, int) else axis[0], 0)
        return
    raise np.exceptions.AxisError(f"{name}: axis {axis!r} is out of bounds for a vector")


def _check_not_empty(x: DistArray, text: str) -> None:
    if x.size == 0:
        raise ValueError(text)


def sum(x: DistArray, axis: Any = None, dtype: Any = None) -> DistArray:
    """Sum of the elements: float64 and float32 as they are, integers and booleans as int64."""
    _check_axis(x, "sum", axis)
    if dtype is not None:
        x = x.astype(dtype)
    result = x.dtype if x.dtype.kind == "f" or dtype is not None else _INT
    return x.session.wrap(_reduce(x, "sum", x.node, result))


def prod(x: DistArray, axis: Any = None, dtype: Any = None) -> DistArray:
    """Product of the elements; dtypes as for ``sum``."""
    _check_axis(x, "prod", axis)
    if dtype is not None:
        x = x.astype(dtype)
    result = x.dtype if x.dtype.kind == "f" or dtype is not None else _INT
    return x.session.wrap(_reduce(x, "prod", x.node, result))


def min(x: DistArray, axis: Any = None) -> DistArray:
    """Smallest element; NaN if there is one."""
    _check_axis(x, "min", axis)
    _check_not_empty(x, "zero-size array to reduction operation minimum which has no identity")
    return x.session.wrap(_reduce(x, "min", x.node, x.dtype))


def max(x: DistArray, axis: Any = None) -> DistArray:
    """Largest element; NaN if there is one."""
    _check_axis(x, "max", axis)
    _check_not_empty(x, "zero-size array to reduction operation maximum which has no identity")
    return x.session.wrap(_reduce(x, "max", x.node, x.dtype))


def any(x: DistArray, axis: Any = None) -> DistArray:
    """Whether any element is true (not zero)."""
    _check_axis(x, "any", axis)
    return x.session.wrap(_reduce(x, "any", x.node, _BOOL))


def all(x: DistArray, axis: Any = None) -> DistArray:
    """Whether all elements are true (not zero)."""
    _check_axis(x, "all", axis)
    return x.session.wrap(_reduce(x, "all", x.node, _BOOL))


def argmin(x: DistArray, axis: Any = None) -> DistArray:
    """Index of the first smallest element, or of the first NaN."""
    _check_axis(x, "argmin", axis)
    _check_not_empty(x, "attempt to get argmin of an empty sequence")
    return x.session.wrap(_where_extreme(x, "argmin"))


def argmax(x: DistArray, axis: Any = None) -> DistArray:
    """Index of the first largest element, or of the first NaN."""
    _check_axis(x, "argmax", axis)
    _check_not_empty(x, "attempt to get argmax of an empty sequence")
    return x.session.wrap(_where_extreme(x, "argmax"))


def _where_extreme(x: DistArray, op: str) -> Node:
    if x.ndim == 0:
        return x.session.graph.constant(0, _INT)
    return _reduce(x, op, x.node, _INT)


def mean(x: DistArray, axis: Any = None, dtype: Any = None) -> DistArray:
    """Arithmetic mean, accumulated in float64; NaN for an empty array."""
    _check_axis(x, "mean", axis)
    result = np.dtype(dtype) if dtype is not None else (x.dtype if x.dtype.kind == "f" else _FLOAT)
    exact = x.session.wrap(_reduce(x, "sum", build.cast(x.session, x.node, _FLOAT), _FLOAT))
    return (exact / np.float64(x.size)).astype(result)


def count_nonzero(x: DistArray, axis: Any = None) -> DistArray:
    """Number of elements that are not zero, as int64."""
    return sum(x != 0 if x.dtype != _BOOL else x, axis)


def dot(x: DistArray, y: DistArray) -> DistArray:
    """Inner product of two vectors, accumulated in float64 (int64); a scalar operand multiplies.

    Source: NumPy's ``dot`` for ranks 0 and 1. One pass, no temporary; lazy.
    """
    if x.ndim == 0 or y.ndim == 0:
        return x * y
    _check_same_length("dot", x, y)
    result = x.dtype if x.dtype == y.dtype else np.result_type(x.dtype, y.dtype)
    return x.session.wrap(_inner(x, y, result))


def vecdot(x: DistArray, y: DistArray, *, axis: int = -1) -> DistArray:
    """Inner product of two vectors (array API)."""
    if x.ndim == 0 or y.ndim == 0:
        raise ValueError("vecdot: both operands must have at least one dimension")
    _check_axis(x, "vecdot", axis)
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


def norm(x: DistArray, ord: Any = None, axis: Any = None) -> DistArray:
    """Vector norm: 2 by default, 1, 0 (number of non-zeros), inf, -inf, or any real p.

    float32 stays float32 (accumulated in float64), other dtypes give float64.
    """
    result = x.dtype if x.dtype.kind == "f" else _FLOAT
    if x.ndim == 0:
        raise ValueError("norm: needs a vector, got a scalar; use abs(x)")
    _check_axis(x, "norm", axis)
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
