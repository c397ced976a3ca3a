"""Indices that arrays on the servers hold, and what they must be."""

from __future__ import annotations

from typing import Any

import numpy as np

from ps_backend.program.row_ops.row_op import Params, Place, RowOp, Values, need
from ps_backend.program.types import ValueType


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


ROWS = (RowOp("along_axis", 1, _indices, _along_axis, params=2, may_fail=True),)
