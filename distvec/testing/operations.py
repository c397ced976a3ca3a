"""What programs and tests of one operation are made of: the op table, and reductions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ps_backend.program import ops
from ps_backend.program.reducers import PUBLIC

_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "pow": operator.pow,
    "negative": operator.neg,
    "positive": operator.pos,
    "abs": operator.abs,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}


@dataclass(frozen=True)
class Operation:
    """A function that is typed alike on NumPy arrays and on distributed ones."""

    name: str
    arity: int
    function: Callable[..., Any]
    ulps: int = 0
    """How far the elements may be from NumPy's; 0 where they have NumPy's bits."""

    def __call__(self, *operands: Any) -> Any:
        """The function of ``operands``."""
        return self.function(*operands)

    def __repr__(self) -> str:
        return self.name


def _where(condition: Any, x: Any, y: Any) -> Any:
    return np.where(condition != 0, x, y)


def _of_row(row: ops.Op) -> Operation:
    function = _OPERATORS.get(row.name, row.numpy)
    return Operation(row.name, row.arity, function, row.ulps)


ELEMENTWISE = (
    *map(_of_row, ops.PUBLIC.values()),
    Operation("where", 3, _where),
)
"""Every row of the op table that users call, as an operator where there is one."""

REDUCTIONS = (
    *(Operation(name, 1, getattr(np, name)) for name in PUBLIC),
    Operation("mean", 1, np.mean),
    Operation("count_nonzero", 1, np.count_nonzero),
    Operation("var", 1, np.var),
    Operation("ptp", 1, np.ptp),
    Operation("dot", 2, operator.matmul),
    Operation("norm", 1, np.linalg.norm),
)
"""From vectors to scalars."""
