"""Along the rows of a table: what is done to each row by itself.

Nothing here moves data: a row is on one server. Small arrays that the client keeps are treated by
the client.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from distvec.array.creation import reshape
from distvec.array.operators import Arithmetic, elementwise
from distvec.array.reductions import axis_of, max, sum
from distvec.graph.shapes import on_client
from ps_backend.program.types import client_type

A = TypeVar("A", bound=Arithmetic)

_INT, _UNSIGNED = np.dtype(np.int64), np.dtype(np.uint64)


def softmax(x: A, axis: Any = None) -> A:
    """Exponentials divided by their sum along ``axis``; lazy. One sweep along axis 1.

    The largest element is subtracted first, so nothing overflows. Source: SciPy's ``softmax``.
    """
    small = elementwise(x, "exp", elementwise(x, "subtract", x, _peak(x, axis)))
    return elementwise(x, "divide", small, sum(small, axis, keepdims=True))


def log_softmax(x: A, axis: Any = None) -> A:
    """The logarithm of ``softmax``, without its loss of digits; lazy."""
    shifted = elementwise(x, "subtract", x, _peak(x, axis))
    total = sum(elementwise(x, "exp", shifted), axis, keepdims=True)
    return elementwise(x, "subtract", shifted, elementwise(x, "log", total))


def logsumexp(x: A, axis: Any = None, *, keepdims: bool = False) -> A:
    """``log(sum(exp(x)))`` along ``axis`` without overflow; lazy."""
    peak = _peak(x, axis)
    total = sum(elementwise(x, "exp", elementwise(x, "subtract", x, peak)), axis, keepdims=True)
    result = elementwise(x, "add", elementwise(x, "log", total), peak)
    over = axis_of(x, "logsumexp", axis)
    if keepdims or isinstance(over, tuple) or x.ndim == 0:
        return result
    return reshape(result, () if over is None else result.shape[:over] + result.shape[over + 1 :])


def _peak(x: A, axis: Any) -> A:
    """The largest elements along ``axis``, 0 where that is not finite."""
    peak = max(x, axis, keepdims=True)
    return elementwise(x, "where", elementwise(x, "isfinite", peak), peak, 0.0)


def sort(x: A, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> A:
    """Each row of a table in order, ``axis=1``; NaN is the largest; lazy."""
    return _sorted(x, "sort", axis, descending, x.dtype)


def argsort(x: A, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> A:
    """The indices that sort each row of a table, ``axis=1``; ties stay in order; lazy."""
    return _sorted(x, "argsort", axis, descending, _INT)


def sort_in_place(x: A, axis: int = -1, kind: Any = None, order: Any = None) -> None:
    """As ``numpy.ndarray.sort``: the array stands for the sorted one."""
    with x.turn:
        x.assign(sort(x, axis=axis), "sort")


def _sorted(x: A, name: str, axis: int, descending: bool, dtype: np.dtype[Any]) -> A:
    over = _own_axis(x, name, axis)
    graph = x.session.graph
    with x.session.holders.lock:
        node = x.node
        if node.on_client:
            params = name, over, descending
            type = client_type(dtype, node.type.shape)
            return x.like(on_client(graph, "client.sort", (node,), type, params))
        sorted_type = node.type.of(dtype)
        return x.like(graph.make(f"row_{name}", (node,), sorted_type, (int(descending), 1)))


def _own_axis(x: Arithmetic, name: str, axis: Any) -> int:
    """The axis, along which no data moves. ``TypeError`` for axis 0 of what servers have."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"{name}: say an axis")
        axis = 0
    if x.ndim:
        axis = operator.index(axis)
        axis_of(x, name, axis)
        axis %= x.ndim
    if not x.node.on_client and axis == 0:
        raise TypeError(
            f"numpy.{name} along the split axis 0 is not available on the servers; "
            f"pull the values with x.numpy() and call it on those"
        )
    return int(axis)


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {
        np.sort: lambda x, axis=-1, kind=None, order=None, *, stable=None: sort(x, axis=axis),
        np.argsort: lambda x, axis=-1, kind=None, order=None, *, stable=None: argsort(x, axis=axis),
    }
