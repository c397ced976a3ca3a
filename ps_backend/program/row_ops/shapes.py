"""Rows of another shape: vectors and their columns; columns of a table, read or changed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ps_backend.program.row_ops.row_op import Params, Place, RowOp, Values, need, width
from ps_backend.program.types import ValueType

JOINS = ("add", "subtract", "multiply", "minimum", "maximum")
"""Ufuncs by which ``scatter_columns`` joins values to columns, in the order of their list."""


def _column_of(values: Values, params: Params) -> ValueType:
    need(values[0].row == (), f"needs a vector, got {values[0]}")
    return ValueType(values[0].dtype, (1,))


def _vector_of(values: Values, params: Params) -> ValueType:
    need(values[0].row == (1,), f"needs rows of shape (1,), got {values[0]}")
    return ValueType(values[0].dtype)


def _as_column(out: None, place: Place, x: Any) -> Any:
    return x[:, None]


def _as_vector(out: None, place: Place, x: Any) -> Any:
    return x[:, 0]


def _any_row(values: Values, params: Params) -> None:
    """The step says it."""


def _broadcast(out: None, place: Place, x: Any) -> Any:
    return np.broadcast_to(x[:, None] if x.ndim == 1 else x, (place.length, *place.row))


def _one_column(values: Values, params: Params) -> ValueType:
    (number,), count = params, width(values[0])
    need(0 <= number < count, f"column {number} of {count}")
    return ValueType(values[0].dtype)


def _column(out: None, place: Place, x: Any) -> Any:
    return x[:, place.params[0]]


def _some_columns(values: Values, params: Params) -> ValueType:
    start, stop, step = params
    count = width(values[0])
    need(step != 0, "columns in steps of 0")
    found = range(start, stop, step)
    need(
        len(found) > 0 and all(0 <= number < count for number in (found[0], found[-1])),
        f"columns {start}:{stop}:{step} of {count}",
    )
    return ValueType(values[0].dtype, (len(found),))


def _columns(out: None, place: Place, x: Any) -> Any:
    start, stop, step = place.params
    return x[:, start : None if stop < 0 else stop : step]


def _both_columns(values: Values, params: Params) -> ValueType:
    first, second = values
    need(first.dtype == second.dtype, f"needs tables of one dtype, got {first} and {second}")
    return ValueType(first.dtype, (width(first) + width(second),))


def _join_columns(out: Any, place: Place, x: Any, y: Any) -> Any:
    return np.concatenate((x, y), axis=1, out=out)


def _chosen_columns(values: Values, params: Params) -> ValueType:
    table, chosen = values
    width(table)
    need(chosen.dtype == "int64", f"needs int64 columns, got {chosen}")
    return ValueType(table.dtype, (width(chosen),))


def _take_columns(out: Any, place: Place, x: Any, chosen: Any) -> Any:
    return np.take(x, chosen, axis=1, out=out, mode="clip")  # they were checked; "raise" copies


def _changed_columns(values: Values, params: Params) -> ValueType:
    table, given, chosen = values
    need(_chosen_columns((table, chosen), ()) == given, f"needs what is joined, got {given}")
    need(0 <= params[0] < len(JOINS), f"columns are joined by {JOINS}")
    return table


def _scatter_columns(out: Any, place: Place, x: Any, given: Any, chosen: Any) -> Any:
    """Row by row: NumPy has a loop of its own for ``at`` of one vector of indices."""
    np.copyto(out, x)  # which NumPy leaves out where both are the same memory
    ufunc = getattr(np, JOINS[place.params[0]])
    for row, values in zip(out, given, strict=True):
        ufunc.at(row, chosen, values)
    return out


ROWS = (
    RowOp("as_column", 1, _column_of, _as_column, view=True),
    RowOp("as_vector", 1, _vector_of, _as_vector, view=True),
    RowOp("broadcast", 1, _any_row, _broadcast, view=True),
    RowOp("column", 1, _one_column, _column, params=1, view=True),
    RowOp("columns", 1, _some_columns, _columns, params=3, view=True),
    RowOp("join_columns", 2, _both_columns, _join_columns),
    RowOp("take_columns", 2, _chosen_columns, _take_columns, held=1, columns=1),
    RowOp(
        "scatter_columns",
        3,
        _changed_columns,
        _scatter_columns,
        held=1,
        params=1,
        columns=2,
        over=True,
    ),
)
