"""NumPy's functions and ufuncs of tables that are split by columns: a table of rules.

By a rule a function is done to the table that servers have, the transpose, with the axes exchanged;
what is in no rule is done as to a table that is split by rows.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array import products
from distvec.array.core import shapes
from distvec.array.core.builder import express, host_array, make
from distvec.array.core.handle import (
    check_not_slice,
    check_session,
    is_broadcastable,
    is_split_by_columns,
)
from distvec.array.core.keywords import leading, store
from distvec.array.core.operators import Arithmetic
from distvec.array.dispatch import functions
from distvec.array.dispatch.ufuncs import ufunc
from distvec.array.indexing.pull_push import addable, as_indices
from distvec.array.reductions import kept
from distvec.array.transposed import beside_table, exchanged_axes, transpose
from distvec.graph import build
from ps_backend.program.row_ops import JOINS
from ps_backend.program.types import array_type


def function_of_columns(like: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """What ``__array_function__`` returns where an array, ``like``, is split by columns."""
    rule = _RULES.get(func)
    args = args or leading(func, args, kwargs)
    if rule is not None and any(map(has_transposed, args)):
        result = rule(*args, **kwargs)
        if result is not NotImplemented:
            return result
    return functions.function(like, func, args, kwargs)


def ufunc_of_columns(function: Any, method: str, inputs: Any, kwargs: dict[str, Any]) -> Any:
    """What ``__array_ufunc__`` returns where an array is split by columns."""
    if method == "__call__":
        return _called(function, *inputs, **kwargs)
    if method == "at":
        return _at(function, *inputs)
    if method not in ("reduce", "accumulate") or not is_split_by_columns(inputs[0]):
        return ufunc(function, method, inputs, kwargs)
    arguments = {"axis": kwargs.pop("axis", 0), **kwargs}
    if method == "accumulate":
        _check_out(function, kwargs.get("out"))
    out = _exchange(arguments)
    return _back(getattr(function, method)(inputs[0].table, **arguments), out)


def has_transposed(argument: Any) -> bool:
    """Whether an argument is such a table, or a sequence with one in it."""
    if isinstance(argument, list | tuple):
        return any(map(has_transposed, argument))
    return is_split_by_columns(argument)


def _back(result: Any, out: Any = None) -> Any:
    """``out``, if something was stored in it; else the transposes of the tables in ``result``."""
    if out is not None:
        return out
    if isinstance(result, tuple | list):
        return type(result)(map(_back, result))
    return result if isinstance(result, bool) else transpose(result)


def _check_out(function: Any, out: Any) -> None:
    outs = out if isinstance(out, tuple) else () if out is None else (out,)
    if not all(map(is_split_by_columns, outs)):
        raise TypeError(f"numpy.{function.__name__}: out= must be split by columns as well")


def _exchange(arguments: dict[str, Any]) -> Any:
    """Exchange the axes of NumPy's ``arguments``, in place. Returns ``out=``, if it was given."""
    arguments["axis"] = exchanged_axes(arguments["axis"])
    for name in _OPERANDS & arguments.keys():
        is_for_each = name == "weights" and np.ndim(arguments[name]) < 2
        # What is inserted at one place is turned round by NumPy itself, along the other axis.
        is_turned = name == "values" and np.ndim(arguments.get("obj", [])) == 0
        if not (is_for_each or is_turned):
            arguments[name] = beside_table(arguments[name])
    out = arguments.get("out")
    (target,) = out if isinstance(out, tuple) else (out,)
    if is_split_by_columns(target):
        target = target.table
    elif isinstance(target, Arithmetic) and target.ndim == 2:
        target = target.session._transposed(target)  # what is assigned to it goes to the table
    if out is not None:
        arguments["out"] = target
    return out[0] if isinstance(out, tuple) else out


_OPERANDS = {"where", "weights", "values", "prepend", "append"}
"""Parameters that are of the shape of the array, or are broadcast to it."""

_signature = functools.cache(inspect.signature)


def _called(ufunc: Any, *inputs: Any, **kwargs: Any) -> Any:
    """A ufunc, elementwise or a product."""
    if ufunc in _PRODUCTS:
        (target,) = kwargs.pop("out", (None,))
        result = _PRODUCTS[ufunc](*inputs, **kwargs)
        return store(target, result, ufunc.__name__, "same_kind")
    outs = kwargs.pop("out", ())
    _check_out(ufunc, outs)
    if outs:
        kwargs["out"] = tuple(out.table for out in outs)
    if "where" in kwargs:
        kwargs["where"] = beside_table(kwargs["where"])
    result = ufunc(*map(beside_table, inputs), **kwargs)
    return _back(result, outs[0] if len(outs) == 1 else outs or None)


def _elementwise(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A function of elements that are in the same place."""
    return _back(func(*map(beside_table, args), **kwargs))


def _along(func: Callable[..., Any], unnamed: Any, *args: Any, **kwargs: Any) -> Any:
    """A function along an axis: along the other one of the table.

    ``unnamed``: the axes where none is named, or ``NotImplemented`` if the function takes all
    elements in a row then, as it does from a table that is split by rows.
    """
    signature = _signature(func)
    bound = signature.bind(*args, **kwargs)
    arguments = bound.arguments
    first = next(iter(arguments))
    axis = arguments.get("axis", signature.parameters["axis"].default)
    axis = unnamed if axis is None else axis
    if axis is NotImplemented or not is_split_by_columns(arguments[first]):
        return NotImplemented
    arguments[first], arguments["axis"] = arguments[first].table, axis
    out = _exchange(arguments)
    result = func(*bound.args, **bound.kwargs)
    # Of several quantiles each has a row of its own, whichever axis they are along.
    return result if np.ndim(arguments.get("q", 0)) else _back(result, out)


def _running(func: Callable[..., Any], x: Any, *args: Any, **kwargs: Any) -> Any:
    """Running results along an axis."""
    if kwargs.get("axis", args[0] if args else None) is not None:
        _check_out(func, _signature(func).bind(x, *args, **kwargs).arguments.get("out"))
    return _along(func, NotImplemented, x, *args, **kwargs)


def _locating(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Where an extreme is: of equal elements the first one, which the axes' order says."""
    result = _along(func, NotImplemented, *args, **kwargs)
    arguments = _signature(func).bind(*args, **kwargs).arguments
    if result is not NotImplemented or not is_split_by_columns(arguments["a"]):
        return result
    table, keepdims = arguments["a"].table, arguments.get("keepdims", False)
    # That of the table may be another one; its value is looked for. Three sweeps.
    k, n = table.shape
    column = table.session.namespace.arange(k).reshape(k, 1)
    value = np.sum(np.where(column * n + np.arange(n) == func(table), table, 0))
    equal = (table == value) | ((table != table) & (value != value))
    found = np.min(np.where(equal, column + np.arange(n) * k, table.size))
    is_kept = keepdims is not np._NoValue and bool(keepdims)
    return store(arguments.get("out"), kept(table, found, None, is_kept), func.__name__, "unsafe")


def _at(ufunc: np.ufunc, x: Any, indices: Any, *given: Any) -> None:
    """``ufunc.at`` of rows."""
    if not is_split_by_columns(x) or ufunc.__name__ not in JOINS:
        raise TypeError(
            f"numpy.{ufunc.__name__}.at of a transposed table is not available on the servers; "
            f"call it on the table, x.T, or pull the values with x.numpy()"
        )
    join_rows(ufunc.__name__, x, as_indices(indices, len(x)), *given)


def _concatenate(arrays: Any, axis: Any = 0, **kwargs: Any) -> Any:
    if axis is None or any(np.ndim(one) != 2 for one in arrays):
        return NotImplemented
    tables = list(map(beside_table, arrays))
    return np.concatenate(tables, axis=exchanged_axes(axis), **kwargs).T


def _vstack(tup: Any, **kwargs: Any) -> Any:
    return np.concatenate(list(map(beside_table, tup)), axis=1, **kwargs).T


def _tile(A: Any, reps: Any) -> Any:
    times = tuple(np.atleast_1d(reps).tolist())
    if len(times) > 2:
        return NotImplemented  # which says that there is no such rank
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


def _reshape(a: Any, shape: Any, order: Any = "C", **_: Any) -> Any:
    if str(order).upper() in ("A", "K"):  # as the elements are: column by column
        order = "F"
    other = {"C": "F", "F": "C"}.get(str(order).upper(), "F")
    return np.reshape(np.ravel(a.table, order=other), shape, order=order)  # type: ignore[call-overload]


def _rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    quarters = (k if tuple(axes) in ((0, 1), (-2, -1)) else -k) % 4
    if quarters % 2 == 0:
        return np.flip(m) if quarters else m.copy()
    return np.flip(m.table, 0 if quarters == 1 else 1)


def _dot(x: Any, y: Any, out: Any = None) -> Any:
    result = x * y if np.ndim(x) == 0 or np.ndim(y) == 0 else _matmul(x, y)
    return store(out, result, "dot", "no")


def _matmul(x: Any, y: Any) -> Any:
    return x @ y if is_split_by_columns(x) else y.__rmatmul__(x)


def _vecdot(x: Any, y: Any, axis: int = -1) -> Any:
    """Inner products along ``axis``: of two transposes, or of the rows of one with a vector."""
    if np.ndim(x) == np.ndim(y) == 2:
        return products.vecdot(beside_table(x), beside_table(y), axis=exchanged_axes(axis))
    return _matmul(*((x, y) if is_split_by_columns(x) else (y, x)))


def _tensordot(x: Any, y: Any, axes: Any = 2) -> Any:
    if axes not in (1, 2):
        return NotImplemented
    return _matmul(x, y) if axes == 1 else products.vdot(beside_table(x), beside_table(y))


_PRODUCTS = {np.matmul: _matmul, np.matvec: _matmul, np.vecmat: _matmul, np.vecdot: _vecdot}

_ELEMENTWISE = (
    np.isclose, np.allclose, np.array_equal, np.array_equiv, np.nan_to_num, np.clip, np.round,
    np.around, np.where, np.fix, np.sinc, np.i0, np.isposinf, np.isneginf, np.real, np.imag,
    np.angle, np.isreal, np.iscomplex, np.isin, np.zeros_like, np.ones_like, np.empty_like,
    np.full_like,
)  # fmt: skip
_OF_ALL = (
    np.sum, np.prod, np.min, np.max, np.amin, np.amax, np.any, np.all, np.mean, np.var, np.std,
    np.count_nonzero, np.ptp, np.average, np.nansum, np.nanprod, np.nanmean, np.nanvar, np.nanstd,
    np.nanmin, np.nanmax, np.median, np.nanmedian, np.quantile, np.percentile, np.nanquantile,
    np.nanpercentile, np.flip,
)  # fmt: skip
"""Along an axis, or of all elements in whatever order."""
_IN_A_ROW = (
    np.sort, np.argsort, np.partition, np.argpartition, np.repeat, np.roll, np.diff, np.delete,
    np.insert, np.append, np.array_split, np.split, np.unstack,
)  # fmt: skip
"""Along an axis, or of all elements in a row."""
_RUNNING = (
    np.cumsum, np.cumprod, np.cumulative_sum, np.cumulative_prod, np.nancumsum, np.nancumprod,
)  # fmt: skip
_LOCATING = (np.argmin, np.argmax, np.nanargmin, np.nanargmax)

_RULES: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        **{func: functools.partial(_elementwise, func) for func in _ELEMENTWISE},
        **{func: functools.partial(_along, func, None) for func in _OF_ALL},
        **{func: functools.partial(_along, func, NotImplemented) for func in _IN_A_ROW},
        **{func: functools.partial(_running, func) for func in _RUNNING},
        **{func: functools.partial(_locating, func) for func in _LOCATING},
        np.gradient: functools.partial(_along, np.gradient, (0, 1)),
        np.concatenate: _concatenate,
        np.vstack: _vstack,
        np.hstack: lambda tup, **kwargs: _concatenate(tup, 1, **kwargs),
        np.fliplr: lambda m: np.flip(m, 1),
        np.flipud: lambda m: np.flip(m, 0),
        np.hsplit: lambda ary, parts: np.split(ary, parts, 1),
        np.vsplit: lambda ary, parts: np.split(ary, parts, 0),
        np.tile: _tile,
        np.pad: _pad,
        np.tril: lambda m, k=0: np.triu(m.table, -k).T,
        np.triu: lambda m, k=0: np.tril(m.table, -k).T,
        np.reshape: _reshape,
        np.ravel: lambda a, order="C": _reshape(a, -1, order),
        np.rot90: _rot90,
        np.lexsort: lambda keys, axis=-1: np.lexsort(tuple(keys), axis),
        np.broadcast_to: lambda x, shape, **_: transpose(
            shapes.broadcast_to(x.table, shapes.shape_of(shape)[::-1])
        ),
        np.dot: _dot,
        np.linalg.matmul: _matmul,
        np.tensordot: _tensordot,
        np.vdot: _tensordot,
    }
)
"""By NumPy's function the one of a table that is split by columns, or of others beside it.

``NotImplemented``: as of a table that is split by rows. So are all functions that are not here.
"""


def of_either_split(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``; of tables that are split by columns NumPy's of that ``name``, by its rule."""
    counterpart: Any = getattr(np, name, None)
    if counterpart not in _RULES and not isinstance(counterpart, np.ufunc):
        return function

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return (counterpart if any(map(is_split_by_columns, args)) else function)(*args, **kwargs)

    return called


# --- rows at indices ------------------------------------------------------------------------------


def join_rows(name: str, x: Any, where: npt.NDArray[np.int64], given: Any) -> None:
    """Let ``x`` have values joined to its rows at ``where``, in their order; lazy.

    ``name``: of a ufunc of ``JOINS``; each index counts, also one that repeats. ``given``: what
    ``(len(where), k)`` is broadcast of, on the client or on the servers. In their order, so the
    bits are NumPy's. Each server has a part of every row, and so of the values: nothing moves.
    """
    if name == "subtract" and x.dtype == np.bool_:
        raise TypeError("numpy boolean subtract, the `-` operator, is not supported")
    check_not_slice(x)
    if not len(where):
        return
    table, values = x.table, _values_beside(x, where, given)
    with table.write_lock:
        type = array_type(table.space, x.dtype, (len(where),))
        args = table, express(table, build.broadcast_to, values, type), where
        joined = make(table, "scatter_columns", args, table.type, (JOINS.index(name),))
        table.rebind(joined.node)


def _values_beside(x: Any, where: npt.NDArray[np.int64], given: Any) -> Any:
    """Values in the dtype of ``x``, with their axes exchanged: a column for each index.

    ``ValueError`` where the shape does not fit, ``TypeError`` where NumPy refuses the cast.
    """
    table = x.table
    if not hasattr(given, "session"):
        column = beside_table(addable(x, where, given))
        if column.ndim and len(column) == len(table) > 1:
            return table.session.array(column)
        row = column.ravel() if column.ndim else column
        return host_array(table, row)
    check_session(table.session, given, "values")
    if not is_broadcastable(given.shape, (len(where), len(table))):
        raise ValueError(f"{len(where)} indices but values of shape {given.shape}")
    if not np.can_cast(given.dtype, x.dtype, "same_kind"):
        raise TypeError(f"Cannot cast values from {given.dtype!r} to {x.dtype!r}; use astype")
    return beside_table(given).astype(x.dtype)
