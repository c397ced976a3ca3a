"""A table seen with its axes in the other order: ``T.T`` of shape ``(k, n)``, split along axis 1.

The elements stay where they are. What is done to it is done to the table, with axes exchanged:
``T.T @ U``, ``C @ T.T``, elementwise operations, reductions.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from distvec.array import products
from distvec.array.by_columns import ByColumns
from distvec.array.core.handle import lock_in_order
from distvec.array.core.keywords import leading, stored
from distvec.array.core.shapes import broadcast_to, shape_of
from distvec.array.core.type_queries import size
from distvec.array.exchanged import (
    ALONG_AXIS,
    CHANGING,
    ELEMENTWISE,
    LOCATING,
    MAKING,
    OF_EITHER,
    QUANTILES,
    RUNNING,
    WITH_AXIS,
    exchanged,
    flipped,
    redistributed,
)
from distvec.array.indexing.pull_push import as_indices
from distvec.array.joined_columns import join_rows
from distvec.array.methods_by_columns import Methods, changed
from distvec.array.moved_columns import MOVED
from distvec.array.reductions import kept
from distvec.graph import build
from ps_backend.program.row_ops import JOINS


def transpose(x: Any, /, axes: Any = None) -> Any:
    """``x`` with its axes in the other order, or in that of ``axes``; lazy, and moves nothing."""
    if axes is not None:
        order = [operator.index(axis) % max(1, x.ndim) for axis in axes]
        if sorted(order) != list(range(x.ndim)):
            raise ValueError("axes don't match array")
        if order == sorted(order):
            return x.copy()
    if isinstance(x, Transposed):
        return x.table.copy()
    if x.ndim < 2:
        return x
    if x.node.on_client:
        with x.session.holders.lock:
            return x.like(build.transpose(x.session.graph, x.node))
    return Transposed(x.copy())


def permute_dims(x: Any, /, axes: Any) -> Any:
    """As ``transpose`` (array API)."""
    return transpose(x, axes)


def matrix_transpose(x: Any, /) -> Any:
    """A table with its axes in the other order. ``ValueError`` below rank 2."""
    if x.ndim < 2:
        raise ValueError(f"matrix transpose needs a table, got an array of rank {x.ndim}")
    return transpose(x)


def _reduction(func: Any) -> Any:
    """The method that is called like NumPy's function."""

    def method(self: Transposed, axis: Any = None, **kwargs: Any) -> Any:
        return self._reduced(func, axis, **kwargs)

    method.__name__ = func.__name__
    method.__doc__ = f"As ``numpy.{func.__name__}``: of the table, with axes exchanged."
    return method


class Transposed(Methods, ByColumns):
    """A table with exchanged axes: of shape ``(n, k)``, it is split by columns.

    Made by ``T.T``, of which ``x.T`` is the table, or by ``session.space(n, split="columns")``.
    Each server has all rows of some columns. Elementwise work and sums of columns stay there; what
    goes along the rows, ``x.sum(axis=1)`` and ``x @ v``, comes to the client.
    """

    __slots__ = ()

    @property
    def T(self) -> Any:
        """The table."""
        return transpose(self)

    mT = T

    def transpose(self, *axes: Any) -> Any:
        """As the function."""
        return transpose(self, axes[0] if len(axes) == 1 else axes or None)

    # --- products -----------------------------------------------------------------------------

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, Transposed):
            return transpose(products.matmul(other.table, self.table))
        table = self.table
        first, second = products.both(table, other, "matmul")
        if second.ndim == 0:
            raise ValueError("@ needs vectors or tables; multiply by a scalar with *")
        if second.shape[0] != len(first):
            raise ValueError(f"matmul: shapes {self.shape} and {second.shape} not aligned")
        dtype = np.result_type(first.dtype, second.dtype)
        with table.session.holders.lock:
            graph = table.session.graph
            x, y = (build.cast(graph, one.node, dtype) for one in (first, second))
            if y.on_client:
                y = build.put_on_servers(graph, y, x.type.space)
            return table.like(products.gram(graph, x, y))

    def __rmatmul__(self, other: Any) -> Any:
        """``other @ T.T``: a table with the rows of ``other``, or of T's if these are more."""
        table = self.table
        first, _ = products.both(other, table, "matmul")
        if first.ndim == 0 or first.shape[-1] != table.shape[1]:
            raise ValueError(f"matmul: shapes {first.shape} and {self.shape} not aligned")
        if first.ndim == 2 and not first.node.on_client and first.size >= table.size:
            with table.session.holders.lock:
                graph = table.session.graph
                small = build.transpose(graph, build.collect(graph, table.node))
                small_array = table.like(small)
            return products.matmul(first, small_array)
        if first.ndim == 1:
            return products.matmul(table, first)
        with table.session.holders.lock:
            graph = table.session.graph
            small_array = table.like(build.transpose(graph, build.collect(graph, first.node)))
        return Transposed(products.matmul(table, small_array))

    # --- everything else, by way of the table -------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "reduce":
            return self._reduced(ufunc.reduce, kwargs.pop("axis", 0), **kwargs)
        if method == "accumulate":
            return self._running(ufunc.accumulate, kwargs.pop("axis", 0), **kwargs)
        if method == "at":
            return _at(ufunc, *inputs)
        if method != "__call__":
            raise TypeError(_unavailable(f"{ufunc.__name__}.{method}"))
        if ufunc in _PRODUCTS:
            (target,) = kwargs.pop("out", (None,))
            return _stored(target, _PRODUCTS[ufunc](*inputs, **kwargs), ufunc.__name__)
        if kwargs.get("where", True) is not True:
            kwargs["where"] = flipped(kwargs["where"])
        outs = kwargs.pop("out", ())
        if not outs:
            return _transposed(ufunc(*map(flipped, inputs), **kwargs))
        if not all(isinstance(out, Transposed) for out in outs):
            raise TypeError(f"numpy.{ufunc.__name__}: out= must be split by columns as well")
        tables = tuple(out.table for out in outs)
        with lock_in_order(tables):
            if outs[0] is inputs[0] and not kwargs:
                # An operator in place: to one of a slice too, which is assigned next.
                tables[0].assign(ufunc(*map(flipped, inputs)), ufunc.__name__)
                return outs[0]
            ufunc(*map(flipped, inputs), out=tables, **kwargs)
        return outs[0] if len(outs) == 1 else outs

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        args = args or leading(func, args, kwargs)
        own: Any = _OWN.get(func)
        if own is not None:
            return own(*args, **kwargs)
        if func in OF_EITHER or getattr(func, "_implementation", func) in MAKING:
            return self.table.__array_function__(func, (), args, kwargs)
        if func in CHANGING:
            return self._changed(func, args, kwargs)
        if func in ELEMENTWISE:
            return _transposed(func(*map(flipped, args), **kwargs))
        if func in MOVED:
            return MOVED[func](*args, **kwargs)
        if func in RUNNING:
            return self._running(func, *args[1:], **kwargs)
        if func in ALONG_AXIS:
            return _transposed(_along(func, self.table, *args[1:], **kwargs))
        if func in QUANTILES:
            target, keeps = kwargs.pop("out", None), bool(kwargs.get("keepdims"))
            if np.ndim(kwargs.get("weights")) == self.ndim:
                kwargs["weights"] = flipped(kwargs["weights"])
            quantiles = functools.partial(_along, func, self.table, *args[1:], **kwargs)
            return _reduced_into(target, func.__name__, quantiles, keeps)
        if func in WITH_AXIS:
            return self._reduced(func, *args[1:], **kwargs)
        if not any(map(_has_transposed, (*args, *kwargs.values()))):  # like= this one
            return self.table.__array_function__(func, (), args, kwargs)
        return func(*map(_by_rows, args), **{name: _by_rows(one) for name, one in kwargs.items()})

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return self.table.__array_namespace__(api_version=api_version)

    def _changed(self, func: Any, args: Any, kwargs: Any) -> None:
        """A function that changes its first argument."""
        first, *rest = args
        others = [_by_rows(one) for one in rest]
        named = {name: _by_rows(one) for name, one in kwargs.items()}
        if isinstance(first, Transposed):
            changed(func, first, *others, **named)
        else:
            func(first, *others, **named)

    def _reduced(self, func: Any, axis: Any = None, out: Any = None, **kwargs: Any) -> Any:
        (target,) = out if isinstance(out, tuple) else (out,)
        if axis is None and func in LOCATING:
            return stored(target, _located(self.table, func, **kwargs), func.__name__)
        if "where" in kwargs:
            kwargs["where"] = flipped(kwargs["where"])
        if np.ndim(kwargs.get("weights", 0)) == self.ndim:
            kwargs["weights"] = kwargs["weights"].T
        reduced = functools.partial(func, self.table, axis=exchanged(axis), **kwargs)
        return _reduced_into(target, func.__name__, reduced, bool(kwargs.get("keepdims")))

    def _running(
        self, func: Any, axis: Any = None, dtype: Any = None, out: Any = None, **kwargs: Any
    ) -> Any:
        """A function whose results along an axis are a table, and the transpose of that here."""
        if axis is None:  # of all elements in a row
            return func(_by_rows(self), dtype=dtype, out=out, **kwargs)
        (target,) = (None,) if out is None else out if isinstance(out, tuple) else (out,)
        if target is not None and not isinstance(target, Transposed):
            raise TypeError(f"numpy.{func.__name__}: out= must be split by columns as well")
        if target is None:
            return transpose(func(self.table, axis=exchanged(axis), dtype=dtype, **kwargs))
        func(self.table, axis=exchanged(axis), dtype=dtype, out=target.table, **kwargs)
        return target

    def cumsum(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        """As ``numpy.cumsum``, along an axis."""
        return self._running(np.cumsum, axis, dtype, out)

    def cumprod(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        """As ``numpy.cumprod``, along an axis."""
        return self._running(np.cumprod, axis, dtype, out)

    sum, prod, mean = _reduction(np.sum), _reduction(np.prod), _reduction(np.mean)
    var, std = _reduction(np.var), _reduction(np.std)
    min, max = _reduction(np.min), _reduction(np.max)
    argmin, argmax = _reduction(np.argmin), _reduction(np.argmax)
    any, all = _reduction(np.any), _reduction(np.all)

    def dot(self, other: Any, out: Any = None) -> Any:
        """As ``numpy.dot``."""
        return np.dot(self, other, out=out)


def _reduced_into(target: Any, name: str, reduced: Callable[..., Any], keepdims: bool) -> Any:
    """What ``reduced`` makes of the table, with ``keepdims`` turned round; in ``target``, if any.

    NumPy adds up in the dtype of ``target``, so one of its dtype is what ``reduced`` gets.
    """
    if target is None:
        return _transposed(reduced()) if keepdims else reduced()
    if not keepdims or not hasattr(target, "session"):
        return reduced(out=target)
    if isinstance(target, Transposed):
        reduced(out=target.table)
        return target
    turned = np.zeros_like(target, shape=target.shape[::-1])
    reduced(out=turned)
    return target.assign(flipped(turned), name)


def _along(func: Any, table: Any, *args: Any, **kwargs: Any) -> Any:
    """What ``func`` makes of the table along the other axis."""
    given = inspect.signature(func).bind(table, *args, **kwargs)
    given.apply_defaults()
    if given.arguments["axis"] is None and func in ALONG_AXIS:  # whose order of the elements?
        raise TypeError(_unavailable(f"{func.__name__} without an axis"))
    given.arguments["axis"] = exchanged(given.arguments["axis"])
    return func(*given.args, **given.kwargs)


def _located(table: Any, func: Any, keepdims: bool = False) -> Any:
    """Where in the transpose ``func`` finds an extreme: of equal elements the first one.

    That of the table may be another one; its value is looked for. Three sweeps.
    """
    k, n = table.shape
    column = table.session.namespace.arange(k).reshape(k, 1)
    value = np.sum(np.where(column * n + np.arange(n) == func(table), table, 0))
    equal = (table == value) | ((table != table) & (value != value))
    found = np.min(np.where(equal, column + np.arange(n) * k, table.size))
    return kept(table, found, None, keepdims)


def of_either(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, of transposes as well if NumPy has one of that ``name``."""
    counterpart = getattr(np, name, None)
    if counterpart is None:
        return function

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        for arg in args:
            if isinstance(arg, Transposed):
                return counterpart(*args, **kwargs)
        return function(*args, **kwargs)

    return called


def _by_rows(argument: Any) -> Any:
    """An argument of a function that has no way of its own with transposes: tables split by rows.

    Their elements go from server to server, in the program that needs them.
    """
    if isinstance(argument, Transposed):
        return redistributed(argument.table)
    if isinstance(argument, list | tuple):
        return type(argument)([_by_rows(one) for one in argument])
    return argument


def _has_transposed(argument: Any) -> bool:
    """Whether an argument is such a table, or a sequence with one in it."""
    if isinstance(argument, list | tuple):
        return any(map(_has_transposed, argument))
    return isinstance(argument, Transposed)


def _unavailable(name: str) -> str:
    return (
        f"numpy.{name} of a transposed table is not available on the servers; "
        f"call it on the table, x.T, or pull the values with x.numpy()"
    )


def _at(ufunc: np.ufunc, x: Any, indices: Any, *values: Any) -> None:
    """``ufunc.at``: of rows of a transpose."""
    if not isinstance(x, Transposed) or ufunc.__name__ not in JOINS:
        raise TypeError(_unavailable(f"{ufunc.__name__}.at"))
    join_rows(ufunc.__name__, x, as_indices(indices, len(x)), *values)


def _transposed(result: Any) -> Any:
    """Of what was computed of tables, the transposes; a truth value as it is."""
    if isinstance(result, tuple | list):
        return type(result)(map(transpose, result))
    return result if isinstance(result, bool) else transpose(result)


def _vecdot(x: Any, y: Any, axis: int = -1) -> Any:
    """Inner products along ``axis``: of two transposes, or of the rows of one with a vector."""
    if np.ndim(x) == np.ndim(y) == 2:
        return products.vecdot(flipped(x), flipped(y), axis=exchanged(axis))
    return x @ y if isinstance(x, Transposed) else y @ x


def _tensordot(x: Any, y: Any, axes: Any = 2) -> Any:
    if axes not in (1, 2):
        raise TypeError(_unavailable("tensordot"))
    return x @ y if axes == 1 else products.vdot(flipped(x), flipped(y))


def _rows(x: Transposed) -> tuple[Any, ...]:
    """The rows as vectors on the servers: the columns of the table."""
    return tuple(x.table[:, number] for number in range(len(x)))


def _dot(x: Any, y: Any, out: Any = None) -> Any:
    result = x * y if np.ndim(x) == 0 or np.ndim(y) == 0 else _matmul(x, y)
    products.check_out_of_dot(out, result)
    return _stored(out, result, "dot")


def _matmul(x: Any, y: Any) -> Any:
    return x @ y if isinstance(x, Transposed) else y.__rmatmul__(x)


def _stored(out: Any, result: Any, name: str) -> Any:
    """``result`` of the product ``name``; in ``out=``, split in either way, if that was given."""
    if isinstance(out, Transposed):
        products.stored_product(out.table, flipped(result), name)
        return out
    if out is not None and isinstance(result, Transposed):
        result = redistributed(result.table)
    return products.stored_product(out, result, name)


_PRODUCTS = {np.matmul: _matmul, np.matvec: _matmul, np.vecmat: _matmul, np.vecdot: _vecdot}
_OWN = {
    np.lexsort: lambda keys, axis=-1: np.lexsort(_rows(keys), axis),
    np.transpose: transpose,
    np.permute_dims: transpose,
    np.matrix_transpose: matrix_transpose,
    np.linalg.matrix_transpose: matrix_transpose,
    np.linalg.matmul: _matmul,
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: size,
    np.dot: _dot,
    np.tensordot: _tensordot,
    np.vdot: _tensordot,
    np.copy: lambda a, order="K", subok=False: a.copy(order),
    np.astype: lambda x, dtype, /, **_: x.astype(dtype),
    np.broadcast_to: lambda x, shape, **_: transpose(broadcast_to(x.table, shape_of(shape)[::-1])),
}


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {
        np.transpose: lambda x, axes=None: transpose(x, axes),
        np.matrix_transpose: matrix_transpose,
        np.linalg.matrix_transpose: matrix_transpose,
        np.permute_dims: transpose,
    }
