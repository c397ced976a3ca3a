"""Numbers between rank-0 arrays, and NumPy's functions that make arrays, ``like=x``.

    np.arange(10, like=x)

What is counted by index, or all the same, is lazy; what is read from elsewhere is put at once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from distvec.array.core.handle import SessionBase, check_order, is_split_by_columns
from distvec.array.core.operators import elementwise
from distvec.array.core.shapes import broadcast_to, full, iota, length_of, reshape, shape_of
from distvec.array.elementwise import array_among
from distvec.graph.build import check_dtype

_FLOAT = np.dtype(np.float64)


def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False,
    dtype: Any = None, axis: int = 0, *, device: Any = None,
) -> Any:  # fmt: skip
    """``num`` numbers from ``start`` to ``stop``: ``numpy.linspace``; with ``retstep`` the step."""
    values, step, kind = _evenly_spaced("linspace", start, stop, num, endpoint, dtype)
    found = (elementwise(values, "floor", values) if kind.kind in "iu" else values).astype(kind)
    return (found, step) if retstep else found


def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0,
    dtype: Any = None, axis: int = 0,
) -> Any:  # fmt: skip
    """Powers of ``base`` with evenly spaced exponents: ``numpy.logspace``."""
    exponents, _, kind = _evenly_spaced("logspace", start, stop, num, endpoint, dtype)
    return elementwise(exponents, "pow", base, exponents).astype(kind)


def geomspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> Any:
    """Numbers each a multiple of the one before: ``numpy.geomspace``; NaN where an end is 0."""
    like = array_among("geomspace", (start, stop))
    kind = _kind(start, stop, num) if dtype is None else check_dtype(dtype)
    sign = np.sign(1.0 * start)
    first, last = start / sign, stop / sign
    length = length_of(num, "num")
    powers, index = (
        logspace(np.log10(first), np.log10(last), num, endpoint),
        _index(like, length),
    )
    result = elementwise(like, "where", index == 0, first, powers)
    if endpoint and length > 1:
        result = elementwise(like, "where", index == length - 1, last, result)
    return (result * sign).astype(kind)


def _index(like: Any, length: int) -> Any:
    return like.like(iota(like.session.graph, (length,)))


def _evenly_spaced(
    name: str, start: Any, stop: Any, num: int, endpoint: bool, dtype: Any
) -> tuple[Any, Any, np.dtype[Any]]:
    """The numbers as floats, the step between them, and the dtype of the result."""
    like = array_among(name, (start, stop))
    if any(np.ndim(end) for end in (start, stop)):
        raise NotImplementedError(
            f"{name}: start and stop must be numbers; for arrays write "
            f"start + (stop - start) * numpy.{name}(0, 1, num).reshape(-1, 1)"
        )
    length = length_of(num, "num")
    natural = _kind(start, stop, num)
    gaps = length - 1 if endpoint else length
    low, high = (like.session.namespace.asarray(end).astype(natural) for end in (start, stop))
    index, width = _index(like, length).astype(natural), high - low
    step = width / max(gaps, 1) if gaps > 0 else elementwise(like, "multiply", width, np.nan)
    values = elementwise(like, "where", step == 0, index / max(gaps, 1) * width, index * step)
    values = (values if gaps > 0 else index * width) + low
    if endpoint and length > 1:
        values = elementwise(like, "where", index == float(length - 1), high, values)
    return values, step, natural if dtype is None else check_dtype(dtype)


def _kind(start: Any, stop: Any, num: int) -> np.dtype[Any]:
    kinds = (getattr(end, "dtype", end) for end in (start, stop))
    return np.result_type(*kinds, float(num))


@cache
def making_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function, or what it calls with ``like=``, ours: takes that array first."""
    put = (np.fromiter, np.frombuffer, np.fromstring, np.fromfile, np.loadtxt, np.genfromtxt)
    return {
        np.zeros: lambda like, shape, dtype=float, order="C", *, device=None: _full(
            like, shape, 0, dtype, order
        ),
        np.ones: lambda like, shape, dtype=None, order="C", *, device=None: _full(
            like, shape, 1, float if dtype is None else dtype, order
        ),
        np.empty: lambda like, shape, dtype=float, order="C", *, device=None: _full(
            like, shape, 0, dtype, order
        ),
        np.full: lambda like, shape, fill_value, dtype=None, order="C", *, device=None: _full(
            like, shape, fill_value, dtype, order
        ),
        np.arange: _arange,
        np.eye: _eye,
        np.identity: lambda like, n, dtype=None: _eye(like, n, dtype=dtype),
        np.tri: _tri,
        np.fromfunction: _from_function,
        np.array: _array,
        np.asarray: _as_array,
        np.asanyarray: _as_array,
        np.ascontiguousarray: lambda like, a, dtype=None: _in_order(like, a, dtype, "C"),
        np.asfortranarray: lambda like, a, dtype=None: _in_order(like, a, dtype, "F"),
        np.require: _require,
        **{function: partial(_put_on_servers, function) for function in put},
    }


def _full(like: Any, shape: Any, fill_value: Any, dtype: Any, order: Any) -> Any:
    check_order(order)
    return full(like, shape, fill_value, dtype)


def _arange(
    like: Any, start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: Any = None
) -> Any:
    return _home(like).namespace.arange(start, stop, 1 if step is None else step, dtype=dtype)


def _eye(
    like: Any, N: int, M: int | None = None, k: int = 0, dtype: Any = float, order: str = "C",
    *, device: Any = None,
) -> Any:  # fmt: skip
    return _home(like).namespace.eye(N, M, k=k, dtype=float if dtype is None else dtype)


def _tri(like: Any, N: int, M: int | None = None, k: int = 0, dtype: Any = float) -> Any:
    rows, columns = shape_of((N, N if M is None else M))
    lower = reshape(_index(like, rows), (rows, 1)) >= np.arange(-k, columns - k)
    return lower.astype(dtype)


def _from_function(like: Any, function: Any, shape: Any, *, dtype: Any = float, **kw: Any) -> Any:
    """``function`` of the indices along each axis, arrays of ``shape``."""
    extents = shape_of(shape)
    first = _index(like, extents[0]).astype(dtype)
    if len(extents) < 2:
        return function(first, **kw)
    columns = broadcast_to(reshape(first, (extents[0], 1)), extents)
    row = np.arange(extents[1], dtype=dtype)
    return function(columns, np.zeros_like(columns) + row, **kw)


def _array(
    like: Any, object: Any, dtype: Any = None, *, copy: Any = True, order: str = "K",
    subok: bool = False, ndmin: int = 0,
) -> Any:  # fmt: skip
    return _at_least(_as_array(like, object, dtype, order, copy=copy), operator.index(ndmin))


def _at_least(x: Any, rank: int) -> Any:
    return x if x.ndim >= rank else reshape(x, (1,) * (rank - x.ndim) + x.shape)


def _as_array(
    like: Any, a: Any, dtype: Any = None, order: Any = None, *, device: Any = None,
    copy: Any = None,
) -> Any:  # fmt: skip
    if copy is not True and not _is_in_order(a, order):
        if copy is False:
            raise ValueError(f"asarray: order={order!r} needs a copy; leave out copy=False")
        copy = True
    return _home(like).namespace.asarray(a, dtype=dtype, copy=copy)


def _is_in_order(x: Any, order: Any) -> bool:
    """Whether NumPy would need no copy of ``x`` for ``order``.

    The elements stay as they are split: by rows, which is C's order, or by columns, Fortran's.
    """
    check_order(order)
    if order is None or str(order).upper() in "AK" or np.ndim(x) < 2 or 1 in np.shape(x):
        return True
    wanted = "F" if is_split_by_columns(x) else "C"
    return not hasattr(x, "session") or str(order).upper() == wanted


def _in_order(like: Any, a: Any, dtype: Any, order: str) -> Any:
    """An array of rank 1 or 2, as NumPy's functions that are named after an order make it."""
    return _at_least(_as_array(like, a, dtype, order), 1)


def _require(like: Any, a: Any, dtype: Any = None, requirements: Any = None) -> Any:
    """``numpy.require``: arrays of the servers are writeable, aligned, and own their elements."""
    wanted = [requirements] if isinstance(requirements, str) else requirements or []
    orders = {str(one).upper()[0] for one in wanted} & {"C", "F"}
    if len(orders) > 1:
        raise ValueError('Cannot specify both "C" and "F" order')
    return _as_array(like, a, dtype, next(iter(orders), None))


def _put_on_servers(function: Callable[..., Any], like: Any, *args: Any, **kwargs: Any) -> Any:
    """What NumPy reads, put on the servers."""
    return _home(like).array(function(*args, **kwargs))


def _home(like: Any) -> SessionBase:
    home: SessionBase = like.session
    return home
