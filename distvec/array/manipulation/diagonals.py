"""Diagonals of tables, and the triangles above and below them."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_tuple

from distvec.array.core.handle import check_not_slice, host_array
from distvec.array.core.operators import A
from distvec.array.core.shapes import broadcast_to, reshape
from distvec.array.elementwise import apply
from distvec.array.indexing import getitem
from distvec.array.indexing.getitem import get_item
from distvec.array.manipulation.join import row_index
from distvec.array.manipulation.pad import pad
from distvec.array.reductions import sum
from distvec.array.transposed import transpose
from distvec.graph.host_eval import MOST_ELEMENTS


def _beyond(x: Any, k: int) -> Any:
    """Of each element of a table, by how much its column is beyond the ``k``-th diagonal."""
    rows, columns = x.shape
    across = np.arange(-k, columns - k)
    if x.node.on_client:
        down = host_array(x, np.arange(rows)[:, None])
    else:
        down = reshape(row_index(x, rows), (rows, 1))
    return apply("subtract", across, down)


def _kept_where(x: Any, op: str, k: int) -> Any:
    if x.ndim < 2:
        raise NotImplementedError(
            f"tril and triu need a table, got a vector of {x.size} elements; broadcast it first: "
            f"numpy.broadcast_to(x, (n, {x.size}))"
        )
    return apply("where", apply(op, _beyond(x, k), 0), x, x.dtype.type(0))


def tril(m: Any, k: int = 0) -> Any:
    """Return the elements up to the ``k``-th diagonal, zeros above it; lazy, no data transfer."""
    if m.is_split_by_columns:
        return transpose(triu(m.table, -k))
    return _kept_where(m, "less_equal", operator.index(k))


def triu(m: Any, k: int = 0) -> Any:
    """Return the elements from the ``k``-th diagonal on, zeros below it; lazy, no data transfer."""
    if m.is_split_by_columns:
        return transpose(tril(m.table, -k))
    return _kept_where(m, "greater_equal", operator.index(k))


def diagonal(a: A, offset: int = 0, axis1: int = 0, axis2: int = 1) -> A:
    """Return a diagonal of a table.

    Parameters
    ----------
    a : DistArray
        Table.
    offset : int, default 0
        Number of the diagonal: positive above the main diagonal, negative below it.
    axis1, axis2 : int, default 0 and 1
        Axes of the table.

    Returns
    -------
    DistArray
        Lazy vector that is stored on the client.

    Raises
    ------
    ValueError
        If the array is not a table.

    See Also
    --------
    numpy.diagonal : The same function of arrays on the client.

    Examples
    --------
    >>> ps.array([[1, 2], [3, 4]]).diagonal()
    DistArray([1, 4], dtype=int64, shape=(2,))
    """
    if a.is_split_by_columns:
        return diagonal(a.table, -offset, axis1, axis2)  # type: ignore[attr-defined, no-any-return]
    if a.ndim < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    axes = normalize_axis_tuple((axis1, axis2), a.ndim)
    k = operator.index(offset) * (1 if axes == (0, 1) else -1)
    first, across = max(0, -k), max(0, k)
    count = max(0, min(a.shape[0] - first, a.shape[1] - across))
    rows, columns = np.arange(first, first + count), np.arange(across, across + count)
    if a.node.on_client:
        return getitem.index_on_host(a, (rows, columns))
    return get_item(a, (rows, columns))  # type: ignore[no-any-return]


def trace(
    a: A,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: npt.DTypeLike | None = None,
    out: A | None = None,
) -> A:
    """Sum a diagonal of a table.

    Parameters
    ----------
    a : DistArray
        Table.
    offset : int, default 0
        Number of the diagonal: positive above the main diagonal, negative below it.
    axis1, axis2 : int, default 0 and 1
        Axes of the table.
    dtype : dtype, optional
        Dtype to cast the elements to first; the result has it, too.
    out : DistArray, optional
        Rank-0 array that receives the result.

    Returns
    -------
    DistArray
        Lazy scalar.

    Raises
    ------
    ValueError
        If the array is not a table.

    See Also
    --------
    numpy.trace : The same function of arrays on the client.

    Examples
    --------
    >>> ps.array([[1, 2], [3, 4]]).trace()
    DistArray(5, dtype=int64, shape=())
    """
    return sum(diagonal(a, offset, axis1, axis2), dtype=dtype, out=out)


def diag(v: Any, k: int = 0) -> Any:
    """The ``k``-th diagonal of a table, as of ``diagonal``; of a vector the table that has it.

    Such a table has as many rows as columns, so it is of short vectors.
    """
    if v.ndim == 2:
        return diagonal(v, k)
    if v.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    offset = operator.index(k)
    count = len(v) + abs(offset)
    if count**2 > MOST_ELEMENTS:
        raise NotImplementedError(
            f"diag: a table of {count} rows and columns is too large; instead of "
            f"numpy.diag(v) @ T write v[:, None] * T"
        )
    column = reshape(pad(v, (max(0, -offset), max(0, offset))), (count, 1))
    hits = apply("equal", _beyond(broadcast_to(column, (count, count)), offset), 0)
    return apply("where", hits, column, v.dtype.type(0))


def diagflat(v: Any, k: int = 0) -> Any:
    """The table that has the elements of ``v`` on its ``k``-th diagonal; as of ``diag``."""
    return diag(reshape(v, (v.size,)), k)


def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    """``val``, a number or an array of the client, on the diagonal of a table; lazy.

    ``wrap``: on those below as well, each a row after the end of the last.
    """
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    check_not_slice(a)
    rows, columns = a.shape
    hits = apply("equal", _beyond(a, 0), 0)
    if wrap:
        down = apply("remainder", apply("negative", _beyond(a, 0)), columns + 1)
        hits = apply("logical_or", hits, apply("equal", down, 0))
    values = np.asarray(val) if np.ndim(val) else val
    if np.ndim(values):
        if wrap and rows > columns:
            raise NotImplementedError("fill_diagonal: val must be a number with wrap=True")
        values = np.resize(values, min(rows, columns))
        values = np.resize(values, columns).astype(a.dtype)
    else:
        values = np.asarray(values).astype(a.dtype)[()]
    with a.write_lock:
        a.assign(apply("where", hits, values, a), "fill_diagonal")


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """Return falling powers of each element as a row: ``numpy.vander``. Lazy, no data transfer."""
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    count = len(x) if N is None else operator.index(N)
    if count < 1 or (N is None and count > 1024):
        raise NotImplementedError(
            f"vander: a table of {count} columns is not supported; write vander(x, N)"
        )
    dtype = np.promote_types(x.dtype, np.int64)
    ones = np.ones((len(x), 1), dtype)
    if count == 1:
        return np.ones_like(reshape(x.astype(dtype), (len(x), 1)))
    base = np.broadcast_to(reshape(x.astype(dtype), (-1, 1)), (len(x), count - 1))
    powers = np.cumprod(base, axis=1)
    first = x.session.namespace.ones((len(x), 1), dtype=dtype)
    table = np.concatenate([ones if x.node.on_client else first, powers], axis=1)
    return table if increasing else np.flip(table, 1)
