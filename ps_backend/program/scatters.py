"""Scatters: values that an index array brings to their places in an array, in its order.

The movement ``scatter`` takes the base (or, for one that is the same everywhere, an operand), the
index array, and the values (or, for one that is the same for all, an operand). Its parameters are
the number in ``WAYS`` and whether there is a base.
"""

from __future__ import annotations

import numpy as np

from ps_backend.program.movements import Movement, MovementTypes, Params, register
from ps_backend.program.types import ArrayType

KIND = "scatter"

ASSIGN = "assign"
"""The last value for a place stays; the others are ufuncs, whose ``at`` it is."""
WAYS: tuple[str, ...] = (
    ASSIGN, "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power",
    "maximum", "minimum", "fmax", "fmin", "logical_and", "logical_or", "logical_xor",
    "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "hypot", "copysign",
    "logaddexp", "logaddexp2", "gcd", "lcm", "arctan2", "fmod", "equal", "not_equal", "less",
    "less_equal", "greater", "greater_equal",
)  # fmt: skip


def ufunc_of(way: int) -> np.ufunc | None:
    """What joins a value to what is there; None where it replaces that."""
    found: np.ufunc | None = None if WAYS[way] == ASSIGN else getattr(np, WAYS[way])
    return found


def _check(types: MovementTypes, params: Params) -> None:
    way, has_base = params
    ((number, made),) = types.outputs
    _need(0 <= way < len(WAYS) and has_base in (0, 1), f"knows no parameters {params}")
    _need(isinstance(made, ArrayType) and number == 0, "makes an array on the servers")
    base, (index, *values) = types.inputs[:has_base], types.inputs[has_base:]
    _need(not base or base[0] == made, f"makes an array like {base}, not {made}")
    _need(index.dtype == np.int64 and not index.row, f"takes int64 indices, not {index}")
    count = 2 - has_base - len(values)
    _need(len(values) < 2 and len(types.operands) == count, "takes a base and values")
    _need(not values or values[0].space == index.space, "needs a value for each index")
    rows = [one.row for one in values] + [one.row for one in types.operands]
    _need(all(row in ((), (1,), made.row) for row in rows), f"needs rows of {made.row}, not {rows}")


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise TypeError(what)


register(Movement(KIND, 2, _check))
