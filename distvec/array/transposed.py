"""A table seen with its axes in the other order: ``T.T`` of shape ``(k, n)``, split along axis 1.

The elements stay where they are. What is done to it is done to the table, with axes exchanged:
``T.T @ U``, ``C @ T.T``, elementwise operations, reductions.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from distvec.array import products
from distvec.array.creation import reshape
from distvec.array.operators import Arithmetic
from distvec.array.values import numpy
from distvec.graph import build, shapes


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
            return x.like(shapes.transposed(x.session.graph, x.node))
    return Transposed(x.copy())


def permute_dims(x: Any, /, axes: Any) -> Any:
    """As ``transpose`` (array API)."""
    return transpose(x, axes)


def matrix_transpose(x: Any, /) -> Any:
    """A table with its axes in the other order. ``ValueError`` below rank 2."""
    if x.ndim < 2:
        raise ValueError(f"matrix transpose needs a table, got an array of rank {x.ndim}")
    return transpose(x)


class Transposed(NDArrayOperatorsMixin):
    """A view of a table with exchanged axes. Made by ``T.T``; ``x.T`` of it is the table."""

    __slots__ = ("table",)
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 1001
    ndim = 2

    def __init__(self, table: Any) -> None:
        self.table = table

    @property
    def T(self) -> Any:
        """The table."""
        return transpose(self)

    mT = T

    @property
    def shape(self) -> tuple[int, int]:
        """``(k, n)``."""
        rows, columns = self.table.shape
        return columns, rows

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the elements."""
        dtype: np.dtype[Any] = self.table.dtype
        return dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        size: int = self.table.size
        return size

    def __len__(self) -> int:
        return self.shape[0]

    def transpose(self, *axes: Any) -> Any:
        """As the function."""
        return transpose(self, *axes)

    def numpy(self) -> Any:
        """The values, pulled to the client."""
        return numpy(self.table).T

    def persist(self) -> Transposed:
        """As of the table."""
        self.table.persist()
        return self

    def astype(self, dtype: Any) -> Transposed:
        """The array in another dtype; lazy."""
        return Transposed(self.table.astype(dtype))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.table.__array__(dtype, copy).T

    def __repr__(self) -> str:
        return f"<the transpose of a table of shape {self.table.shape}, {self.dtype}>"

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
                y = shapes.spread(graph, y, x.type.space)
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
                small = shapes.transposed(graph, shapes.collected(graph, table.node))
                small_array = table.like(small)
            return products.matmul(first, small_array)
        if first.ndim == 1:
            return products.matmul(table, first)
        with table.session.holders.lock:
            graph = table.session.graph
            small_array = table.like(shapes.transposed(graph, shapes.collected(graph, first.node)))
        return Transposed(products.matmul(table, small_array))

    # --- everything else, by way of the table -------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs.get("out") is not None:
            return NotImplemented
        if ufunc is np.matmul:
            left, right = inputs
            return left @ right if isinstance(left, Transposed) else right.__rmatmul__(left)
        result = ufunc(*map(_flipped, inputs), **kwargs)
        return tuple(map(transpose, result)) if isinstance(result, tuple) else transpose(result)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        own: Any = _OWN.get(func)
        if own is not None:
            return own(*args, **kwargs)
        if func in _OF_EITHER:
            return self.table.__array_function__(func, types, args, kwargs)
        if func in _ELEMENTWISE:
            result = func(*map(_flipped, args), **kwargs)
            return result if isinstance(result, bool) else transpose(result)
        if func not in _WITH_AXIS:
            raise TypeError(
                f"numpy.{func.__name__} of a transposed table is not available on the servers; "
                f"call it on the table, x.T, or pull the values with x.numpy()"
            )
        return self._reduced(func, *args[1:], **kwargs)

    def _reduced(self, func: Any, axis: Any = None, **kwargs: Any) -> Any:
        exchanged = axis
        if axis is None and func in _PLACES:
            raise TypeError(
                f"numpy.{func.__name__} of a whole transposed table is not available on the "
                f"servers; say an axis, or call it on the table, x.T"
            )
        if axis is not None:
            exchanged = tuple(1 - operator.index(k) % 2 for k in np.atleast_1d(axis))
            exchanged = exchanged if isinstance(axis, tuple) else exchanged[0]
        if "where" in kwargs:
            kwargs["where"] = _flipped(kwargs["where"])
        if np.ndim(kwargs.get("weights", 0)) == self.ndim:
            kwargs["weights"] = kwargs["weights"].T
        result = func(self.table, axis=exchanged, **kwargs)
        if not kwargs.get("keepdims"):
            return result
        return tuple(map(transpose, result)) if isinstance(result, tuple) else transpose(result)

    def sum(self, axis: Any = None, **kwargs: Any) -> Any:
        """As of the table, with axes exchanged."""
        return self._reduced(np.sum, axis, **kwargs)

    def mean(self, axis: Any = None, **kwargs: Any) -> Any:
        """As of the table, with axes exchanged."""
        return self._reduced(np.mean, axis, **kwargs)

    def var(self, axis: Any = None, **kwargs: Any) -> Any:
        """As of the table, with axes exchanged."""
        return self._reduced(np.var, axis, **kwargs)

    def std(self, axis: Any = None, **kwargs: Any) -> Any:
        """As of the table, with axes exchanged."""
        return self._reduced(np.std, axis, **kwargs)

    def max(self, axis: Any = None, **kwargs: Any) -> Any:
        """As of the table, with axes exchanged."""
        return self._reduced(np.max, axis, **kwargs)

    def min(self, axis: Any = None, **kwargs: Any) -> Any:
        """As of the table, with axes exchanged."""
        return self._reduced(np.min, axis, **kwargs)


def _flipped(operand: Any) -> Any:
    """What stands beside the table where ``operand`` stands beside its transpose."""
    rank = np.ndim(operand) if not isinstance(operand, Arithmetic) else operand.ndim
    if rank == 0:
        return operand
    if rank == 1:
        if isinstance(operand, Arithmetic):
            return reshape(operand, (len(operand), 1))
        return np.asarray(operand)[:, None]
    return operand.T


_WITH_AXIS = {
    np.sum, np.prod, np.min, np.max, np.amin, np.amax, np.any, np.all, np.mean, np.var, np.std,
    np.argmin, np.argmax, np.count_nonzero, np.linalg.norm, np.ptp, np.average, np.nansum,
    np.nanprod, np.nanmean, np.nanvar, np.nanstd, np.nanmin, np.nanmax, np.nanargmin, np.nanargmax,
}  # fmt: skip
_PLACES = {np.argmin, np.argmax, np.nanargmin, np.nanargmax}
"""Of all elements they depend on the order of these."""
_OF_EITHER = {np.einsum, np.cov, np.corrcoef}
"""What takes tables and transposes of tables."""
_ELEMENTWISE = {
    np.isclose, np.allclose, np.array_equal, np.array_equiv, np.nan_to_num, np.clip, np.round,
    np.around, np.where, np.fix, np.sinc, np.i0, np.isposinf, np.isneginf, np.real, np.imag,
    np.angle, np.isreal, np.iscomplex,
}  # fmt: skip
_OWN = {
    np.transpose: transpose,
    np.matrix_transpose: matrix_transpose,
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: lambda x: x.size,
    np.dot: lambda a, b: np.matmul(a, b),
    np.copy: lambda x, **_: transpose(x.table),
}
