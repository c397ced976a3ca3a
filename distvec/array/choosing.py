"""NumPy's functions that choose elements by masks: read, written, or put together of several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distvec.array.checks import refuse_if
from distvec.array.creation import broadcast_to, reshape
from distvec.array.functions import apply, array_among, where
from distvec.array.handle import Handle, refuse_window
from distvec.array.items import get_item, set_item
from distvec.array.operators import Arithmetic, elementwise
from distvec.array.reduction_keywords import stored
from distvec.array.shaping.joining import column_stack
from distvec.array.shaping.placing import index_of


def nonzero(x: Any) -> tuple[Any, ...]:
    """Indices of the elements that are not zero, as ``numpy.nonzero``; lazy, selections."""
    if x.ndim == 0:
        raise ValueError(
            "Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() "
            "instead. If the context of this error is of the form `arr[nonzero(cond)]`, just use "
            "`arr[cond]`."
        )
    found = flatnonzero(x)
    return (found,) if x.ndim == 1 else (found // x.shape[1], found % x.shape[1])


def flatnonzero(x: Any) -> Any:
    """Indices of the elements that are not zero; lazy, a selection."""
    array_among("flatnonzero", (x,))
    if x.node.on_client:
        is_table = x.ndim == 2 and x.size  # without columns it stays with the client
        x = x.session.array(x if is_table else reshape(x, (x.size,)))
    places = x.like(x.session.graph.make("iota", (), x.type.of(np.dtype(np.int64))))
    return get_item(places, _truth(x))


def argwhere(a: Any) -> Any:
    """Indices of the elements that are not zero, a row each: ``numpy.argwhere``.

    An implicit evaluation, of their number.
    """
    if a.ndim == 0:
        found = flatnonzero(reshape(a, (1,)))
        return a.like(a.session.graph.client_value(np.empty((len(found), 0), np.int64), np.int64))
    return column_stack(nonzero(a))


def extract(condition: Any, arr: Any) -> Any:
    """The elements where ``condition`` is not zero, row by row: ``numpy.extract``."""
    array_among("extract", (condition, arr))
    given = _beside(condition, arr) if isinstance(condition, Arithmetic) else arr
    return compress(np.ravel(condition), np.ravel(given))


def compress(condition: Any, x: Any, axis: Any = None, out: Any = None) -> Any:
    """The elements where ``condition`` is not zero, or with an axis the rows or columns.

    The condition may be shorter than the axis, or longer by zeros, as in NumPy: of a longer one on
    the servers that is an implicit evaluation.
    """
    array_among("compress", (x,))
    return stored(out, _compressed(condition, x, axis), "compress")


def _compressed(condition: Any, x: Any, axis: Any) -> Any:
    if np.ndim(condition) != 1:
        raise ValueError("condition must be a 1-d array")
    if axis is None:
        x = reshape(x, (x.size,))
    before = (slice(None),) * normalize_axis_index(axis or 0, x.ndim)
    length = x.shape[len(before)]
    if isinstance(condition, Handle):
        return get_item(x, (*before, _as_long(_truth(condition), length, len(before))))
    given = np.asarray(condition) != 0
    if given[length:].any():
        worst = int(np.flatnonzero(given)[-1])
        raise IndexError(
            f"index {worst} is out of bounds for axis {len(before)} with size {length}"
        )
    mask = np.zeros(length, np.bool_)
    mask[: len(given)] = given[:length]
    return get_item(x, (*before, mask))


def _as_long(mask: Any, length: int, axis: int) -> Any:
    """A mask on the servers in another length; ``IndexError`` if that leaves some of it out."""
    if len(mask) == length:
        return mask
    if len(mask) < length:
        return np.concatenate([mask, np.zeros(length - len(mask), np.bool_)])
    rest = get_item(mask, slice(length, None))
    refuse_if(rest, IndexError, f"condition is true out of bounds for axis {axis} of size {length}")
    return get_item(mask, slice(0, length))


def putmask(x: Any, mask: Any, values: Any) -> None:
    """``values`` where ``mask`` is not zero, each at its own place: ``numpy.putmask``."""
    array_among("putmask", (x,))
    is_whole = type(values) is int and x.dtype.kind in "iu"
    given = x.session.array(values, x.dtype) if is_whole else _beside(x, values)
    if hasattr(values, "dtype") and not np.can_cast(given.dtype, x.dtype, "safe"):
        raise TypeError(
            f"Cannot cast array data from {given.dtype!r} to {x.dtype!r} according to the rule "
            f"'safe'; write values.astype({x.dtype.name!r})"
        )
    if given.shape not in ((), (1,), x.shape):
        given = _repeated(given, index_of(x, x.size), x.shape)
    _set_where(x, _beside(x, mask), given)


def _repeated(values: Any, places: Any, shape: tuple[int, ...]) -> Any:
    """Of ``values``, one after the other and again from the first, those at ``places``."""
    vector = reshape(values, (values.size,))
    return reshape(get_item(vector, places % len(vector)), shape)


def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """``dst[...] = src`` where ``where`` is true: ``numpy.copyto``."""
    if not isinstance(dst, Arithmetic):
        raise TypeError(
            f"copyto: dst is a {type(dst).__name__} on the client; write dst[...] = src.numpy()"
        )
    # Of a Python number its kind alone decides, and an integer takes the dtype where it goes.
    is_whole = type(src) is int and dst.dtype.kind in "iuf"
    source = dst.session.array(src, dst.dtype) if is_whole else _beside(dst, src)
    if not np.can_cast(source.dtype, dst.dtype, casting):
        raise TypeError(
            f"Cannot cast array data from {source.dtype!r} to {dst.dtype!r} according to the rule "
            f"{casting!r}"
        )
    if np.isscalar(where) or isinstance(where, np.generic):
        if where:
            set_item(dst, Ellipsis, source)
        return
    mask = _beside(dst, where)
    if mask.dtype != np.bool_:
        raise TypeError(
            f"Cannot cast array data from {mask.dtype!r} to dtype('bool') according to the rule "
            f"'safe'"
        )
    _set_where(dst, broadcast_to(mask, dst.shape), broadcast_to(source, dst.shape))


def _set_where(x: Any, mask: Any, values: Any) -> None:
    refuse_window(x)
    with x.turn:
        new = values.astype(x.dtype)
        x.assign(elementwise(x, "where", _truth(mask), new, x))


def _beside(x: Any, operand: Any) -> Any:
    """``operand`` as an array of the session of ``x``."""
    return operand if isinstance(operand, Arithmetic) else x.session.array(operand)


def _truth(x: Any) -> Any:
    if not isinstance(x, Handle):
        return np.asarray(x) != 0
    return x if x.dtype == np.bool_ else apply("not_equal", x, 0)


# --- by indices -----------------------------------------------------------------------------------


def take(x: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    """Elements, rows or columns at ``indices``: ``numpy.take``. Without an axis of all elements."""
    array_among("take", (x,))
    return stored(out, _taken(x, indices, axis, mode), "take")


def _taken(x: Any, indices: Any, axis: Any, mode: str) -> Any:
    if x.ndim == 0 or (axis is None and x.ndim > 1):
        x = reshape(x, (x.size,))
    number = 0 if axis is None else normalize_axis_index(axis, x.ndim)
    if not x.shape[number] and np.size(indices):
        raise IndexError("cannot do a non-empty take from an empty axes.")
    wanted = _by_mode(indices, x.shape[number], mode)
    return get_item(x, wanted if number == 0 else (slice(None), wanted))


def put(x: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """``x.flat[ind] = v``, with ``v`` repeated as often as it takes: ``numpy.put``."""
    array_among("put", (x,))
    if x.ndim != 1:
        with x.turn:
            elements = reshape(x, (x.size,))
            put(elements, ind, v, mode)
            x.assign(reshape(elements, x.shape), "put")
        return
    wanted = np.ravel(_by_mode(ind, len(x), mode))
    values: Any = v if isinstance(v, Handle) else np.ravel(np.asarray(v))
    if np.size(values) == 0 or not len(wanted):
        return
    if not isinstance(values, Handle):
        values = np.resize(values, len(wanted))
    elif values.ndim and values.size != len(wanted):
        values = _repeated(values, index_of(x, len(wanted)), (len(wanted),))
    set_item(x, wanted, values)


def _by_mode(indices: Any, length: int, mode: str) -> Any:
    """Indices of an axis, of which ``mode`` says what becomes of those out of range."""
    given: Any = indices if isinstance(indices, Arithmetic) else np.asarray(indices)
    given = given.astype(np.int64) if given.size == 0 else given
    if mode == "clip":
        return np.clip(given, 0, length - 1)
    if mode == "wrap":
        return given % length
    if mode != "raise":
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    return given


def place(arr: Any, mask: Any, vals: Any) -> None:
    """``vals``, one after the other and again from the first, where ``mask`` is not zero:
    ``numpy.place``. Of several values, which place is how manieth is a movement of two phases.
    """
    array_among("place", (arr,))
    chosen, given = _truth(_beside(arr, mask)), _beside(arr, np.atleast_1d(vals))
    if chosen.size != arr.size:
        raise ValueError(
            f"place: mask and data must be the same size, got {chosen.size} and {arr.size}"
        )
    if chosen.shape != arr.shape:
        chosen = reshape(chosen, arr.shape)
    if given.size == 1:
        set_item(arr, chosen, reshape(given, ()))
        return
    if not given.size:
        refuse_if(chosen, ValueError, "Cannot insert from an empty array!")
        return
    before = np.cumsum(reshape(chosen, (arr.size,))) - 1
    _set_where(arr, chosen, _repeated(given, before, arr.shape))


def _where(condition: Any, *choices: Any) -> Any:
    if not choices:
        return nonzero(condition)
    if len(choices) == 1:
        raise ValueError("either both or neither of x and y should be given")
    return where(condition, *choices)


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {
        np.where: _where,
        np.nonzero: nonzero,
        np.flatnonzero: flatnonzero,
        np.argwhere: argwhere,
        np.extract: extract,
        np.compress: compress,
        np.putmask: putmask,
        np.place: place,
        np.put: put,
        np.take: take,
        np.copyto: copyto,
    }
