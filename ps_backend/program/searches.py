"""Searches: where values belong in a sorted array on the servers.

The movement ``search`` takes the sorted vector and a vector of values of its dtype; its parameter
says whether a value belongs after those equal to it.
"""

from __future__ import annotations

import numpy as np

from ps_backend.program.movements import Movement, MovementTypes, Params, register
from ps_backend.program.types import ArrayType

KIND = "search"


def _check(types: MovementTypes, params: Params) -> None:
    (after,), (table, values) = params, types.inputs
    ((number, made),) = types.outputs
    _need(after in (0, 1) and number == 0 and not types.operands, "takes a table and values")
    _need(not table.row and not values.row, "takes vectors")
    _need(table.dtype == values.dtype, f"takes one dtype, not {table.dtype} and {values.dtype}")
    fits = isinstance(made, ArrayType) and (made.space, made.row) == (values.space, ())
    _need(fits and made.dtype == np.int64, f"makes a place for each value, not {made}")


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise TypeError(what)


register(Movement(KIND, 4, _check))
