"""NumPy's functions that choose elements by masks, by indices, along an axis, of several arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_index

from distvec.array.core.handle import Handle, check_cast, check_not_slice, host_array, make
from distvec.array.core.keywords import store
from distvec.array.core.operators import A, Arithmetic, elementwise, raise_if_any
from distvec.array.core.shapes import broadcast_to, expand_dims, reshape
from distvec.array.elementwise import apply, array_among, where, zeros_like
from distvec.array.indexing.getitem import get_item
from distvec.array.indexing.setitem import set_item
from distvec.array.manipulation.join import column_stack, row_index
from ps_backend.program.types import array_type

Mode = Literal["raise", "wrap", "clip"]
"""What becomes of indices out of bounds."""


def nonzero(x: A) -> tuple[A, ...]:
    """Return the indices of the elements that are not zero.

    Parameters
    ----------
    x : DistArray
        Vector or table.

    Returns
    -------
    tuple of DistArray
        One lazy int64 vector for each axis; their length is known after an evaluation.

    Raises
    ------
    ValueError
        If ``x`` has rank 0.

    See Also
    --------
    numpy.nonzero : The same function of arrays on the client.

    Examples
    --------
    >>> ps.array([0.0, 2.0, 3.0]).nonzero()
    (DistArray([1, 2], dtype=int64, shape=(2,)),)
    """
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
        x = x.session._put(x if is_table else reshape(x, (x.size,)))
    places = make(x, "iota", (), x.type.of(np.dtype(np.int64)))
    return get_item(places, _truth(x))


def argwhere(a: Any) -> Any:
    """Indices of the elements that are not zero, a row each: ``numpy.argwhere``.

    An implicit evaluation, of their number.
    """
    if a.ndim == 0:
        found = flatnonzero(reshape(a, (1,)))
        return host_array(a, np.empty((len(found), 0), np.int64))
    return column_stack(nonzero(a))


def extract(condition: Any, arr: Any) -> Any:
    """The elements where ``condition`` is not zero, row by row: ``numpy.extract``."""
    array_among("extract", (condition, arr))
    given = _as_array_of(condition, arr) if isinstance(condition, Arithmetic) else arr
    return compress(np.ravel(condition), np.ravel(given))


def compress(condition: Any, x: Any, axis: Any = None, out: Any = None) -> Any:
    """The elements where ``condition`` is not zero, or with an axis the rows or columns.

    The condition may be shorter than the axis, or longer by zeros, as in NumPy: of a longer one on
    the servers that is an implicit evaluation.
    """
    array_among("compress", (x,))
    return store(out, _compress(condition, x, axis), "compress", "unsafe")


def _compress(condition: Any, x: Any, axis: Any) -> Any:
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
    raise_if_any(
        rest, IndexError, f"condition is true out of bounds for axis {axis} of size {length}"
    )
    return get_item(mask, slice(0, length))


def putmask(x: Any, mask: Any, values: Any) -> None:
    """``values`` where ``mask`` is not zero, each at its own place: ``numpy.putmask``."""
    array_among("putmask", (x,))
    is_whole = type(values) is int and x.dtype.kind in "iu"
    given = x.session._put(values, x.dtype) if is_whole else _as_array_of(x, values)
    if hasattr(values, "dtype"):
        check_cast(given.dtype, x.dtype, "safe", f"write values.astype({x.dtype.name!r})")
    if given.shape not in ((), (1,), x.shape):
        given = _cycle_values(given, row_index(x, x.size), x.shape)
    _set_where(x, _as_array_of(x, mask), given)


def _cycle_values(values: Any, places: Any, shape: tuple[int, ...]) -> Any:
    """Of ``values``, one after the other and again from the first, those at ``places``."""
    vector = reshape(values, (values.size,))
    return reshape(get_item(vector, places % len(vector)), shape)


def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """``dst[...] = src`` where ``where`` is true: ``numpy.copyto``."""
    if not isinstance(dst, Arithmetic):
        if not any(isinstance(one, Arithmetic) and not one.node.on_client for one in (src, where)):
            np.copyto(dst, np.asarray(src), casting, np.asarray(where))  # all is here
            return
        raise TypeError(
            f"copyto: dst is a {type(dst).__name__} on the client; write dst[...] = src.numpy()"
        )
    # Only the kind of a Python number counts, and an integer takes the dtype of the target.
    is_whole = type(src) is int and dst.dtype.kind in "iuf"
    source = dst.session._put(src, dst.dtype) if is_whole else _as_array_of(dst, src)
    check_cast(source.dtype, dst.dtype, casting, f"write src.astype({dst.dtype.name!r})")
    if np.isscalar(where) or isinstance(where, np.generic):
        if where:
            set_item(dst, Ellipsis, source)
        return
    mask = _as_array_of(dst, where)
    check_cast(mask.dtype, np.bool_, "safe", "compare first, as in mask != 0")
    _set_where(dst, broadcast_to(mask, dst.shape), broadcast_to(source, dst.shape))


def _set_where(x: Any, mask: Any, values: Any) -> None:
    check_not_slice(x)
    with x.write_lock:
        new = values.astype(x.dtype)
        x.assign(elementwise(x, "where", _truth(mask), new, x))


def _as_array_of(x: Any, operand: Any) -> Any:
    """``operand`` as an array of the session of ``x``."""
    return operand if isinstance(operand, Arithmetic) else x.session._put(operand)


def _truth(x: Any) -> Any:
    if not isinstance(x, Handle):
        return np.asarray(x) != 0
    return x if x.dtype == np.bool_ else apply("not_equal", x, 0)


# --- by indices -----------------------------------------------------------------------------------


def take(
    x: A,
    indices: A | npt.ArrayLike,
    axis: int | None = None,
    out: A | None = None,
    mode: Mode = "raise",
) -> A:
    """Take elements, rows or columns at indices.

    Parameters
    ----------
    x : DistArray
        Array to take from.
    indices : DistArray or array_like of int
        Places along ``axis``; negative ones count from the end.
    axis : int, optional
        Axis of the indices. None (default) takes from the flattened array.
    out : DistArray, optional
        Array of the result's shape that receives the result.
    mode : {"raise", "wrap", "clip"}, default "raise"
        How to treat indices out of bounds.

    Returns
    -------
    DistArray
        Lazy array of the taken elements.

    Raises
    ------
    IndexError
        If an index is out of bounds and ``mode`` is "raise". Indices on the servers are checked
        when the result is evaluated.

    See Also
    --------
    numpy.take : The same function of arrays on the client.

    Examples
    --------
    >>> ps.array([1.0, 2.0, 3.0]).take([2, 0])
    DistArray([3., 1.], dtype=float64, shape=(2,))
    """
    array_among("take", (x,))
    return store(out, _take(x, indices, axis, mode), "take", "unsafe")  # type: ignore[no-any-return]


def _take(x: Any, indices: Any, axis: Any, mode: str) -> Any:
    if x.ndim == 0 or (axis is None and x.ndim > 1):
        x = reshape(x, (x.size,))
    number = 0 if axis is None else normalize_axis_index(axis, x.ndim)
    if not x.shape[number] and np.size(indices):
        raise IndexError("cannot do a non-empty take from an empty axes.")
    wanted = _by_mode(indices, x.shape[number], mode)
    return get_item(x, wanted if number == 0 else (slice(None), wanted))


def put(
    x: Arithmetic,
    ind: Arithmetic | npt.ArrayLike,
    v: Arithmetic | npt.ArrayLike,
    mode: Mode = "raise",
) -> None:
    """Set elements at indices into the flattened array.

    Parameters
    ----------
    x : DistArray
        Array that is rebound to the changed value.
    ind : DistArray or array_like of int
        Indices into the flattened array.
    v : DistArray or array_like
        Values in the order of ``ind``; a shorter sequence is repeated.
    mode : {"raise", "wrap", "clip"}, default "raise"
        How to treat indices out of bounds.

    Raises
    ------
    IndexError
        If an index is out of bounds and ``mode`` is "raise".

    See Also
    --------
    numpy.put : The same function of arrays on the client.

    Examples
    --------
    >>> x = ps.array([1.0, 2.0, 3.0])
    >>> x.put([0, 2], [10.0, 30.0])
    >>> x
    DistArray([10.,  2., 30.], dtype=float64, shape=(3,))
    """
    array_among("put", (x,))
    if x.ndim != 1:
        with x.write_lock:
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
        values = _cycle_values(values, row_index(x, len(wanted)), (len(wanted),))
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
    chosen, given = _truth(_as_array_of(arr, mask)), _as_array_of(arr, np.atleast_1d(vals))
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
        raise_if_any(chosen, ValueError, "Cannot insert from an empty array!")
        return
    before = np.cumsum(reshape(chosen, (arr.size,))) - 1
    _set_where(arr, chosen, _cycle_values(given, before, arr.shape))


def numpy_where(condition: Any, *choices: Any) -> Any:
    """As ``numpy.where``: without choices, ``nonzero``."""
    if not choices:
        return nonzero(condition)
    if len(choices) == 1:
        raise ValueError("either both or neither of x and y should be given")
    return where(condition, *choices)


_INT = np.dtype(np.int64)


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    """``numpy.take_along_axis``; lazy. Along axis 1 nothing moves, along axis 0 each column is a
    gather. ``IndexError`` for a place that is not there, from who evaluates it.
    """
    if not isinstance(arr, Arithmetic):
        arr = array_among("take_along_axis", (indices,)).session.namespace.asarray(arr)
    arr, places, over = _align(arr, indices, axis)
    if arr.ndim == 1:
        return get_item(arr, places)
    if over == 0:
        pairs = zip(_columns(arr, places.shape[1]), _columns(places), strict=True)
        return column_stack([get_item(column, at) for column, at in pairs])
    type = array_type(arr.space, arr.dtype, places.shape[1:])
    return make(arr, "row_take", (arr, places.astype(_INT)), type)


def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None) -> None:
    """``numpy.put_along_axis``: the handle stands for another array; lazy."""
    check_not_slice(array_among("put_along_axis", (arr,)))
    with arr.write_lock:
        whole, places, over = _align(arr, indices, axis)
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
    return make(arr, "row_put", (arr, places.astype(_INT), given), arr.type)


def _align(arr: Any, indices: Any, axis: int | None) -> tuple[Any, Any, int]:
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
    return broadcast_to(x.session._put(x) if x.node.on_client else x, (rows, x.shape[1]))


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


def choose(a: A, choices: Sequence[Any], out: A | None = None, mode: Mode = "raise") -> A:
    """Choose each element from one of several arrays.

    Parameters
    ----------
    a : DistArray of int
        Number of the choice for each element.
    choices : sequence of DistArray or number
        Values to choose from, broadcast to the shape of ``a``.
    out : DistArray, optional
        Array of the result's shape that receives the result.
    mode : {"raise", "wrap", "clip"}, default "raise"
        How to treat numbers without a choice.

    Returns
    -------
    DistArray
        Lazy array of the chosen elements.

    Raises
    ------
    ValueError
        If a number has no choice and ``mode`` is "raise".
    TypeError
        If ``a`` does not hold integers.

    See Also
    --------
    numpy.choose : The same function of arrays on the client.

    Notes
    -----
    One pass over memory. With ``mode="raise"`` the numbers are checked with an implicit evaluation.

    Examples
    --------
    >>> ps.array([0, 1, 0]).choose([ps.array([1.0, 2.0, 3.0]), 10.0])
    DistArray([ 1., 10.,  3.], dtype=float64, shape=(3,))
    """
    array_among("choose", (a, *choices, out))
    count = len(choices)
    if getattr(a, "dtype", np.dtype(int)).kind not in "iub":
        raise TypeError(f"choose: a must hold integers, got {a.dtype}")
    number = a.astype(np.int64) if hasattr(a, "dtype") else np.asarray(a)
    if mode == "raise":
        raise_if_any((number < 0) | (number >= count), ValueError, "invalid entry in choice array")
    elif mode == "wrap":
        number = number % count
    elif mode != "clip":
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    dtype = np.result_type(*(getattr(choice, "dtype", choice) for choice in choices))
    result = choices[-1]
    for position in range(count - 2, -1, -1):
        result = where(number <= position, choices[position], result)
    if count == 1:
        result = where(number == 0, result, result)
    return store(out, result.astype(dtype), "choose", "unsafe")  # type: ignore[no-any-return]


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """Of each element the choice of the first condition that is true there: ``numpy.select``."""
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if len(condlist) == 0:
        raise ValueError("select with an empty condition list is not possible")
    array_among("select", (*condlist, *choicelist, default))
    for position, condition in enumerate(condlist):
        if getattr(condition, "dtype", None) != np.bool_:
            raise TypeError(f"invalid entry {position} in condlist: should be boolean ndarray")
    kinds = [getattr(choice, "dtype", choice) for choice in (*choicelist, default)]
    dtype = np.result_type(*kinds)
    result = default
    for condition, choice in zip(condlist[::-1], choicelist[::-1], strict=True):
        is_ours = any(isinstance(one, Arithmetic) for one in (condition, choice, result))
        result = (where if is_ours else np.where)(condition, choice, result)
    return result.astype(dtype)


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """A function of each piece of ``x``, or a number; the last one elsewhere: ``numpy.piecewise``.

    Functions get what their condition selects; elementwise ones cost no message.
    """
    x = array_among("piecewise", (x,))
    if getattr(condlist, "ndim", 0) > x.ndim:
        condlist = [condlist[k] for k in range(len(condlist))]
    elif np.isscalar(condlist) or isinstance(condlist, Handle):
        condlist = [condlist]
    conditions = [x.session.namespace.asarray(condition).astype(np.bool_) for condition in condlist]
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        count = len(conditions)
        raise ValueError(
            f"with {count} condition(s), either {count} or {count + 1} functions are expected"
        )
    if len(funclist) > len(conditions):
        some = conditions[0]
        for condition in conditions[1:]:
            some = some | condition
        conditions.append(~some)
    result = zeros_like(x)
    for condition, function in zip(conditions, funclist, strict=True):
        value = function(get_item(x, condition), *args, **kw) if callable(function) else function
        set_item(result, condition, value)
    return result
