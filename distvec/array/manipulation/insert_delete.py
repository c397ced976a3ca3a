"""Elements taken out and put in: ``delete``, ``insert``, ``trim_zeros``."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_index

from distvec.array.core.operators import Arithmetic
from distvec.array.core.shapes import broadcast_to, reshape, reshape_any
from distvec.array.elementwise import apply, array_among
from distvec.array.indexing.getitem import get_item
from distvec.array.indexing.parse_key import positions
from distvec.array.indexing.setitem import set_item
from distvec.array.manipulation.join import MOST_INPUTS, concatenate, row_index
from distvec.array.manipulation.rearrange import part
from distvec.array.manipulation.repeat import take_along_columns
from distvec.array.reductions import any as any_of
from distvec.array.reductions import max, min
from distvec.array.transposed import supports_column_split

MOST_PLACES = 1 << 10
"""At so many places of an axis that is split over servers elements are put in."""


@supports_column_split(unnamed=NotImplemented)
def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    """Remove the elements, rows or columns that ``obj`` names: ``numpy.delete``. Lazy.

    Few runs of them are left out by views, in one pass over memory. Many runs, or a mask on the
    servers, give a boolean-mask selection.
    """
    arr = array_among("delete", (arr,))
    if axis is None:
        arr, axis = reshape(arr, (arr.size,)), 0
    along = normalize_axis_index(axis, arr.ndim)
    length = arr.shape[along]
    if isinstance(obj, Arithmetic) and not obj.node.on_client:
        if obj.dtype == np.bool_:
            _check_mask(obj, length)
        return _without(arr, obj, along)
    gone = _parse_indices(obj, length)
    if along or arr.node.on_client:
        return take_along_columns(arr, along, np.delete(np.arange(length), gone))
    if not len(gone):
        return arr.copy()
    runs = list(_kept_runs(gone, length))
    if len(runs) <= MOST_INPUTS:
        return concatenate([part(arr, 0, low, high) for low, high in runs], axis=0)
    mask = apply("equal", row_index(arr, length), -1)
    set_item(mask, gone, True)
    return get_item(arr, apply("logical_not", mask))


def _parse_indices(obj: Any, length: int) -> npt.NDArray[np.int64]:
    """The indices that ``obj``, of the client, names of an axis; sorted, each once."""
    if isinstance(obj, slice):
        return np.sort(np.arange(length)[obj])
    given = np.asarray(obj)
    if given.dtype == np.bool_:
        _check_mask(given, length)
        return np.flatnonzero(given)
    if given.size and given.dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    return np.unique(positions(given.ravel(), length))


def _check_mask(mask: Any, length: int) -> None:
    if mask.shape != (length,):
        raise ValueError(
            f"boolean array argument obj to delete must be one dimensional and match the axis "
            f"length of {length}"
        )


def _kept_runs(gone: npt.NDArray[np.int64], length: int) -> Iterator[tuple[int, int]]:
    """What lies between indices: first, and past the last; at least one, which may be empty."""
    ends = np.concatenate([gone, [length]])
    starts = np.concatenate([[0], gone + 1])
    there = ends > starts
    runs = list(zip(starts[there].tolist(), ends[there].tolist(), strict=True))
    yield from runs or [(0, 0)]


def _without(arr: Any, obj: Any, axis: int) -> Any:
    if axis:
        raise NotImplementedError(
            "delete: column indices must be on the client; pull them: obj.numpy()"
        )
    mask = obj
    if obj.dtype != np.bool_:
        mask = apply("equal", row_index(arr, len(arr)), -1)
        set_item(mask, obj, True)
    return get_item(arr, apply("logical_not", mask))


# --- insert ---------------------------------------------------------------------------------------


@supports_column_split(unnamed=NotImplemented)
def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    """With ``values`` before the indices ``obj``, which the client has: ``numpy.insert``. Lazy.

    One sweep for up to ``MOST_INPUTS`` pieces. Values are cast to the dtype of ``arr``.
    """
    arr = array_among("insert", (arr,))
    if axis is None:
        arr, axis = reshape(arr, (arr.size,)), 0
    along = normalize_axis_index(axis, arr.ndim)
    length = arr.shape[along]
    places = _places(obj, length)
    given = _values(arr, values)
    if places.size == 1:
        if given.ndim < arr.ndim:
            given = reshape_any(given, (1,) * (arr.ndim - given.ndim) + given.shape)
        if places.ndim == 0 and along:
            given = given.T
        count = given.shape[along]
    else:
        count = places.size
    before = np.repeat(places.ravel(), count if places.size == 1 else 1)
    shape = (*arr.shape[:along], count, *arr.shape[along + 1 :])
    block = _stretch(arr, given, shape)
    if along or arr.node.on_client:
        both = concatenate([arr, block], axis=along)
        order = np.insert(np.arange(length), before, np.arange(length, length + count))
        return take_along_columns(both, along, order)
    return concatenate(list(_woven(arr, before, block)), axis=0)


def _values(arr: Any, values: Any) -> Any:
    if isinstance(values, Arithmetic):
        return values.materialized().astype(arr.dtype)
    return np.asarray(values).astype(arr.dtype)


def _stretch(arr: Any, given: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(given, Arithmetic):
        return broadcast_to(given, shape)
    if given.size == 1 and not arr.node.on_client:
        return arr.session.namespace.full(shape, given.reshape(())[()], dtype=arr.dtype)
    return np.broadcast_to(given, shape)


def _places(obj: Any, length: int) -> npt.NDArray[np.int64]:
    """The indices before which elements are put, from 0."""
    if isinstance(obj, slice):
        return np.arange(*obj.indices(length))
    if isinstance(obj, Arithmetic):
        if not obj.node.on_client:
            raise NotImplementedError(
                "insert: indices must be on the client; pull them: obj.numpy()"
            )
        obj.session.evaluate_implicitly(obj, "an index array")
    given = np.asarray(obj)
    if given.dtype == np.bool_:
        if given.ndim != 1:
            raise ValueError("boolean array argument obj to insert must be one dimensional")
        given = np.flatnonzero(given)
    if given.size and given.dtype.kind not in "iu":
        operator.index(given.ravel()[0])
    if given.ndim > 1:
        raise ValueError("index array argument obj to insert must be one dimensional or scalar")
    given = given.astype(np.int64)
    wrong = given[(given < -length) | (given > length)]
    if wrong.size:
        raise IndexError(f"index {wrong.ravel()[0]} is out of bounds for axis 0 with size {length}")
    return np.where(given < 0, given + length, given)


def _woven(arr: Any, before: npt.NDArray[np.int64], block: Any) -> Iterator[Any]:
    """Rows of ``arr``, and those of ``block`` before the rows that ``before`` names."""
    order = np.argsort(before, kind="stable")
    in_order = bool((order == np.arange(len(order))).all())
    places, counts = np.unique(before, return_counts=True)
    if len(places) > MOST_PLACES:
        raise NotImplementedError(
            f"insert: got {len(places)} places, at most {MOST_PLACES} are supported; assign to a "
            f"larger array: y = ps.empty(n); y[mask] = x"
        )
    low = taken = 0
    for place, count in zip(places.tolist(), counts.tolist(), strict=True):
        yield part(arr, 0, low, place)
        chosen = order[taken : taken + count]
        yield block[taken : taken + count] if in_order else block[chosen]
        low, taken = place, taken + count
    yield part(arr, 0, low, None)


# --- zeros at the ends ----------------------------------------------------------------------------


def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    """Remove zeros, or rows and columns of zeros, at the ends: ``numpy.trim_zeros``.

    The ends are found by an implicit evaluation: one request per server for all ends together.
    """
    lowered = trim.lower()
    if lowered not in ("fb", "bf", "f", "b"):
        raise ValueError(f"unexpected character(s) in `trim`: {trim!r}")
    axes = range(filt.ndim) if axis is None else [normalize_axis_index(axis, filt.ndim)]
    if not filt.size:
        return filt.copy()
    ends = [_ends(filt, one) for one in axes]
    filt.session.evaluate(*(value for pair in ends for value in pair))
    for one, (first, last) in zip(axes, ends, strict=True):
        low, high = int(first), int(last)
        start, stop = low if "f" in lowered else 0, high + 1 if "b" in lowered else None
        filt = part(filt, one, start, stop) if low <= high else part(filt, one, 0, 0)
    return filt


def _ends(x: Any, axis: int) -> tuple[Any, Any]:
    """The first and the last index along ``axis`` where something is not zero."""
    there = apply("not_equal", x, 0)
    if x.ndim == 2:
        there = any_of(there, 1 - axis)
    length = x.shape[axis]
    index: Any = row_index(x, length)
    if there.node.on_client:
        index = np.arange(length)
    return min(apply("where", there, index, length)), max(apply("where", there, index, -1))
