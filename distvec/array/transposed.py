"""Axes in the other order: of what the client keeps, and of tables by the other split.

A table is split over the servers by its rows. Its transpose has the same elements in the same
places, so it is split by its columns: ``column_split`` has the array that stands for one.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from distvec.array.core.handle import check_split, express, is_split_by_columns, make, stored_table
from distvec.array.core.operators import Arithmetic
from distvec.array.core.shapes import reshape
from distvec.graph import build
from distvec.graph.node import Graph, Node, gather
from ps_backend.program.types import array_type


def transpose(x: Any, /, axes: Any = None) -> Any:
    """``x`` with its axes in the other order, or in that of ``axes``; lazy, and moves nothing."""
    if axes is not None:
        order = [operator.index(axis) % max(1, x.ndim) for axis in axes]
        if sorted(order) != list(range(x.ndim)):
            raise ValueError("axes don't match array")
        if order == sorted(order):
            return x.copy()
    if is_split_by_columns(x):
        return x.table.copy()
    if x.ndim < 2:
        return x
    if x.node.on_client:
        return express(x, build.transpose, x)
    return x.session._transposed(x.copy())


def permute_dims(x: Any, /, axes: Any) -> Any:
    """As ``transpose`` (array API)."""
    return transpose(x, axes)


def matrix_transpose(x: Any, /) -> Any:
    """A table with its axes in the other order. ``ValueError`` below rank 2."""
    if x.ndim < 2:
        raise ValueError(f"matrix transpose needs a table, got an array of rank {x.ndim}")
    return transpose(x)


def exchanged_axes(axis: Any) -> Any:
    """``axis`` of a transpose as one of the table. ``AxisError`` for one that there is not."""
    if axis is None:
        return None
    axes = [1 - one for one in normalize_axis_tuple(axis, 2)]
    return type(axis)(axes) if isinstance(axis, list | tuple) else axes[0]


def transpose_operand(operand: Any) -> Any:
    """Exchange the axes of an operand beside a transpose, for the same operation on its table."""
    if isinstance(operand, Arithmetic):
        if operand.ndim == 0 or operand.is_split_by_columns:
            return stored_table(operand)
        if operand.ndim == 1:
            return reshape(operand, (len(operand), 1))
        if operand.node.on_client or 1 in operand.shape:
            return collected_transpose(operand)
        return redistribute(operand)
    rank = np.ndim(operand)
    if rank == 0:
        return operand
    if rank == 1:
        return np.asarray(operand)[:, None]
    return np.asarray(operand).T if isinstance(operand, list | tuple) else operand.T


def collected_transpose(x: Any) -> Any:
    """The transpose of a small table, which the client gets; lazy."""
    return express(x, build.transpose, express(x, build.collect, x))


def redistribute(table: Any) -> Any:
    """The transpose of a table that is split by rows, split by rows as well; lazy.

    Its elements go from server to server, and 8 bytes for each that say where it is. Nothing is
    evaluated, so it may be called under the lock of the session's holders.
    """
    n, k = table.shape
    flat = reshape(table, (n * k,))
    if flat.node.on_client:
        return express(flat, build.transpose, reshape(flat, (n, k)))
    place = make(flat, "iota", (), array_type(flat.space, np.dtype(np.int64)))
    source = express(flat, _sources, place, n, k)
    return reshape(express(flat, gather, flat, source), (k, n))


def _sources(graph: Graph, place: Node, n: int, k: int) -> Node:
    """``place % n * k + place // n``: where each element of the transpose is in the table."""
    column = build.elementwise(graph, "remainder", [place, n])
    row = build.elementwise(graph, "floor_divide", [place, n])
    return build.elementwise(graph, "add", [build.elementwise(graph, "multiply", [column, k]), row])


_OPERANDS = {"where", "weights", "values", "prepend", "append", "test_elements"}
"""Parameters that are of the shape of the array, or are broadcast to it."""

F = TypeVar("F", bound=Callable[..., Any])
_NONE: Mapping[str, Any] = MappingProxyType({})
_signature = functools.cache(inspect.signature)


def supports_column_split(position: int = 0, *, unnamed: Any = None) -> Callable[[F], F]:
    """Decorate a function: of an array that is split by columns it works on the transpose.

    The array is the argument at ``position``. The axes of the other operands, of ``axis`` and of
    results of rank 2 are exchanged. ``unnamed``: the axes if none is named; ``NotImplemented`` if
    the function then takes all elements in a row, which it does to an array that is split by rows.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def either(*args: Any, **kwargs: Any) -> Any:
            x = args[position] if len(args) > position else None
            if getattr(x, "is_split_by_columns", False):  # no call: most are split by rows
                return exchange_axes(function, position, unnamed, args, kwargs)
            return function(*args, **kwargs)

        return either  # type: ignore[return-value]

    return decorate


def exchange_axes(
    function: Any, position: int, unnamed: Any, args: Any, kwargs: Mapping[str, Any] = _NONE
) -> Any:
    """Call ``function`` with the transpose of the argument that is split by columns."""
    signature = _signature(function)
    bound = signature.bind(*args, **kwargs)
    given = bound.arguments
    if "axis" in signature.parameters:
        axis = given.get("axis", signature.parameters["axis"].default)
        axis = unnamed if axis is None else axis
        if axis is NotImplemented:
            return function(*args, **kwargs)
        given["axis"] = exchanged_axes(axis)
    given[list(signature.parameters)[position]] = args[position].table
    for name in _OPERANDS & given.keys():
        is_for_each = name == "weights" and np.ndim(given[name]) < 2
        # NumPy itself transposes values that are inserted at one place along the other axis.
        is_turned = name == "values" and np.ndim(given.get("obj", [])) == 0
        if not (is_for_each or is_turned):
            given[name] = transpose_operand(given[name])
    out = given.get("out")
    (target,) = out if isinstance(out, tuple) else (out,)
    if isinstance(target, Arithmetic) and target.ndim == 2:
        if not given.get("keepdims"):
            check_split(target, args[position], function.__name__)
        # An assignment to the transpose of a table that is split by rows changes the table.
        is_split = target.is_split_by_columns
        given["out"] = stored_table(target) if is_split else target.session._transposed(target)
    result = function(*bound.args, **bound.kwargs)
    if isinstance(target, Arithmetic):
        return target
    # Of several quantiles each has a row of its own, whichever axis they are along.
    return result if np.ndim(given.get("q", 0)) else _transposes(result)


def _transposes(result: Any) -> Any:
    if isinstance(result, tuple | list):
        return type(result)(map(_transposes, result))
    return transpose(result) if isinstance(result, Arithmetic) else result
