"""NumPy's functions that make arrays, with ``like=x``: they make them in the session of ``x``.

    np.arange(10, like=x)

What is counted by index, or all the same, is lazy; what is read from elsewhere is put at once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from distvec.array.creation import broadcast_to, filled, reshape, shape_of
from distvec.array.handle import Home, check_order
from distvec.array.shaping.placing import index_of


@cache
def numpy_functions() -> dict[Any, Callable[..., Any]]:
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
        **{function: partial(_put, function) for function in put},
    }


def _full(like: Any, shape: Any, fill_value: Any, dtype: Any, order: Any) -> Any:
    check_order(order)
    return like.like(filled(like.session.graph, shape, fill_value, dtype))


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
    lower = reshape(index_of(like, rows), (rows, 1)) >= np.arange(-k, columns - k)
    return lower.astype(dtype)


def _from_function(like: Any, function: Any, shape: Any, *, dtype: Any = float, **kw: Any) -> Any:
    """``function`` of the indices along each axis, arrays of ``shape``."""
    extents = shape_of(shape)
    first = index_of(like, extents[0]).astype(dtype)
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
    wanted = "F" if getattr(x, "is_split_by_columns", False) else "C"
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


def _put(function: Callable[..., Any], like: Any, *args: Any, **kwargs: Any) -> Any:
    """What NumPy reads, put on the servers."""
    return _home(like).array(function(*args, **kwargs))


def _home(like: Any) -> Home:
    home: Home = like.session
    return home
