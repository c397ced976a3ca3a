"""Counts: how many elements, or what weights of them, fall into each of a few bins.

Both movements take an array and, if it is weighted, another one like it; the client keeps the one
result, int64 counts or float64 weights.

=========  =========================================================================================
count      elements are the numbers of bins, as many as the result is long
histogram  an operand is the edges of the bins, another one is empty or where the first of bins of
           one width begins and the last ends
=========  =========================================================================================
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ps_backend.program.movements import Movement, MovementTypes, Params, register
from ps_backend.program.types import ClientType

COUNT, HISTOGRAM = "count", "histogram"


def _check(kind: str, types: MovementTypes, params: Params) -> None:
    values, *weights = types.inputs
    ((number, made),) = types.outputs
    _need(not params and number == 0 and len(weights) < 2, "takes values and weights")
    _need(all((one.space, one.row) == (values.space, ()) for one in weights), "needs weights alike")
    _need(not values.row, f"takes a vector, not {values}")
    sums = np.dtype(np.float64 if weights else np.int64)
    _need(isinstance(made, ClientType) and made.dtype == sums, f"makes {sums}, not {made}")
    _need(len(made.shape) == 1, "makes a number for each bin")
    if kind == COUNT:
        _need(values.dtype.kind in "iu" and not types.operands, "counts integers")
    else:
        edges, limits = types.operands
        _need(edges.row == (made.shape[0] + 1,) and limits.row in ((0,), (2,)), "takes edges")


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise TypeError(what)


for _kind in (COUNT, HISTOGRAM):
    register(Movement(_kind, 2, partial(_check, _kind)))
