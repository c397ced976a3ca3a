"""Differences, slopes and sums of neighbouring elements, and convolutions. Lazy.

Along axis 0 they are views of one array: one pass over memory, and the elements at the borders of
servers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from distvec.array.core.handle import host_array
from distvec.array.core.operators import Arithmetic
from distvec.array.core.shapes import broadcast_to, reshape
from distvec.array.elementwise import apply, array_among
from distvec.array.indexing.getitem import get_item
from distvec.array.manipulation.join import (
    as_joinable,
    choose_rows,
    concatenate,
    row_index,
    shift_rows,
)
from distvec.array.manipulation.rearrange import part
from distvec.array.reductions import sum
from distvec.array.transposed import supports_column_split


@supports_column_split()
def diff(
    a: Any, n: int = 1, axis: int = -1, prepend: Any = np._NoValue, append: Any = np._NoValue
) -> Any:
    """Return differences of neighbours, ``n`` times: ``numpy.diff``. One pass, one request.

    ``prepend`` and ``append``: values before and after, a number or an array.
    """
    array_among("diff", (a,))
    if n == 0:
        return a
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n!r}")
    if a.ndim == 0:
        raise ValueError("diff requires input that is at least one dimensional")
    along = normalize_axis_index(axis, a.ndim)
    ends = [_end(a, along, one) for one in (prepend, append) if one is not np._NoValue]
    if ends:
        first = ends[:1] if prepend is not np._NoValue else []
        a = concatenate([*first, a, *ends[len(first) :]], axis=along)
    op = "not_equal" if a.dtype == np.bool_ else "subtract"
    for _ in range(n):
        a = apply(op, part(a, along, 1, None), part(a, along, None, -1))
    return a


def _end(a: Any, axis: int, values: Any) -> Any:
    """What stands at one end: a number as one for each row or column."""
    given = values if isinstance(values, Arithmetic) else np.asarray(values)
    if given.ndim:
        return given
    shape = (*a.shape[:axis], 1, *a.shape[axis + 1 :])
    if isinstance(given, np.ndarray) and not axis:
        return np.broadcast_to(given, shape)
    if isinstance(given, np.ndarray) and not a.node.on_client:
        return a.session.namespace.full(shape, given[()], dtype=given.dtype)
    if isinstance(given, np.ndarray):
        return np.broadcast_to(given, shape)
    return broadcast_to(given, shape)


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """Return differences of neighbours of all elements, with given ends: ``numpy.ediff1d``."""
    array_among("ediff1d", (ary,))
    flat = reshape(ary, (ary.size,))
    inner = apply("subtract", part(flat, 0, 1, None), part(flat, 0, None, -1))
    ends = [_cast_end(flat, "to_begin", to_begin), _cast_end(flat, "to_end", to_end)]
    if not any(end.size for end in ends):
        return inner
    return concatenate([ends[0], inner, ends[1]])


def _cast_end(flat: Any, name: str, values: Any) -> Any:
    """What is given for an end, in the dtype of the differences; ``TypeError`` if it is not."""
    given: Any = values
    if not isinstance(values, Arithmetic):
        given = np.asarray([] if values is None else values)
    if given.size and not np.can_cast(given.dtype, flat.dtype, "same_kind"):
        raise TypeError(
            f"dtype of `{name}` must be compatible with input `ary` under the `same_kind` rule."
        )
    return given.astype(flat.dtype).reshape(-1)


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """The area under the values ``y`` at places ``x``, or ``dx`` apart: ``numpy.trapezoid``."""
    given = y if isinstance(y, Arithmetic) else x.session._put(y)
    along = normalize_axis_index(axis, given.ndim)
    width = dx
    if x is not None:
        places = _align_coordinates(given, along, x)
        width = diff(places, axis=along if places.ndim == given.ndim else -1)
        if places.ndim < given.ndim and not along:
            width = reshape(width, (len(width), 1))
    both = apply("add", part(given, along, 1, None), part(given, along, None, -1))
    return sum(apply("divide", apply("multiply", width, both), 2.0), axis=along)


def _align_coordinates(f: Any, axis: int, places: Any) -> Any:
    """Coordinates as an array: those of the axis that is split over servers are put there."""
    if isinstance(places, Arithmetic) or (f.node.on_client and not isinstance(places, list)):
        return places
    given = np.asarray(places)
    if (axis and given.ndim < 2) or f.node.on_client:
        return host_array(f, given)
    return f.session._put(given)


def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 6.283185307179586) -> Any:
    """Remove jumps of half a ``period`` and more from angles: ``numpy.unwrap``.

    Running sums along ``axis``; along axis 0 by ``numpy.cumsum``.
    """
    array_among("unwrap", (p,))
    along = normalize_axis_index(axis, p.ndim)
    steps = diff(p, axis=along)
    least = period / 2 if discont is None else discont
    dtype = np.result_type(steps.dtype, period)
    if dtype.kind in "iu":
        high, left = divmod(period, 2)
        is_ambiguous = left == 0
    else:
        high, is_ambiguous = period / 2, True
    wrapped = apply("add", apply("remainder", apply("subtract", steps, -high), period), -high)
    if is_ambiguous:
        at_border = apply("logical_and", apply("equal", wrapped, -high), apply("greater", steps, 0))
        wrapped = apply("where", at_border, high, wrapped)
    correction = apply("subtract", wrapped, steps)
    correction = apply("where", apply("less", apply("abs", steps), least), 0, correction)
    later = apply("add", part(p, along, 1, None), np.cumsum(correction, axis=along))
    return concatenate([part(p, along, None, 1), later], axis=along).astype(dtype)


# --- slopes ---------------------------------------------------------------------------------------


@supports_column_split(unnamed=(0, 1))
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Return slopes along each axis, of second order inside: ``numpy.gradient``. One pass per axis.

    ``varargs``: one distance, one for each axis, or the coordinates. Coordinates on the servers are
    not tested for equal distances; they use the formula for unequal ones.
    """
    array_among("gradient", (f, *varargs))
    if not isinstance(f, Arithmetic):
        f = array_among("gradient", varargs).session.array(f)
    axes = range(f.ndim) if axis is None else normalize_axis_tuple(axis, f.ndim)
    if edge_order > 2:
        raise ValueError("'edge_order' greater than 2 not supported")
    if len(varargs) == 0:
        spacings: list[Any] = [1.0] * len(axes)
    elif len(varargs) == 1 and np.ndim(varargs[0]) == 0:
        spacings = [varargs[0]] * len(axes)
    elif len(varargs) == len(axes):
        spacings = list(varargs)
    else:
        raise TypeError("invalid number of arguments")
    if f.dtype.kind in "iu":
        f = f.astype(np.float64)
    found = []
    for along, given in zip(axes, spacings, strict=True):
        if f.shape[along] < edge_order + 1:
            raise ValueError(
                "Shape of array too small to calculate a numerical gradient, at least "
                "(edge_order + 1) elements are required."
            )
        found.append(_slopes(f, along, _distances(f, along, given), edge_order).astype(f.dtype))
    return found[0] if len(found) == 1 else tuple(found)


def _distances(f: Any, axis: int, given: Any) -> Any:
    """Between neighbours: one, or as an array along ``axis``."""
    if np.ndim(given) == 0:
        return given
    if np.ndim(given) != 1:
        raise ValueError("distances must be either scalars or 1d")
    if len(given) != f.shape[axis]:
        raise ValueError("when 1d, distances must match the length of the corresponding dimension")
    if not isinstance(given, Arithmetic):
        places = np.asarray(given)
        apart = np.diff(places.astype(np.float64) if places.dtype.kind in "iu" else places)
        if (apart == apart[0]).all():
            return apart[0]
        given = _align_coordinates(f, axis, places)
    if given.dtype.kind in "iu":
        given = given.astype(np.float64)
    apart = np.diff(given)
    return np.reshape(apart, (len(apart), 1)) if f.ndim == 2 and not axis else apart


def _slopes(f: Any, axis: int, dx: Any, edge_order: int) -> Any:
    """Source: ``numpy.gradient``, whose formulas these are."""

    def of(start: int | None, stop: int | None) -> Any:
        return part(f, axis, start, stop)

    if np.ndim(dx) == 0:
        inner = (of(2, None) - of(None, -2)) / (2.0 * dx)
    else:
        before, after = _apart(dx, axis, None, -1), _apart(dx, axis, 1, None)
        a, b, c = _inner_weights(before, after)
        inner = a * of(None, -2) + b * of(1, -1) + c * of(2, None)
    first, last = (_edge(f, axis, dx, edge_order, at_end) for at_end in (False, True))
    return concatenate([first, inner, last], axis=axis)


def _inner_weights(before: Any, after: Any) -> tuple[Any, Any, Any]:
    return (
        -after / (before * (before + after)),
        (after - before) / (before * after),
        before / (after * (before + after)),
    )


def _apart(dx: Any, axis: int, start: int | None, stop: int | None) -> Any:
    """Some of the distances."""
    return part(dx, 0 if dx.ndim == 1 else axis, start, stop)


def _edge(f: Any, axis: int, dx: Any, order: int, at_end: bool) -> Any:
    """The slope at one end, of first or second order."""
    length = f.shape[axis]
    places = range(length - 1 - order, length) if at_end else range(order + 1)
    values = [part(f, axis, place, place + 1) for place in places]
    is_even = np.ndim(dx) == 0
    if order == 1:
        gap = dx if is_even else _gap(dx, axis, places[0])
        return (values[1] - values[0]) / gap
    if is_even:
        a, b, c = (0.5 / dx, -2.0 / dx, 1.5 / dx) if at_end else (-1.5 / dx, 2.0 / dx, -0.5 / dx)
    else:
        one, two = (_gap(dx, axis, place) for place in places[:2])
        a, b, c = _edge_weights(one, two, at_end)
    return a * values[0] + b * values[1] + c * values[2]


def _gap(dx: Any, axis: int, place: int) -> Any:
    return _apart(dx, axis, place, place + 1)


def _edge_weights(one: Any, two: Any, at_end: bool) -> tuple[Any, Any, Any]:
    if at_end:
        return (
            two / (one * (one + two)),
            -(two + one) / (one * two),
            (2.0 * two + one) / (two * (one + two)),
        )
    return (
        -(2.0 * one + two) / (one * (one + two)),
        (one + two) / (one * two),
        -one / (two * (one + two)),
    )


MOST_TERMS = 1 << 10
"""Of so many elements is the longest kernel: each reads the vector at another place."""
_MOST_CONDITIONS = 8
"""For so many terms zeros beyond the ends are conditions, for more the vector is stored so."""

_MODES = {0: "valid", 1: "same", 2: "full"}


def convolve(a: Any, v: Any, mode: Any = "full") -> Any:
    """The products of a vector with a kernel that is turned round: ``numpy.convolve``. Lazy.

    One sweep, with a term for each element of the kernel, of ``MOST_TERMS`` at most. A kernel on
    the servers comes to the client first.
    """
    long, short, _ = _by_length(*_vectors("convolve", a, v))
    return _convolve(long, short, _mode(mode))


def correlate(a: Any, v: Any, mode: Any = "valid") -> Any:
    """The products of a vector with a kernel as it is: ``numpy.correlate``. Lazy, as above."""
    if np.ndim(a) == 0 or np.ndim(v) == 0:
        raise ValueError("correlate: object of too small depth for desired array; take vectors")
    long, short, is_exchanged = _by_length(*_vectors("correlate", a, v))
    found = _convolve(long, short[::-1], _mode(mode))
    return part(found, 0, None, None, -1) if is_exchanged else found


def _vectors(name: str, a: Any, v: Any) -> tuple[Any, Any]:
    first, second = (one if one.ndim else one.reshape(1) for one in as_joinable(name, (a, v)))
    for one, of in ((first, "a"), (second, "v")):
        if one.ndim != 1:
            raise ValueError(f"{name}: object too deep for desired array; take vectors")
        if not len(one):
            raise ValueError(f"{of} cannot be empty")
    return first, second


def _mode(mode: Any) -> str:
    name = _MODES.get(mode, mode) if not isinstance(mode, str) else mode
    if name not in _MODES.values():
        raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")
    return str(name)


def _by_length(a: Any, v: Any) -> tuple[Any, Any, bool]:
    """The longer one, the shorter one, and whether that was the first."""
    return (v, a, True) if len(v) > len(a) else (a, v, False)


def _convolve(x: Any, kernel: Any, mode: str) -> Any:
    """``sum(kernel[j] * x[i - j])``: of all places where something is, of as many as ``x`` has
    elements, or of those where all of the kernel is."""
    count, length = len(kernel), len(x)
    if count > MOST_TERMS:
        raise NotImplementedError(
            f"the kernel has {count} elements, at most {MOST_TERMS} are supported; use parts of "
            "it, and add their shifted results"
        )
    like = x if isinstance(x, Arithmetic) else kernel
    dtype = np.result_type(x.dtype, kernel.dtype)
    values = (x if isinstance(x, Arithmetic) else like.session._put(x)).astype(dtype)
    weights = _weights(kernel, dtype)
    start, size = (0, length + count - 1) if mode == "full" else ((count - 1) // 2, length)
    if mode == "valid" or count == 1:
        terms = _inside(values, count, 0, length - count + 1)
    elif _has_zeros_beyond(values, kernel):
        terms = [shift_rows(values, size, place - start) for place in range(count)]
    elif count <= _MOST_CONDITIONS and not values.node.on_client:
        terms = [_with_zeros(values, size, place - start) for place in range(count)]
    else:
        zeros = np.zeros(count - 1, dtype)
        terms = _inside(concatenate([zeros, values, zeros]), count, start, size)
    total = None
    for weight, term in zip(weights, terms, strict=True):
        product = apply("multiply", weight, term)
        total = product if total is None else apply("add", total, product)
    return total


def _inside(x: Any, count: int, start: int, size: int) -> list[Any]:
    """``x`` as each element of the kernel meets it, where all of them meet some."""
    ends = range(start + count - 1, start - 1, -1)
    return [part(x, 0, first, first + size) for first in ends]


def _has_zeros_beyond(x: Any, kernel: Any) -> bool:
    """Whether a stored vector, read beyond its ends, makes terms of zero by itself."""
    known = isinstance(kernel, np.ndarray) and bool(np.isfinite(kernel).all())
    return known and bool(x.node.known) and not x.node.on_client


def _with_zeros(x: Any, length: int, by: int) -> Any:
    """Of ``length`` elements, the ``by + i``-th is the ``i``-th of ``x``, or zero."""
    index = row_index(x, length)
    moved = shift_rows(x, length, by)
    if by + len(x) < length:
        moved = choose_rows(x, index < by + len(x), moved, x.dtype.type(0))
    if by > 0:
        moved = choose_rows(x, index >= by, moved, x.dtype.type(0))
    return moved


def _weights(kernel: Any, dtype: np.dtype[Any]) -> list[Any]:
    """The elements of a kernel as numbers."""
    if not isinstance(kernel, Arithmetic):
        found: npt.NDArray[Any] = kernel.astype(dtype)
        return list(found)
    wide = kernel.astype(dtype)
    return [get_item(wide, k) for k in range(len(wide))]
