"""Arrays put together: end to end, side by side, as rows or as columns of a table.

End to end along axis 0, a condition on the index selects the piece, and a view reads the piece at
other places. The result is computed in one pass, and servers fetch only elements that change
servers. Small arrays on the client are joined there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_index

from distvec.array.core.handle import (
    check_cast,
    check_session,
    express,
    host_array,
    is_split_by_columns,
    make,
)
from distvec.array.core.operators import Arithmetic, elementwise
from distvec.array.core.shapes import MOST_RANK, full, on_servers, reshape, reshape_any
from distvec.array.elementwise import array_among
from distvec.array.transposed import exchanged_axes, transpose, transpose_operand
from distvec.graph import build
from distvec.graph.build import check_dtype
from distvec.graph.node import spread
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type, client_type

MOST_INPUTS = 24
"""So many pieces at most are read by one sweep; of more, groups are put together first."""
MOST_TRAVELLING = 1 << 12
"""So many elements of the client travel with the program; more are put on the servers before."""

_INT = np.dtype(np.int64)


def row_index(like: Arithmetic, length: int) -> Any:
    """``0, 1, ..., length - 1`` on the servers, in the session of ``like``; lazy."""
    return make(like, "iota", (), array_type(DenseSpace(length), _INT))


def shift_rows(x: Arithmetic, length: int, by: int) -> Any:
    """Of ``length`` rows, row ``by + i`` is row ``i`` of ``x``; zeros where there is none; lazy."""
    space = DenseSpace(length)
    if not by and x.space == space:
        return x.copy()
    return express(x, spread, x, space, by, 1)


def choose_rows(x: Arithmetic, condition: Any, first: Any, second: Any) -> Any:
    """``first`` where ``condition``, one truth value a row, is true, elsewhere ``second``; lazy."""
    is_table = any(isinstance(one, Arithmetic) and one.ndim == 2 for one in (first, second))
    mask = reshape(condition, (len(condition), 1)) if is_table else condition
    return elementwise(x, "where", mask, first, second)


def concatenate_rows(like: Arithmetic, pieces: Sequence[Any], dtype: np.dtype[Any]) -> Any:
    """``pieces`` one after the other along axis 0, in ``dtype``; lazy.

    Arrays of one shape of rows: on the servers, kept by the client, or NumPy's. Of those more than
    ``MOST_TRAVELLING`` elements are put on the servers at once.
    """
    parts = [
        _on_servers(like, piece, dtype) for piece in _merge_host_pieces(like, pieces) if len(piece)
    ]
    while len(parts) > MOST_INPUTS:
        groups = range(0, len(parts), MOST_INPUTS)
        parts = [_join_few(like, parts[first : first + MOST_INPUTS]) for first in groups]
    if not parts:
        return like.session.namespace.zeros((0, *pieces[0].shape[1:]), dtype=dtype)
    return _join_few(like, parts)


def _merge_host_pieces(like: Arithmetic, pieces: Sequence[Any]) -> list[Any]:
    """The same with neighbours that are NumPy's as one."""
    found: list[Any] = []
    for piece in pieces:
        if found and isinstance(piece, np.ndarray) and isinstance(found[-1], np.ndarray):
            found[-1] = np.concatenate([found[-1], piece])
        else:
            found.append(piece)
    return found


def _on_servers(like: Arithmetic, piece: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(piece, np.ndarray):
        values: npt.NDArray[Any] = piece.astype(check_dtype(dtype))
        if values.size > MOST_TRAVELLING:
            return like.session._put(values)
        piece = host_array(like, values)
    x = piece.astype(dtype)
    if not x.node.on_client or len(x) > 1:
        return x
    # One row as any number of them, which costs no more than a number.
    row = express(x, build.reshape, x, x.shape[1:])
    return express(x, build.broadcast_to, row, array_type(DenseSpace(1), dtype, x.shape[1:]))


def _join_few(like: Arithmetic, parts: Sequence[Any]) -> Any:
    """At most ``MOST_INPUTS`` pieces, of one dtype, in a sweep."""
    ends = np.cumsum([len(part) for part in parts]).tolist()
    length = ends[-1]
    index = row_index(like, length)
    result: Any = None
    for part, end in zip(reversed(parts), reversed(ends), strict=True):
        if part.node.on_client:  # it travels with the program
            continue
        moved = shift_rows(part, length, end - len(part))
        result = moved if result is None else choose_rows(like, index < end, moved, result)
    for part, end in zip(parts, ends, strict=True):
        if part.node.on_client:
            result = _with_rows(like, result, part, end - len(part), length)
    return result


def _with_rows(like: Arithmetic, under: Any, part: Any, start: int, length: int) -> Any:
    """``under``, or anything, with the rows of ``part`` from ``start`` on."""
    base = full(like, (length, *part.shape[1:]), 0, part.dtype) if under is None else under
    slots = np.arange(start, start + len(part))
    return make(like, "place", (base, slots, part), base.type)


def join_on_host(name: str, arrays: Sequence[Any], axis: int) -> Any:
    """``numpy.stack`` or ``numpy.concatenate``, by name; None where servers have one of ``arrays``.

    Some may be NumPy's. Errors are NumPy's.
    """
    given = list(arrays)
    ours = [one for one in given if isinstance(one, Arithmetic)]
    if not ours or any(not one.node.on_client for one in ours):
        return None
    like = getattr(np, name)([np.empty(one.shape, one.dtype) for one in given], axis=axis)
    if like.ndim > MOST_RANK:
        raise NotImplementedError(
            f"{name}: the result would have {like.ndim} axes, at most {MOST_RANK} are supported"
        )
    return make(ours[0], f"client.{name}", given, client_type(like.dtype, like.shape), (axis,))


def concatenate(
    arrays: Sequence[Any], axis: Any = 0, *, dtype: Any = None, casting: Any = "same_kind"
) -> Any:
    """Join ``arrays`` along ``axis``: ``numpy.concatenate``. Lazy.

    Some can be NumPy's, or be stored on the client. Along axis 0 servers fetch elements that
    change servers, in the pass that uses them; along axis 1 no data is transferred. NumPy arrays
    of more than ``MOST_TRAVELLING`` elements are copied to the servers immediately.
    """
    given = as_joinable("concatenate", arrays)
    if axis is not None and _are_split_by_columns(given):
        tables = list(map(transpose_operand, given))
        return transpose(concatenate(tables, exchanged_axes(axis), dtype=dtype, casting=casting))
    if axis is None:
        given, axis = [_flat(one) for one in given], 0
    along = _check_axis(given, axis)
    result = join_on_host("concatenate", given, along)
    if result is None:
        kind = np.result_type(*(one.dtype for one in given))
        like = array_among("concatenate", tuple(given))
        result = (concatenate_columns if along else concatenate_rows)(like, given, kind)
    return _cast(result, dtype, casting)


def _are_split_by_columns(given: Sequence[Any]) -> bool:
    """Whether all are tables, and one at least is split by columns."""
    return any(map(is_split_by_columns, given)) and all(one.ndim == 2 for one in given)


def stack(
    arrays: Sequence[Any], axis: Any = 0, *, dtype: Any = None, casting: Any = "same_kind"
) -> Any:
    """Join vectors of one length as columns, ``axis=1``, or as the rows of a table; lazy.

    No data is transferred: with vectors as rows, the table is split by columns. Small arrays on the
    client are stacked there.
    """
    given = as_joinable("stack", arrays)
    if len({one.shape for one in given}) > 1:
        raise ValueError("all input arrays must have the same shape")
    rank = given[0].ndim + 1
    along = normalize_axis_index(axis, rank)
    if rank > MOST_RANK:
        raise NotImplementedError(
            f"stack: the result would have {rank} axes, at most {MOST_RANK} are supported; use "
            f"numpy.concatenate"
        )
    result = join_on_host("stack", given, along)
    if result is None:
        columns = column_stack(given)
        result = columns if along else transpose(columns)
    return _cast(result, dtype, casting)


def column_stack(tup: Sequence[Any]) -> Any:
    """Join vectors and tables of one length as the columns of a table; lazy, no data transfer."""
    given = as_joinable("column_stack", tup)
    return concatenate(
        [one if one.ndim == 2 else reshape_any(one, (-1, 1)) for one in given], axis=1
    )


def hstack(tup: Sequence[Any], *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    """Vectors end to end, tables side by side; lazy."""
    given = [reshape_any(one, (1,)) if one.ndim == 0 else one for one in as_joinable("hstack", tup)]
    axis = 0 if given[0].ndim == 1 else 1
    return concatenate(given, axis, dtype=dtype, casting=casting)


def vstack(tup: Sequence[Any], *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    """Tables above each other, among them vectors as rows; lazy.

    Vectors alone make a table that is split by columns, as of ``stack``.
    """
    given = as_joinable("vstack", tup)
    if all(one.ndim == 1 for one in given):
        return stack(given, dtype=dtype, casting=casting)
    rows = [one if one.ndim == 2 else reshape_any(one, (1, -1)) for one in given]
    if _are_split_by_columns(rows):  # vectors as rows are then split by columns, too
        rows = [one if one.ndim == 2 else reshape_any(one, (-1, 1)).T for one in given]
    return concatenate(rows, 0, dtype=dtype, casting=casting)


def dstack(tup: Sequence[Any]) -> Any:
    """Refused: the result is of rank 3."""
    raise NotImplementedError(
        "dstack: the result would have 3 axes, at most 2 are supported; for vectors as columns "
        "write numpy.column_stack"
    )


def append(arr: Any, values: Any, axis: Any = None) -> Any:
    """``values`` after the elements, or along ``axis``: ``numpy.append``. Lazy."""
    first, second = as_joinable("append", (arr, values))
    if axis is None:
        first, second, axis = _flat(first), _flat(second), 0
    return concatenate((first, second), axis)


def block(arrays: Any) -> Any:
    """Join blocks to a table: lists of blocks side by side, in a list from top to bottom; lazy."""
    if not isinstance(arrays, list):
        return arrays.copy()
    if not arrays:
        raise ValueError("List at arrays cannot be empty")
    if not isinstance(arrays[0], list):
        return hstack([reshape_any(one, (1,)) if one.ndim == 0 else one for one in _pieces(arrays)])
    if any(isinstance(one, list) for row in arrays for one in row):
        raise NotImplementedError(
            "block: lists can be nested at most twice; arrays have at most 2 axes"
        )
    rows = [[_as_row(one) for one in _pieces(row)] for row in arrays]
    return concatenate([concatenate(row, axis=1) if row[1:] else row[0] for row in rows], axis=0)


def _pieces(arrays: Sequence[Any]) -> list[Any]:
    return [one if isinstance(one, Arithmetic) else np.asarray(one) for one in arrays]


def _as_row(x: Any) -> Any:
    return x if x.ndim == 2 else reshape_any(x, (1, x.size))


# --- shared by all of them ------------------------------------------------------------------------


def as_joinable(name: str, arrays: Sequence[Any]) -> list[Any]:
    """What is to be joined: our arrays, of one session, and NumPy's. ``ValueError`` for none.

    The elements of tables that are split by columns go from server to server.
    """
    found: list[Any] = []
    like: Arithmetic | None = None
    for one in arrays:
        if isinstance(one, Arithmetic):
            like = one if like is None else like
            check_session(like.session, one, name)
            found.append(one if one.is_split_by_columns else one.materialized())
        else:
            values = np.asarray(one)
            check_dtype(values.dtype)
            found.append(values)
    if not found:
        raise ValueError("need at least one array to concatenate")
    return found


def _check_axis(given: Sequence[Any], axis: Any) -> int:
    """``axis`` as a number from 0. Errors as NumPy's for shapes that do not fit."""
    if any(one.ndim == 0 for one in given):
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    first = given[0]
    along = normalize_axis_index(axis, first.ndim)
    for one in given[1:]:
        if one.ndim != first.ndim:
            raise ValueError(
                f"all the input arrays must have same number of dimensions, but the arrays have "
                f"{first.ndim} and {one.ndim}"
            )
        for other in set(range(first.ndim)) - {along}:
            if one.shape[other] != first.shape[other]:
                raise ValueError(
                    "all the input array dimensions except for the concatenation axis must match "
                    f"exactly, but along dimension {other} there are {first.shape[other]} and "
                    f"{one.shape[other]}"
                )
    return along


def concatenate_columns(like: Arithmetic, given: Sequence[Any], dtype: np.dtype[Any]) -> Any:
    """Tables of one length with the columns of all of them, in ``dtype``; nothing moves."""
    tables = [_as_columns(like, one) for one in given if one.shape[1]]
    space = tables[0].space
    joined, *others = (one.astype(dtype) for one in tables)
    for one in others:
        width = joined.shape[1] + one.shape[1]
        joined = make(like, "join_columns", (joined, one), array_type(space, dtype, (width,)))
    return joined


def _as_columns(like: Arithmetic, piece: Any) -> Any:
    if isinstance(piece, Arithmetic):
        return on_servers(piece)
    if piece.size > MOST_TRAVELLING:
        return like.session._put(piece)
    return on_servers(host_array(like, piece))


def _cast(result: Any, dtype: Any, casting: Any) -> Any:
    if dtype is None:
        return result
    kind = check_dtype(dtype)
    check_cast(result.dtype, kind, casting)
    return result.astype(kind)


def _flat(x: Any) -> Any:
    return reshape_any(x, (x.size,))
