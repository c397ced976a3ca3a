"""The table of row ops: steps that look at whole rows, or make rows of another shape.

The other steps, those of the op table, are elementwise. To add a row op, add a row to the table at
the end and nothing else; a program that has one of its own gives it to ``register``. The
reductions along each row (``row_sum``, ...) come from the table of reductions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from ps_backend.program import ops
from ps_backend.program.collectives import SCANS, Scan
from ps_backend.program.types import Row, ValueType, summed, widest

Values = tuple[ValueType, ...]
"""The types of the arguments of a step."""
Params = tuple[int, ...]


def _none() -> np.ndarray:
    return np.empty(0, np.int64)


@dataclass(slots=True)
class Place:
    """What a row op may know besides its arguments: of one chunk after the other."""

    first: int = 0
    """The slot at which the chunk begins."""
    length: int = 0
    """Slots of the chunk."""
    block: int = 1
    """Slots of a block: the chunk is part of one, or begins where one does."""
    params: Params = ()
    row: Row = ()
    """Of the result."""
    entries: np.ndarray = field(default_factory=_none)
    """Of a list of slots: which of its entries are in the chunk, ordered by slot, then by entry."""
    slots: np.ndarray = field(default_factory=_none)
    """The slots of these entries, from the start of the chunk."""


@dataclass(frozen=True, slots=True)
class RowOp:
    """One row op, on chunks of consecutive slots.

    Its first arguments have a value in each slot: they are arrays ``(length, *row)``, whatever they
    were computed from. The last ones are what the client holds, whole.
    """

    name: str
    arity: int
    result: Callable[[Values, Params], ValueType | None]
    """The type of the result; None where the argument is repeated to any row ``(k,)``.

    ``TypeError`` for arguments or parameters that it does not take."""
    run: Callable[..., Any]
    """The result on one chunk, from ``(out, place, *args)``: written to ``out`` of its shape and
    dtype, or a view of an argument."""
    held: int = 0
    """How many of the last arguments are runtime scalars."""
    params: int = 0
    """How many parameters it has."""
    view: bool = False
    """The result is a view of the first argument, and there is no ``out``."""
    slots: int | None = None
    """Which argument is a list of slots, of which ``place`` says what concerns the chunk."""
    columns: int | None = None
    """Which argument is a list of columns of the first one."""
    whole: bool = False
    """Its one argument is a value for each slot of the space."""
    may_fail: bool = False
    """Of some values it raises an error, on one server only: no memory is given away with it."""
    over: bool = False
    """``out`` may be the memory of its first argument, most of which stays as it is."""
    products: bool = False
    """It multiplies by a matrix: worth chunks of many rows."""


def need(holds: bool, what: str) -> None:
    """Raise ``TypeError(what)`` unless it ``holds``."""
    if not holds:
        raise TypeError(what)


def width(value: ValueType) -> int:
    """Elements of a row ``(k,)``; ``TypeError`` for other rows."""
    need(len(value.row) == 1, f"needs rows of shape (k,), got {value}")
    return value.row[0]


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


_OF_SHAPES = (
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


@cache
def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """In what values of ``dtype`` are added up. (Its name takes longer than a chunk.)"""
    return widest(dtype.name)


def _one_dtype(values: Values) -> str:
    first, second = values
    need(first.dtype == second.dtype, f"needs factors of one dtype, got {first} and {second}")
    return first.dtype


def _dot_of(values: Values, params: Params) -> ValueType:
    dtype = _one_dtype(values)
    need(width(values[0]) == width(values[1]), "needs rows of one length")
    return ValueType(summed(dtype).name)


def _row_dot(out: Any, place: Place, x: Any, y: Any) -> Any:
    wide = _wide(out.dtype)
    x, y = x.astype(wide, copy=False), y.astype(wide, copy=False)
    return np.vecdot(x, y, out=out, casting="same_kind")


def _product_of(values: Values, params: Params) -> ValueType:
    table, matrix = values
    dtype = _one_dtype(values)
    inner, *outer = matrix.row or (0,)
    need(width(table) == inner, f"needs {width(table)} rows in the matrix, got {matrix}")
    return ValueType(dtype, tuple(outer))


def _matmul(out: Any, place: Place, x: Any, matrix: Any) -> Any:
    """Block by block: in BLAS the last bits of a row may depend on the rows that come with it."""
    whole = place.length // place.block * place.block
    if whole:
        np.matmul(
            x[:whole].reshape(-1, place.block, *x.shape[1:]),
            matrix,
            out=out[:whole].reshape(-1, place.block, *out.shape[1:]),
        )
    if whole < place.length:
        np.matmul(x[whole:], matrix, out=out[whole:])
    return out


_PRODUCTS = (
    RowOp("row_dot", 2, _dot_of, _row_dot),
    RowOp("matmul", 2, _product_of, _matmul, held=1, products=True),
)


def _same(values: Values, params: Params) -> ValueType:
    width(values[0])
    return values[0]


def _places_in_rows(values: Values, params: Params) -> ValueType:
    width(values[0])
    return ValueType("int64", values[0].row)


def _take_type(values: Values, params: Params) -> ValueType:
    table, places = values
    width(table)
    need(places.dtype == "int64", f"needs int64 places, got {places}")
    return ValueType(table.dtype, (width(places),))


def _row_take(out: Any, place: Place, x: Any, places: Any) -> Any:
    out[...] = np.take_along_axis(x, places, axis=1)
    return out


def _row_changed(values: Values, params: Params) -> ValueType:
    table, places, given = values
    _take_type((table, places), params)
    need(given == ValueType(table.dtype, places.row), f"needs a {table.dtype} for each place")
    return table


def _row_put(out: Any, place: Place, x: Any, places: Any, given: Any) -> Any:
    np.copyto(out, x)
    np.put_along_axis(out, places, given, axis=1)
    return out


def _scan_run(scan: Scan) -> Callable[[Values, Params], ValueType]:
    def result(values: Values, params: Params) -> ValueType:
        width(values[0])
        return ValueType(scan.result(np.dtype(values[0].dtype)).name, values[0].row)

    return result


def _row_sort(out: Any, place: Place, x: Any) -> Any:
    """NumPy's order; descending it is the same backwards, NaN first."""
    descending, stable = place.params
    np.copyto(out, x)
    out.sort(axis=1, kind="stable" if stable else None)
    if descending:
        out[...] = out[:, ::-1].copy()
    return out


def _row_argsort(out: Any, place: Place, x: Any) -> Any:
    descending, stable = place.params
    kind: Any = "stable" if stable else None
    if descending:  # equal ones keep their order, as backwards they are sorted backwards
        out[...] = x.shape[1] - 1 - np.argsort(x[:, ::-1], axis=1, kind=kind)[:, ::-1]
    else:
        out[...] = np.argsort(x, axis=1, kind=kind)
    return out


def _accumulate(scan: Scan) -> Callable[..., Any]:
    def run(out: Any, place: Place, x: Any) -> Any:
        scan.ufunc.accumulate(x, axis=1, dtype=scan.accumulator(out.dtype), out=out)
        return out

    return run


_ALONG_ROWS = (
    RowOp("row_sort", 1, _same, _row_sort, params=2),
    RowOp("row_argsort", 1, _places_in_rows, _row_argsort, params=2),
    *(RowOp(scan.along_rows, 1, _scan_run(scan), _accumulate(scan)) for scan in SCANS.values()),
    RowOp("row_take", 2, _take_type, _row_take, may_fail=True),
    RowOp("row_put", 3, _row_changed, _row_put, may_fail=True),
)


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


def _interpolate(out: Any, place: Place, x: Any, line: Any, ends: Any) -> Any:
    out[...] = np.interp(x, *line, *ends)
    return out


def _held_by_slot(values: Values, params: Params) -> ValueType:
    need(bool(values[0].row), f"needs a value for each slot, got {values[0]}")
    return ValueType(values[0].dtype, values[0].row[1:])


def _slots(out: Any, place: Place, held: Any) -> Any:
    np.copyto(out, held[place.first : place.first + place.length])
    return out


def _place_type(values: Values, params: Params) -> ValueType:
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


_OF_TABLES = (
    RowOp("rank", 2, _rank_of, _rank, held=1, params=1),
    RowOp("is_member", 2, _member_of, _is_member, held=1),
    RowOp("looked_up", 2, _looked_up_of, _looked_up, held=1),
    RowOp("interpolated", 3, _interpolated_of, _interpolate, held=2),
    RowOp("slots", 1, _held_by_slot, _slots, held=1, whole=True),
    RowOp("place", 3, _place_type, _place, held=2, slots=1),
)


def _indices(values: Values, params: Params) -> ValueType:
    need(values[0] == ValueType("int64"), f"needs a vector of int64, got {values[0]}")
    need(params[1] >= 0, f"an axis with size {params[1]}")
    return values[0]


def _along_axis(out: Any, place: Place, x: Any) -> Any:
    """Indices from 0; ``IndexError`` for one that the axis has not, as NumPy's."""
    axis, length = place.params
    if x.min() < -length or x.max() >= length:
        wrong = x[(x < -length) | (x >= length)][0]
        raise IndexError(f"index {wrong} is out of bounds for axis {axis} with size {length}")
    return np.add(x, length * (x < 0), out=out)


_OF_INDICES = (RowOp("along_axis", 1, _indices, _along_axis, params=2, may_fail=True),)

# What this process knows: a state of the process for the reason that ``ops`` gives.
TABLE: dict[str, RowOp] = {}


def register(row: RowOp) -> None:
    """Add a row op. The processes of the servers that are to run it need it as well.

    ``ValueError`` if there is one of that name.
    """
    if row.name in TABLE or row.name in ops.TABLE:
        raise ValueError(f"there is an op {row.name!r} already; give the new one another name")
    TABLE[row.name] = row


for _row in (*_OF_SHAPES, *_PRODUCTS, *_ALONG_ROWS, *_OF_TABLES, *_OF_INDICES):
    register(_row)


def fits(op: RowOp, values: Values, params: Params, type: ValueType) -> bool:
    """Whether a step of ``op`` may have arguments, parameters and a result of these types."""
    if len(params) != op.params:
        return False
    try:
        result = op.result(values, params)
    except TypeError:
        return False
    if result is not None:
        return result == type
    repeats = len(type.row) == 1 and values[0].row in ((), (1,), type.row)
    return type.dtype == values[0].dtype and repeats
