"""Elements at places along an axis, that arrays of the same shape say; functions along axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distvec.array.creation import broadcast_to, expand_dims, reshape
from distvec.array.functions import array_among
from distvec.array.handle import refuse_window
from distvec.array.items import get_item, set_item
from distvec.array.operators import Arithmetic
from distvec.array.shaping.joining import column_stack
from distvec.graph import build
from ps_backend.program.types import array_type

_INT = np.dtype(np.int64)


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    """``numpy.take_along_axis``; lazy. Along axis 1 nothing moves, along axis 0 each column is a
    gather. ``IndexError`` for a place that is not there, from who evaluates it.
    """
    if not isinstance(arr, Arithmetic):
        arr = array_among("take_along_axis", (indices,)).session.namespace.asarray(arr)
    arr, places, over = _aligned(arr, indices, axis)
    if arr.ndim == 1:
        return get_item(arr, places)
    if over == 0:
        pairs = zip(_columns(arr, places.shape[1]), _columns(places), strict=True)
        return column_stack([get_item(column, at) for column, at in pairs])
    with arr.session.holders.lock:
        graph = arr.session.graph
        args = arr.node, build.cast(graph, places.node, _INT)
        type = array_type(arr.node.type.space, arr.dtype, places.shape[1:])
        return arr.like(graph.make("row_take", args, type))


def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None) -> None:
    """``numpy.put_along_axis``: the handle stands for another array; lazy."""
    refuse_window(array_among("put_along_axis", (arr,)))
    with arr.turn:
        whole, places, over = _aligned(arr, indices, axis)
        given = arr.session.namespace.asarray(values).astype(arr.dtype)
        given = given if given.shape == places.shape else broadcast_to(given, places.shape)
        if whole.ndim == 1:
            changed = whole.copy()
            set_item(changed, places, given)
        elif over == 0:
            columns = [column.copy() for column in _columns(whole, places.shape[1])]
            for column, at, new in zip(columns, _columns(places), _columns(given), strict=True):
                set_item(column, at, new)
            changed = column_stack(columns)
        else:
            changed = _put_in_rows(whole, places, _of_rows(given, len(places)))
        arr.assign(reshape(changed, arr.shape), "put_along_axis")


def _put_in_rows(arr: Any, places: Any, given: Any) -> Any:
    with arr.session.holders.lock:
        graph = arr.session.graph
        args = arr.node, build.cast(graph, places.node, _INT), given.node
        return arr.like(graph.make("row_put", args, arr.node.type))


def _aligned(arr: Any, indices: Any, axis: int | None) -> tuple[Any, Any, int]:
    """The array, the places on the servers beside it, and the axis."""
    if axis is None:
        if np.ndim(indices) != 1:
            raise ValueError("when axis=None, `indices` must have a single dimension.")
        arr, axis = reshape(arr, (arr.size,)), 0
    over = normalize_axis_index(axis, arr.ndim)
    if arr.ndim != np.ndim(indices):
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    places = arr.session.namespace.asarray(indices)
    if places.dtype.kind not in "iu":
        raise IndexError("`indices` must be an integer array")
    if arr.ndim == 1 or over == 0:
        return arr, places, over
    rows = max(len(arr), len(places)) if 1 in (len(arr), len(places)) else len(arr)
    return _of_rows(arr, rows), _of_rows(places, rows), over


def _of_rows(x: Any, rows: int) -> Any:
    """``x`` on the servers, with one row repeated to ``rows``."""
    return broadcast_to(x.session.array(x) if x.node.on_client else x, (rows, x.shape[1]))


def _columns(x: Any, count: int | None = None) -> list[Any]:
    """The columns of a table as vectors; the only one ``count`` times."""
    found = [get_item(x, (slice(None), number)) for number in range(x.shape[1])]
    return found * count if count and len(found) == 1 else found


def apply_over_axes(func: Callable[..., Any], a: Any, axes: Any) -> Any:
    """``func(a, axis)`` for one axis after the other, which stay: ``numpy.apply_over_axes``."""
    result = a
    for given in np.atleast_1d(axes).tolist():
        axis = normalize_axis_index(given, a.ndim)
        found = func(result, axis)
        result = found if found.ndim == result.ndim else expand_dims(found, axis=axis)
        if result.ndim != a.ndim:
            raise ValueError("function is not returning an array of the correct shape")
    return result


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {
        np.take_along_axis: take_along_axis,
        np.put_along_axis: put_along_axis,
        np.apply_over_axes: apply_over_axes,
    }
