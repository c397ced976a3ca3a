"""NumPy's functions that give elements other places, of tables that are split by columns.

They are those of the table, of which such a one is the transpose, with axes exchanged.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distvec.array.exchanged import exchanged, flipped, redistributed

_ALONG = (np.repeat, np.roll, np.diff, np.delete, np.insert, np.append, np.array_split, np.split)
"""What takes an axis, and otherwise all elements in a row."""


def _along(func: Callable[..., Any]) -> Callable[..., Any]:
    """``func`` along the other axis of the table."""
    signature = inspect.signature(func)
    others = {"values", "prepend", "append"} & set(signature.parameters)

    def along(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        names = given.arguments
        first = next(iter(names))
        if names["axis"] is None or not hasattr(names[first], "table"):
            return func(*map(_by_rows, given.args), **given.kwargs)
        names["axis"] = exchanged(names["axis"])
        names[first] = names[first].table
        # What is inserted at one place is turned round by NumPy itself, along the other axis.
        for other in others if np.ndim(names.get("obj", [])) else ():
            if np.ndim(names[other]):
                names[other] = flipped(names[other])
        return _turned(func(*given.args, **given.kwargs))

    return along


def _turned(result: Any) -> Any:
    """The transposes of tables."""
    return type(result)(map(_turned, result)) if isinstance(result, tuple | list) else result.T


def _by_rows(operand: Any) -> Any:
    """A table that is split by columns as one that is split by rows: all its elements move."""
    return redistributed(operand.table) if hasattr(operand, "table") else operand


def _concatenate(arrays: Any, axis: Any = 0, **kwargs: Any) -> Any:
    tables = [flipped(one) for one in arrays]
    if axis is None or any(table.ndim != 2 for table in tables):
        return np.concatenate([_by_rows(one) for one in arrays], axis=axis, **kwargs)
    return np.concatenate(tables, axis=exchanged(axis), **kwargs).T


def _vstack(tup: Any, **kwargs: Any) -> Any:
    return np.concatenate([flipped(one) for one in tup], axis=1, **kwargs).T


def _gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    axes: Any = exchanged((0, 1) if axis is None else axis)
    order: Any = edge_order
    return _turned(np.gradient(f.table, *varargs, axis=axes, edge_order=order))


def _tile(A: Any, reps: Any) -> Any:
    times = tuple(np.atleast_1d(reps).tolist())
    if len(times) > 2:
        raise NotImplementedError(f"tile: {times} makes rank {len(times)}, at most 2; give two")
    return np.tile(A.table, ((1,) * (2 - len(times)) + times)[::-1]).T


def _pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    if isinstance(pad_width, dict):
        raise TypeError("pad: of a table split by columns give the widths as pairs, not a dict")
    result = array.table
    widths = _pairs(pad_width).tolist()
    turned = {name: _pairs(one) if np.ndim(one) else one for name, one in kwargs.items()}
    for axis in (1, 0):  # as NumPy, our first axis before the second: of corners the last counts
        width = [tuple(pair) if k == axis else (0, 0) for k, pair in enumerate(widths)]
        result = np.pad(result, width, mode, **turned)
    return result.T


def _pairs(given: Any) -> Any:
    return np.broadcast_to(np.asarray(given), (2, 2))[::-1]


def _reshape(a: Any, shape: Any, order: str = "C", **_: Any) -> Any:
    if str(order).upper() in ("A", "K"):  # as the elements are: column by column
        order = "F"
    turned = {"C": "F", "F": "C"}.get(str(order).upper(), "F")
    return np.reshape(np.ravel(a.table, order=turned), shape, order=order)  # type: ignore[call-overload]


def _swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    differ = normalize_axis_index(axis1, 2) != normalize_axis_index(axis2, 2)
    return a.table.copy() if differ else a.copy()


def _rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    quarters = (k if tuple(axes) in ((0, 1), (-2, -1)) else -k) % 4
    if quarters % 2 == 0:
        return np.flip(m) if quarters else m.copy()
    return np.flip(m.table, 0 if quarters == 1 else 1)


def _at_least_2d(*arys: Any) -> Any:
    return arys[0] if len(arys) == 1 else tuple(np.atleast_2d(one) for one in arys)


def _trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
) -> Any:
    return np.sum(_diagonal(a, offset, axis1, axis2), dtype=dtype, out=out)


def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return np.diagonal(a.table, offset, axis2, axis1)


MOVED: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        **{func: _along(func) for func in _ALONG},
        np.concatenate: _concatenate,
        np.vstack: _vstack,
        np.hstack: lambda tup, **kwargs: _concatenate(tup, axis=1, **kwargs),
        np.flip: lambda m, axis=None: np.flip(m.table, exchanged(axis)).T,
        np.fliplr: lambda m: np.flip(m.table, 0).T,
        np.flipud: lambda m: np.flip(m.table, 1).T,
        np.gradient: _gradient,
        np.tile: _tile,
        np.pad: _pad,
        np.tril: lambda m, k=0: np.triu(m.table, -k).T,
        np.triu: lambda m, k=0: np.tril(m.table, -k).T,
        np.hsplit: lambda ary, parts: _turned(np.split(ary.table, parts, 0)),
        np.vsplit: lambda ary, parts: _turned(np.split(ary.table, parts, 1)),
        np.reshape: _reshape,
        np.ravel: lambda a, order="C": _reshape(a, -1, order),
        np.swapaxes: _swapaxes,
        np.moveaxis: _swapaxes,
        np.rot90: _rot90,
        np.diagonal: _diagonal,
        np.diag: lambda v, k=0: _diagonal(v, k),
        np.trace: _trace,
        np.atleast_2d: _at_least_2d,
        np.unstack: lambda x, /, *, axis=0: np.unstack(x.table, axis=exchanged(axis)),
    }
)
"""By NumPy's function ours."""
