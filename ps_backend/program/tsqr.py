"""The movement that decomposes a tall table into Q, on the servers, and R, which the client keeps.

Both in float64, but for Q of a table of float32. See ``ps_backend.server.movements.tsqr``.
"""

from __future__ import annotations

import numpy as np

from ps_backend.program.movements import Movement, MovementTypes, Params, register
from ps_backend.program.types import client_type

KIND = "tsqr"

_FLOAT, _SINGLE = np.dtype(np.float64), np.dtype(np.float32)


def _check(types: MovementTypes, params: Params) -> None:
    (table,) = types.inputs
    if types.operands or params or len(table.row) != 1 or table.space.length < table.width:
        raise ValueError("one table of at least as many rows as columns is decomposed")
    q = table if table.dtype == _SINGLE else table.of(_FLOAT)
    made = {0: q, 1: client_type(_FLOAT, table.row * 2)}
    if any(type != made.get(number) for number, type in types.outputs):
        raise TypeError(f"of {table} come {made[0]} and {made[1]}")


register(Movement(KIND, 2, _check))
