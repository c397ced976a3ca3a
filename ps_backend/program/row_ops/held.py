"""What the client holds: tables in which values are looked up, and values given by slot."""

from __future__ import annotations

from typing import Any

import numpy as np

from ps_backend.program.row_ops.row_op import Params, Place, RowOp, Values, need
from ps_backend.program.types import ValueType


def _sorted_table(values: Values) -> ValueType:
    value, table = values[:2]
    need(len(table.row) == 1, f"needs a sorted vector, got {table}")
    need(table.dtype == value.dtype, f"needs a table of {value.dtype}, got {table}")
    return value


def _rank_of(values: Values, params: Params) -> ValueType:
    return ValueType("int64", _sorted_table(values).row)


def _rank(out: Any, place: Place, x: Any, table: Any) -> Any:
    out[...] = np.searchsorted(table, x, side="right" if place.params[0] else "left")
    return out


def _member_of(values: Values, params: Params) -> ValueType:
    return ValueType("bool", _sorted_table(values).row)


def _is_member(out: Any, place: Place, x: Any, table: Any) -> Any:
    found = np.searchsorted(table, x)
    return np.equal(np.take(table, found, mode="clip"), x, out=out)


def _looked_up_of(values: Values, params: Params) -> ValueType:
    places, table = values
    need(places.dtype == "int64", f"needs int64 places, got {places}")
    need(len(table.row) == 1 and table.row[0] > 0, f"needs a vector of values, got {table}")
    return ValueType(table.dtype, places.row)


def _looked_up(out: Any, place: Place, x: Any, table: Any) -> Any:
    """Places beyond an end are the one there, so that no value of ``x`` makes it fail."""
    return np.take(table, x, out=out, mode="clip")


def _interpolated_of(values: Values, params: Params) -> ValueType:
    x, line, ends = values
    need({one.dtype for one in values} == {"float64"}, "needs float64 throughout")
    need(len(line.row) == 2 and line.row[0] == 2, f"needs points and their heights, got {line}")
    need(ends.row == (2,), f"needs a value for what is left, and for what is right, got {ends}")
    return x


def _interpolated(out: Any, place: Place, x: Any, line: Any, ends: Any) -> Any:
    out[...] = np.interp(x, *line, *ends)
    return out


def _held_by_slot(values: Values, params: Params) -> ValueType:
    need(bool(values[0].row), f"needs a value for each slot, got {values[0]}")
    return ValueType(values[0].dtype, values[0].row[1:])


def _slots(out: Any, place: Place, held: Any) -> Any:
    np.copyto(out, held[place.first : place.first + place.length])
    return out


def _placed(values: Values, params: Params) -> ValueType:
    value, slots, given = values
    need(slots.dtype == "int64" and len(slots.row) == 1, f"needs int64 slots, got {slots}")
    need(given.dtype == value.dtype, f"needs what is placed in {value.dtype}, got {given}")
    need(
        given.row in ((), (*slots.row, *value.row)),
        f"needs rows of shape {value.row} for {slots.row[0]} slots, got {given}",
    )
    return value


def _place(out: Any, place: Place, x: Any, slots: Any, given: Any) -> Any:
    np.copyto(out, x)
    if len(place.slots):
        last = np.append(place.slots[1:] != place.slots[:-1], True)  # of each slot
        out[place.slots[last]] = given[place.entries[last]] if given.ndim else given
    return out


ROWS = (
    RowOp("rank", 2, _rank_of, _rank, held=1, params=1),
    RowOp("is_member", 2, _member_of, _is_member, held=1),
    RowOp("looked_up", 2, _looked_up_of, _looked_up, held=1),
    RowOp("interpolated", 3, _interpolated_of, _interpolated, held=2),
    RowOp("slots", 1, _held_by_slot, _slots, held=1, whole=True),
    RowOp("place", 3, _placed, _place, held=2, slots=1),
)
