"""``pad``: arrays with more elements around them, axis by axis."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distvec.array.core.shapes import broadcast_to, full, reshape
from distvec.array.elementwise import apply
from distvec.array.indexing.getitem import gather, get_item
from distvec.array.manipulation.join import concatenate, row_index
from distvec.array.manipulation.rearrange import part
from distvec.array.manipulation.repeat import take_along_columns
from distvec.array.transposed import supports_column_split

_FEW = 4
"""So many copies of an edge at most are read with the rest; more wait for its value."""
_MOST_RUNS = 256
"""So many turns of what is repeated are put end to end; more are named by an index array."""

_MIRRORED = ("reflect", "symmetric", "wrap")
_STATISTICS = ("maximum", "mean", "median", "minimum")
_KEYWORDS: dict[Any, tuple[str, ...]] = {
    "constant": ("constant_values",),
    "edge": (),
    "empty": (),
    "linear_ramp": ("end_values",),
    "reflect": ("reflect_type",),
    "symmetric": ("reflect_type",),
    "wrap": (),
    **dict.fromkeys(_STATISTICS, ("stat_length",)),
}


def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """Add elements before and after an array along each axis: ``numpy.pad``. Lazy.

    One pass over memory. A mode that uses values of the array (its edges, for more than ``_FEW``,
    its mean) needs one request before.
    """
    if callable(mode):
        raise NotImplementedError(
            "pad: a function as mode is not supported; give the name of a mode, or join the parts "
            "with numpy.concatenate"
        )
    allowed = _KEYWORDS.get(mode)
    if allowed is None:
        raise ValueError(f"mode '{mode}' is not supported")
    if unknown := set(kwargs) - set(allowed):
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {unknown}")
    widths = _widths(pad_width, array.ndim)
    setting = kwargs.get(allowed[0]) if allowed else None
    if mode in ("constant", "linear_ramp"):
        setting = _pairs(0 if setting is None else setting, array.ndim)
    elif mode in _STATISTICS:
        setting = _lengths(setting, array.shape)
    elif mode in ("reflect", "symmetric") and setting not in (None, "even", "odd"):
        raise ValueError(f"reflect_type={setting!r}; allowed are 'even' and 'odd'")
    if not array.size and mode not in ("constant", "empty"):
        for axis, (before, after) in enumerate(widths):
            if not array.shape[axis] and (before or after):
                raise ValueError(
                    f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'"
                )
    result = array
    for axis, (before, after) in enumerate(widths):
        if before or after:
            one = setting[axis] if isinstance(setting, list) else setting
            result = _along(result, axis, before, after, mode, one)
    return result.copy()


def _widths(given: Any, rank: int) -> list[tuple[int, int]]:
    if isinstance(given, dict):
        found = [(0, 0)] * rank
        for axis, width in given.items():
            found[normalize_axis_index(axis, rank)] = _widths(width, 1)[0]
        return found
    if np.asarray(given).dtype.kind not in "iu":
        raise TypeError("`pad_width` must be of integral type.")
    widths = [(operator.index(a), operator.index(b)) for a, b in _pairs(given, rank)]
    if any(one < 0 for pair in widths for one in pair):
        raise ValueError("index can't contain negative values")
    return widths


def _pairs(given: Any, rank: int) -> list[tuple[Any, Any]]:
    """A value before and one after, for each axis."""
    return [(low, high) for low, high in np.broadcast_to(np.asarray(given), (rank, 2)).tolist()]


def _lengths(given: Any, shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Of how many elements at each end a statistic is."""
    if given is None:
        return [(length, length) for length in shape]
    return [
        (min(low, length), min(high, length))
        for (low, high), length in zip(_pairs(given, len(shape)), shape, strict=True)
    ]


@supports_column_split()
def _along(x: Any, axis: int, before: int, after: int, mode: str, setting: Any) -> Any:
    if mode == "edge":
        pieces = [*_edge(x, axis, 0, before), x, *_edge(x, axis, x.shape[axis] - 1, after)]
    elif mode in _MIRRORED and setting == "odd":
        pieces = _odd(x, axis, before, after, mode)
    elif mode in _MIRRORED:
        return _mirror(x, axis, before, after, mode)
    elif mode == "linear_ramp":
        low, high = setting
        last = part(_ramp(x, axis, x.shape[axis] - 1, high, after), axis, None, None, -1)
        pieces = [_ramp(x, axis, 0, low, before), x, last]
    elif mode in _STATISTICS:
        pieces = _statistics(x, axis, before, after, mode, setting)
    else:
        low, high = setting if mode == "constant" else (0, 0)
        pieces = [_constant(x, axis, before, low), x, _constant(x, axis, after, high)]
    there = [piece for piece in pieces if piece is x or piece.shape[axis]]
    return concatenate(there, axis=axis)


def _shape(x: Any, axis: int, count: int) -> tuple[int, ...]:
    return (*x.shape[:axis], count, *x.shape[axis + 1 :])


def _constant(x: Any, axis: int, count: int, value: Any) -> Any:
    shape = _shape(x, axis, count)
    number = np.asarray(value).astype(x.dtype)
    if not count or x.node.on_client:
        return np.full(shape, number)
    return full(x, shape, number, x.dtype)


def _edge(x: Any, axis: int, place: int, count: int) -> list[Any]:
    if not count:
        return []
    edge = part(x, axis, place, place + 1)
    if count <= _FEW and not axis:
        return [edge] * count
    if not axis:
        edge = reshape(get_item(x, place), _shape(x, axis, 1))
    return [_repeat_edge(edge, axis, count)]


def _repeat_edge(edge: Any, axis: int, count: int) -> Any:
    """One row, or column, so many times."""
    if edge.node.on_client and not axis:
        edge = reshape(edge, edge.shape[1:])
    return broadcast_to(edge, _shape(edge, axis, count)) if axis else _rows_of(edge, count)


def _rows_of(row: Any, count: int) -> Any:
    shape = (count, *row.shape) if row.node.on_client else (count, *row.shape[1:])
    return broadcast_to(row, shape)


# --- elements of the array, in another order ------------------------------------------------------


def _mirror(x: Any, axis: int, before: int, after: int, mode: str) -> Any:
    length = x.shape[axis]
    if axis or x.node.on_client:
        places = np.pad(np.arange(length), (before, after), mode)  # type: ignore[call-overload]
        return take_along_columns(x, axis, places)
    if (before + after) / max(1, length) > _MOST_RUNS:
        return gather(x, x.session._put(np.pad(np.arange(length), (before, after), mode)))  # type: ignore[call-overload]
    runs = list(_runs(length, before, after, mode))
    return concatenate([part(x, 0, *run) for run in runs], axis=0)


def _runs(length: int, before: int, after: int, mode: str) -> Iterator[tuple[int, Any, int]]:
    """Slices, in order, of which a padded vector of ``length`` consists."""
    yield from _turns(length, -before, 0, mode)
    yield 0, length, 1
    yield from _turns(length, length, length + after, mode)


def _turns(length: int, place: int, end: int, mode: str) -> Iterator[tuple[int, Any, int]]:
    """Those from ``place`` to ``end`` of a vector that goes on and on.

    Forwards each time, or by turns forwards and backwards, with the elements at the ends once
    (reflect) or twice (symmetric).
    """
    size = length - 1 if mode == "reflect" and length > 1 else length
    while place < end:
        turn, first = divmod(place, size)
        count = min(end - place, size - first)
        if mode == "wrap" or turn % 2 == 0:
            yield first, first + count, 1
        else:
            last = length - 1 - first
            yield last, last - count if last >= count else None, -1
        place += count


def _odd(x: Any, axis: int, before: int, after: int, mode: str) -> list[Any]:
    """Mirrored at the values of the edges as well: twice these, less what is mirrored."""
    shared = 1 if mode == "reflect" else 0
    length = x.shape[axis]
    if max(before, after) > length - shared:
        raise NotImplementedError(
            f"pad: mode {mode!r} with reflect_type='odd' adds at most {length - shared} elements; "
            f"pad in several steps"
        )
    first = part(x, axis, shared, before + shared)
    last = part(x, axis, length - shared - after, length - shared)
    pieces = [x]
    if before:
        pieces.insert(0, _against(x, axis, 0, part(first, axis, None, None, -1)))
    if after:
        pieces.append(_against(x, axis, length - 1, part(last, axis, None, None, -1)))
    return pieces


def _against(x: Any, axis: int, place: int, mirrored: Any) -> Any:
    edge = part(x, 1, place, place + 1) if axis else get_item(x, place)
    twice = apply("multiply", edge, x.dtype.type(2))
    return apply("subtract", twice, mirrored)


# --- values made of the array's -------------------------------------------------------------------


def _ramp(x: Any, axis: int, place: int, end: Any, count: int) -> Any:
    """From ``end`` on towards the value at an edge: ``numpy.linspace`` without its last value."""
    if not count:
        return np.empty(_shape(x, axis, 0), x.dtype)
    steps: Any = np.arange(count, dtype=np.float64)
    if axis:
        edge = part(x, 1, place, place + 1)
    else:
        edge = get_item(x, place)
        if not x.node.on_client:
            steps = row_index(x, count).astype(np.float64)
        if x.ndim == 2:
            steps = steps.reshape(-1, 1)
    step = apply("divide", apply("subtract", edge, float(end)), float(count))
    values = apply("add", apply("multiply", steps, step), float(end))
    return (apply("floor", values) if x.dtype.kind in "iu" else values).astype(x.dtype)


def _statistics(
    x: Any, axis: int, before: int, after: int, mode: str, lengths: tuple[int, int]
) -> list[Any]:
    low, high = lengths
    if mode in ("maximum", "minimum") and 0 in lengths:
        raise ValueError(f"stat_length of 0 yields no value for padding with mode {mode!r}")
    function = {"maximum": np.max, "minimum": np.min, "mean": np.mean, "median": np.median}[mode]
    length = x.shape[axis]

    def value(first: int, size: int, count: int) -> list[Any]:
        if not count:
            return []
        found = function(part(x, axis, first, first + size), axis=axis, keepdims=True)  # type: ignore[operator]
        whole = np.round(found) if x.dtype.kind in "iu" else found
        return [_repeat_edge(whole.astype(x.dtype), axis, count)]

    return [*value(0, low, before), x, *value(length - high, high, after)]
