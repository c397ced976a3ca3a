"""What happens within each row: sorted, running results, elements picked and put."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ps_backend.program.row_ops.row_op import Params, Place, RowOp, Values, need, width
from ps_backend.program.scans import SCANS, Scan
from ps_backend.program.types import ValueType


def _same(values: Values, params: Params) -> ValueType:
    width(values[0])
    return values[0]


def _places_in_rows(values: Values, params: Params) -> ValueType:
    width(values[0])
    return ValueType("int64", values[0].row)


def _taken(values: Values, params: Params) -> ValueType:
    table, places = values
    width(table)
    need(places.dtype == "int64", f"needs int64 places, got {places}")
    return ValueType(table.dtype, (width(places),))


def _row_take(out: Any, place: Place, x: Any, places: Any) -> Any:
    out[...] = np.take_along_axis(x, places, axis=1)
    return out


def _row_changed(values: Values, params: Params) -> ValueType:
    table, places, given = values
    _taken((table, places), params)
    need(given == ValueType(table.dtype, places.row), f"needs a {table.dtype} for each place")
    return table


def _row_put(out: Any, place: Place, x: Any, places: Any, given: Any) -> Any:
    np.copyto(out, x)
    np.put_along_axis(out, places, given, axis=1)
    return out


def _running(scan: Scan) -> Callable[[Values, Params], ValueType]:
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


ROWS = (
    RowOp("row_sort", 1, _same, _row_sort, params=2),
    RowOp("row_argsort", 1, _places_in_rows, _row_argsort, params=2),
    *(RowOp(scan.along_rows, 1, _running(scan), _accumulate(scan)) for scan in SCANS.values()),
    RowOp("row_take", 2, _taken, _row_take, may_fail=True),
    RowOp("row_put", 3, _row_changed, _row_put, may_fail=True),
)
