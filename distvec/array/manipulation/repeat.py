"""Elements that occur several times: ``repeat``, ``tile``, ``resize``."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_index

from distvec.array.core.handle import check_cast, is_split_by_columns
from distvec.array.core.operators import A, Arithmetic
from distvec.array.core.shapes import broadcast_to, reshape, shape_of
from distvec.array.indexing import getitem
from distvec.array.indexing.getitem import get_item
from distvec.array.manipulation.join import (
    MOST_INPUTS,
    MOST_TRAVELLING,
    concatenate_rows,
    row_index,
)
from distvec.array.transposed import supports_column_split, transpose

MOST_COLUMNS = 1 << 12
"""A row has so many elements at most where repeating makes tables."""


def take_along_columns(x: Any, axis: int, indices: npt.NDArray[np.int64]) -> Any:
    """What ``indices``, all in range, name along an axis that is not split over servers; lazy."""
    if x.node.on_client:
        return getitem.index_on_host(x, (*(slice(None),) * axis, indices))
    return getitem.take_columns(x, indices)


@supports_column_split(unnamed=NotImplemented)
def repeat(a: A, repeats: A | npt.ArrayLike, axis: int | None = None) -> A:
    """Repeat each element, row or column.

    Parameters
    ----------
    a : DistArray
        Input array.
    repeats : int, array_like of int or DistArray
        How often to repeat: one number, or one for each place along ``axis``.
    axis : int, optional
        Axis to repeat along. None (default) repeats elements of the flattened array.

    Returns
    -------
    DistArray
        Lazy array.

    Raises
    ------
    ValueError
        If a number is negative, or there is not one for each place.

    See Also
    --------
    numpy.repeat : The same function of arrays on the client.

    Notes
    -----
    One number along axis 0 takes two requests per server. Numbers on the servers need an implicit
    evaluation for the length of the result.

    Examples
    --------
    >>> ps.array([1, 2]).repeat(2)
    DistArray([1, 1, 2, 2], dtype=int64, shape=(4,))
    """
    if axis is None:
        a, axis = (reshape(a, (1,)), 0) if a.ndim == 0 else (a, None)
        if axis is None and a.ndim == 2 and np.ndim(repeats) == 0 and not a.node.on_client:  # type: ignore[arg-type]
            columns = np.repeat(np.arange(a.shape[1]), _count(repeats))
            return reshape(take_along_columns(a, 1, columns), (-1,)) if len(columns) else _none(a)  # type: ignore[no-any-return]
        a, axis = reshape(a, (a.size,)), 0
    along = normalize_axis_index(axis, a.ndim)
    if _is_long(repeats) and not along:
        return _by_counts(a, repeats)  # type: ignore[no-any-return]
    times: Any = _evaluate_counts(repeats)
    if a.node.on_client or along:
        return take_along_columns(a, along, np.repeat(np.arange(a.shape[along]), times))  # type: ignore[no-any-return]
    if times.ndim == 0 or times.size == 1:
        return _each(a, _count(times.reshape(())))  # type: ignore[no-any-return]
    if times.shape != (len(a),):
        raise ValueError(
            f"operands could not be broadcast together with shape ({len(a)},) {times.shape}"
        )
    return getitem.gather(a, a.session._put(np.repeat(np.arange(len(a)), times)))  # type: ignore[no-any-return]


def _is_long(repeats: Any) -> bool:
    """Whether the numbers of times are an array on the servers, and not one number."""
    return isinstance(repeats, Arithmetic) and not repeats.node.on_client and repeats.size != 1


def _evaluate_counts(repeats: Any) -> npt.NDArray[Any]:
    """The numbers of times, which may be an array of a session: an evaluation then."""
    if isinstance(repeats, Arithmetic):
        repeats.session.evaluate_implicitly(repeats, "a number of times")
    return np.asarray(repeats)


def _count(repeats: Any) -> int:
    known = _evaluate_counts(repeats)
    times = operator.index((known.astype(np.int64) if known.dtype.kind == "b" else known)[()])
    if times < 0:
        raise ValueError("repeats may not contain negative values.")
    return times


def _none(a: Any, row: tuple[int, ...] = ()) -> Any:
    return a.session.namespace.zeros((0, *row), dtype=a.dtype)


def _each(a: Any, times: int) -> Any:
    """Each row so many times: of a table of rows ``times`` as long a view in rows of the old."""
    row = a.shape[1:]
    if times == 1:
        return a.copy()
    if not times or not len(a):
        return _none(a, row)
    if times * math.prod(row) > MOST_COLUMNS:
        return getitem.gather(a, row_index(a, len(a) * times) // times)
    if row:
        wide = getitem.take_columns(a, np.tile(np.arange(row[0]), times))
    else:
        wide = broadcast_to(reshape(a, (len(a), 1)), (len(a), times))
    return reshape(wide, (len(a) * times, *row))


def _by_counts(a: Any, repeats: Any) -> Any:
    """As often as an array on the servers says; how many that are is an implicit evaluation."""
    if repeats.shape != (len(a),):
        raise ValueError(
            f"operands could not be broadcast together with shape ({len(a)},) {repeats.shape}"
        )
    check_cast(repeats.dtype, np.int64, "safe", "write repeats.astype('int64')")
    ends, least = np.cumsum(repeats), np.min(repeats, initial=0)
    length = int(np.sum(repeats, dtype=np.int64))  # which brings the least one along
    if int(least) < 0:
        raise ValueError("repeats may not contain negative values.")
    places = np.searchsorted(ends, row_index(a, length), side="right")
    return getitem.gather(a, places)


# --- the whole array several times ----------------------------------------------------------------


def tile(A: Any, reps: Any) -> Any:
    """The whole array so many times along each axis: ``numpy.tile``. Lazy.

    A vector on the servers as several rows makes a table that is split by columns.
    """
    times = tuple(operator.index(one) for one in np.atleast_1d(reps).tolist())
    if any(one < 0 for one in times):
        raise ValueError("tile: repetitions must not be negative")
    shape_of((1,) * max(len(times), A.ndim))  # refuses a rank above 2
    times = (1,) * (A.ndim - len(times)) + times
    if is_split_by_columns(A):
        return transpose(tile(A.table, times[::-1]))
    if A.ndim == 0:
        A = reshape(A, (1,))
    if A.ndim < len(times):
        if not A.node.on_client:
            column = _rows(A, times[1])
            return transpose(broadcast_to(reshape(column, (-1, 1)), (len(column), times[0])))
        A = reshape(A, (1, *A.shape))
    if A.ndim == 2:
        columns = np.tile(np.arange(A.shape[1]), times[1])
        A = A if times[1] == 1 else take_along_columns(A, 1, columns)
    if A.node.on_client:
        return take_along_columns(A, 0, np.tile(np.arange(len(A)), times[0]))
    return _rows(A, times[0])


def _rows(x: Any, times: int) -> Any:
    """All rows so many times. A few are a row of the client's, many are put end to end."""
    row = x.shape[1:]
    if times == 1:
        return x.copy()
    if not times or not len(x):
        return _none(x, row)
    if times > MOST_INPUTS and x.size <= MOST_TRAVELLING:
        wide = broadcast_to(reshape(x, (1, x.size)), (times, x.size))
        return reshape(wide, (times * len(x), *row))
    return concatenate_rows(x, [x] * times, x.dtype)


def resize(a: Any, new_shape: Any) -> Any:
    """The elements, over and over, in ``new_shape``: ``numpy.resize``. Lazy."""
    shape = shape_of(new_shape)
    flat, wanted = reshape(a, (a.size,)), math.prod(shape)
    if not a.size or not wanted:
        return a.session.namespace.zeros(shape, dtype=a.dtype)
    enough = flat if wanted <= a.size else tile(flat, -(-wanted // a.size))
    return reshape(get_item(enough, slice(0, wanted)), shape)
