"""The table of row ops: steps that look at whole rows, or make rows of another shape.

The other steps, those of the op table, are elementwise. To add a row op, add a row to the ``ROWS``
of its family and nothing else; a program that has one of its own gives it to ``register``. The
reductions along each row (``row_sum``, ...) come from the table of reductions.
"""

from __future__ import annotations

from ps_backend.program import ops
from ps_backend.program.row_ops import along_rows, held, indices, products, shapes
from ps_backend.program.row_ops.row_op import Params, Place, RowOp, Values, width
from ps_backend.program.types import ValueType

__all__ = ["FAMILIES", "TABLE", "Params", "Place", "RowOp", "Values", "fits", "register", "width"]

FAMILIES = (shapes, products, along_rows, held, indices)

# What this process knows: a state of the process for the reason that ``ops`` gives.
TABLE: dict[str, RowOp] = {}


def register(row: RowOp) -> None:
    """Add a row op. The processes of the servers that are to run it need it as well.

    ``ValueError`` if there is one of that name.
    """
    if row.name in TABLE or row.name in ops.TABLE:
        raise ValueError(f"there is an op {row.name!r} already; give the new one another name")
    TABLE[row.name] = row


for _family in FAMILIES:
    for _row in _family.ROWS:
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
