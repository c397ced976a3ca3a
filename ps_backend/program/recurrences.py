"""Linear recurrences, ``y[t] = a[t] * y[t - 1] + b[t]``: of which types, and by Python's floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.program.movements import Movement, MovementTypes, Params, register
from ps_backend.program.types import FLOATS, ArrayType, Row

Array = npt.NDArray[Any]

KIND = "linear_recurrence"
"""The movement. Inputs: ``b``, and ``a`` if it is on the servers. Operands: ``y[-1]``, and ``a`` if
it is the same in all rows."""


def recur(a: Array, b: Array, state: Array, y: Array) -> None:
    """Rows of ``y``: ``a`` times the row before, ``state`` at first, plus that of ``b``.

    Tables ``(rows, width)``, but ``a`` may have one row or one column instead; ``state`` is of
    ``width``, and the last row is left in it. Quicker than NumPy where each row is one number.
    """
    for column in range(b.shape[1]):
        factors = a[:, column if a.shape[1] > 1 else 0].tolist()
        if len(factors) < len(b):
            factors *= len(b)
        last, found = float(state[column]), []
        for factor, term in zip(factors, b[:, column].tolist(), strict=True):
            last = factor * last + term
            found.append(last)
        y[:, column], state[column] = found, last


def of_arrays(a: Array, b: Array, initial: Array) -> Array:
    """The recurrence of small arrays, or NumPy's, which are broadcast, in float64."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    state = np.array(np.broadcast_to(initial, shape[1:]), np.float64).reshape(-1)
    factors, terms = (np.broadcast_to(x, shape).reshape(shape[0], state.size) for x in (a, b))
    y = np.empty(terms.shape)
    recur(factors, terms, state, y)
    return y.reshape(shape)


def _check(types: MovementTypes, params: Params) -> None:
    b, *a = types.inputs
    initial, *held = types.operands
    ((number, made),) = types.outputs
    _need(len(a) + len(held) == 1 and not params and number == 0, "takes a, b and where to begin")
    fits = isinstance(made, ArrayType) and (made.space, made.row) == (b.space, b.row)
    _need(fits, f"makes an array like {b}, not {made}")
    _need(made.dtype.name in FLOATS, f"gives {' or '.join(FLOATS)}, not {made.dtype}")
    _need(not a or a[0].space == b.space, "needs a and b over one space")
    _need(_stretches(initial.row, b.row), f"begins with a value for each column, got {initial}")
    rows = [*(one.row for one in a), *(one.row for one in held)]
    _need(all(_stretches(row, b.row) for row in rows), "needs rows of a as those of b")


def _stretches(row: Row, to: Row) -> bool:
    return row in ((), (1,), to)


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise TypeError(what)


register(Movement(KIND, 2, _check))
