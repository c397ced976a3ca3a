"""Single elements and rows, by index: a message to each server that holds some of them."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from distvec.array.core.conversion import buffer_of, numpy, persist
from distvec.array.core.handle import (
    Handle,
    check_not_slice,
    check_session,
    express,
    host_array,
    is_broadcastable,
    make,
)
from distvec.array.core.operators import elementwise
from distvec.array.core.shapes import put
from distvec.array.transposed import transpose_operand
from distvec.diagnostics.profile import measured
from distvec.graph import build
from distvec.graph.node import Buffer
from distvec.runtime.liveness import InFlightProgram
from ps_backend.client import defer_signals
from ps_backend.program.row_ops import JOINS
from ps_backend.program.types import array_type

H = TypeVar("H", bound=Handle)


def pull(x: Handle, indices: npt.ArrayLike | None = None) -> npt.NDArray[Any]:
    """Pull elements of a vector, or rows of a table, to the client.

    Parameters
    ----------
    x : DistArray
        Vector or table. It is evaluated if needed.
    indices : array_like of int, optional
        Vector of ``m`` indices on the client, in any order, with repeats; negative ones count from
        the end. None (default) pulls all elements.

    Returns
    -------
    numpy.ndarray
        Shape ``(m,)``, or ``(m, k)`` for a table of ``k`` columns.

    Raises
    ------
    IndexError
        If an index is out of bounds, or the indices are not a vector of integers.
    TypeError
        If the array has rank 0.

    See Also
    --------
    distvec.DistArray.push : Add values at indices.

    Notes
    -----
    One request to each server that holds requested rows. An array that is stored on the client
    costs no request.

    Examples
    --------
    >>> ps.array([1.0, 2.0, 3.0]).pull([2, 0])
    array([3., 1.])
    """
    if indices is None:
        return numpy(x)
    wanted = as_indices(indices, _length(x))
    if x.node.on_client:
        found: npt.NDArray[Any] = numpy(x)[wanted]
        return found
    held = x.copy()  # keeps the value that is read if x changes meanwhile
    source = buffer_of(held)
    with measured(x.session.counters):
        return x.session.client.gather(source.id, source.type, wanted)


def push(x: H, indices: npt.ArrayLike | None, values: npt.ArrayLike) -> H:
    """Add values to elements of a vector, or to rows of a table.

    Parameters
    ----------
    x : DistArray
        Vector or table; it is rebound to the sum.
    indices : array_like of int or None
        Vector of ``m`` indices on the client. Values of repeated indices add up. None adds to all
        elements, like ``x += values``.
    values : array_like
        Values of shape ``(m,)``, or ``(m, k)`` for a table of ``k`` columns. A number or one row is
        broadcast to that shape.

    Returns
    -------
    DistArray
        The same array.

    Raises
    ------
    IndexError
        If an index is out of bounds, or the indices are not a vector of integers.
    TypeError
        If NumPy does not allow the cast of ``values`` to the dtype of ``x``.
    ValueError
        If the shape of ``values`` does not fit, or ``x`` is a slice of another array.

    See Also
    --------
    distvec.DistArray.pull : Read values at indices.

    Notes
    -----
    One request per server; an array that is stored on the client costs no request. Other arrays
    that share the old value keep it.

    Examples
    --------
    >>> x = ps.zeros(3)
    >>> x.push([0, 2, 0], [1.0, 5.0, 2.0])
    DistArray([3., 0., 5.], dtype=float64, shape=(3,))
    """
    check_not_slice(x)
    where = None if indices is None else as_indices(indices, _length(x))
    shape = x.shape if where is None else (len(where), *x.shape[1:])
    given = check_addable(x, where, values)
    if x.node.on_client and x.ndim:
        return _add_on_client(x, where, given)
    if where is None:
        whole = given.shape == shape or given.shape[:1] == shape[:1]
        everywhere = x.like(put(x.session, given, x.dtype)) if whole else given
        with x.write_lock:
            return x.assign(elementwise(x, "add", x, everywhere), "push")
    if not len(where):
        return persist(x)
    added = np.ascontiguousarray(np.broadcast_to(given, shape))
    with x.write_lock:
        source = buffer_of(x)
        with measured(x.session.counters), defer_signals():
            _add(x, source, where, added)
    return x


def check_addable(x: Any, where: npt.NDArray[np.int64] | None, values: Any) -> npt.NDArray[Any]:
    """Return ``values`` in the dtype of ``x``, to be added at ``where``; None adds to all rows.

    ``ValueError`` if the shape does not fit, ``TypeError`` if NumPy does not allow the cast.
    """
    shape = x.shape if where is None else (len(where), *x.shape[1:])
    given = as_added(values, x.dtype)
    if not is_broadcastable(given.shape, shape):
        raise ValueError(_misfit(x, where, given))
    if not np.can_cast(given.dtype, x.dtype, "same_kind"):
        raise TypeError(
            f"push: cannot add {given.dtype} values to a {x.dtype} array; "
            f"cast one: values.astype({x.dtype.name!r}), x.astype('float64')"
        )
    return np.asarray(given, x.dtype)


def _misfit(x: Any, where: npt.NDArray[np.int64] | None, given: npt.NDArray[Any]) -> str:
    """Why ``given`` cannot be added there."""
    row, count = x.shape[1:], len(x) if where is None else len(where)
    what = "elements" if where is None else "indices"
    allowed = f"; allowed are {(count, *row)}, {row} and one number" if row else ""
    return f"push: {count} {what} but values of shape {given.shape}{allowed}"


def _add_on_client(x: H, where: npt.NDArray[np.int64] | None, given: npt.NDArray[Any]) -> H:
    """Let a small array that the client keeps have ``given``."""
    with x.write_lock:
        changed = numpy(x)
        if where is None:
            changed += given
        else:
            np.add.at(changed, where, given)
        return x.rebind(host_array(x, changed).node)


def as_added(values: npt.ArrayLike, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """``values``, to be added to integers or floats of ``dtype``, in which Python's integers are.

    ``OverflowError`` for one that it does not hold.
    """
    given: npt.NDArray[Any] = np.asarray(values)
    are_weak = given.dtype.kind in "iuO" and not hasattr(values, "dtype") and dtype.kind in "iu"
    return np.asarray(values, dtype) if are_weak else given


def _add(x: Handle, source: Buffer, where: npt.NDArray[np.int64], added: npt.NDArray[Any]) -> None:
    """Let ``x``, now ``source``, have ``added``: in the same memory if nobody else holds it."""
    session, type = x.session, source.type
    buffer, flight = session.new_buffer(type), InFlightProgram()
    with session.holders.changing(x, session.graph.leaf(buffer), flight) as is_alone:
        session.client.scatter_add(
            source.id, buffer.id, type, where, added, donate=is_alone, ended=flight.end
        )


def _length(x: Handle) -> int:
    if not x.ndim:
        raise TypeError(
            "a rank-0 array has no indices; read it with x.item(), add to it with x + 1"
        )
    return len(x)


def _hint(indices: npt.NDArray[Any]) -> str:
    """Return the code to write instead of ``indices`` that are not valid."""
    kind, value = indices.dtype.kind, indices.tolist()
    if kind in "iu":
        return f"; write [{value}]" if indices.ndim == 0 else "; write indices.ravel()"
    if isinstance(value, slice):
        return "; write range(start, stop), or no indices at all for all elements"
    if kind == "b":
        return (
            "; for masks: distvec.where(mask, x, y), or numpy.flatnonzero of a mask on the client"
        )
    return "; write indices.astype('int64')" if kind == "f" else ""


def as_indices(indices: Any, length: int) -> npt.NDArray[np.int64]:
    """``indices`` as int64 in ``0..length-1``; negative ones count from the end, as in NumPy."""
    given = np.asarray(indices)
    if given.size == 0:
        return np.empty(0, np.int64)
    if given.dtype.kind not in "iu" or given.ndim != 1:
        got = f"shape {given.shape} of dtype {given.dtype}"
        if given.ndim == 0:
            got = repr(indices)
        raise IndexError(f"indices must be a vector of integers, got {got}{_hint(given)}")
    result = given.astype(np.int64)
    low, high = int(result.min()), int(result.max())
    if low < -length or high >= length:
        bad = low if low < -length else high
        raise IndexError(f"index {bad} is out of bounds for an array of length {length}")
    return np.where(result < 0, result + length, result) if low < 0 else result


# --- rows of tables that are split by columns ----------------------------------------------------


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
    table, values = x.table, _row_values(x, where, given)
    with table.write_lock:
        type = array_type(table.space, x.dtype, (len(where),))
        args = table, express(table, build.broadcast_to, values, type), where
        joined = make(table, "scatter_columns", args, table.type, (JOINS.index(name),))
        table.rebind(joined.node)


def _row_values(x: Any, where: npt.NDArray[np.int64], given: Any) -> Any:
    """Values in the dtype of ``x``, with their axes exchanged: a column for each index.

    ``ValueError`` where the shape does not fit, ``TypeError`` where NumPy refuses the cast.
    """
    table = x.table
    if not hasattr(given, "session"):
        column = transpose_operand(check_addable(x, where, given))
        if column.ndim and len(column) == len(table) > 1:
            return table.session._put(column)
        row = column.ravel() if column.ndim else column
        return host_array(table, row)
    check_session(table.session, given, "values")
    if not is_broadcastable(given.shape, (len(where), len(table))):
        raise ValueError(f"{len(where)} indices but values of shape {given.shape}")
    if not np.can_cast(given.dtype, x.dtype, "same_kind"):
        raise TypeError(
            f"Cannot cast values from {given.dtype!r} to {x.dtype!r}; "
            f"write values.astype({x.dtype.name!r})"
        )
    return transpose_operand(given).astype(x.dtype)
