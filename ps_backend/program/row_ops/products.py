"""Rows times rows, and times a matrix."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ps_backend.program.row_ops.row_op import Params, Place, RowOp, Values, need, width
from ps_backend.program.types import ValueType, summed, widest


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


ROWS = (
    RowOp("row_dot", 2, _dot_of, _row_dot),
    RowOp("matmul", 2, _product_of, _matmul, held=1, products=True),
)
