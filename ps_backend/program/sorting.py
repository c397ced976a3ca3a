"""The movements that put elements in order: sorts, and order statistics.

A sort makes a *run* of each server's part, sorted, and merges the runs: each server knows from
samples of them what it must fetch of each.
"""

from __future__ import annotations

from ps_backend.program.movements import Movement, MovementTypes, Params, register
from ps_backend.program.types import ArrayType, ClientType

SORT = "sort"
"""The elements of an array, of each column of a table, in order: the first so many.

Outputs: 0, the elements; 1, their indices, equal ones in their order; 2, whether each differs from
the one before. Parameters: 1 for descending; 1 if -0.0 and 0.0 are equal, and come out as 0.0.
"""
VALUES, ORDER, STARTS = 0, 1, 2

ORDER_STATISTICS = "order_statistics"
"""The elements of an array, of each column of a table, that a sort would put at some ranks.

Operand: the ranks, int64, ``(count, 1)`` or ``(count, columns)``. Output: the elements, for the
client.
"""


def _check_sort(types: MovementTypes, params: Params) -> None:
    (source,) = types.inputs
    if types.operands or len(params) != 2 or not {*params} <= {0, 1}:
        raise TypeError("takes one array, whether to descend, and whether zeros are equal")
    lengths = set()
    for number, made in types.outputs:
        dtypes = {VALUES: source.dtype.name, ORDER: "int64", STARTS: "bool"}
        if not isinstance(made, ArrayType) or made.row != source.row:
            raise TypeError(f"makes arrays with rows as those of {source}, not {made}")
        if made.dtype.name != dtypes.get(number):
            raise TypeError(f"makes no {made.dtype} as output {number}")
        lengths.add(made.space)
    if len(lengths) != 1 or not 0 < lengths.pop().length <= source.space.length:
        raise ValueError(f"makes arrays of one length, at most that of {source}")


def _check_order_statistics(types: MovementTypes, params: Params) -> None:
    (source,), (ranks,), ((number, made),) = types.inputs, types.operands, types.outputs
    if params or number or ranks.dtype != "int64" or len(ranks.row) != 2:
        raise TypeError("takes one array, and a table of ranks")
    count, columns = ranks.row
    if columns not in (1, source.width):
        raise ValueError(f"needs ranks for 1 or {source.width} columns, got {columns}")
    shape = (count, *source.row)
    if not isinstance(made, ClientType) or (made.dtype, made.shape) != (source.dtype, shape):
        raise TypeError(f"gives {source.dtype} values of shape {shape}, not {made}")


register(Movement(SORT, 2, _check_sort))
register(Movement(ORDER_STATISTICS, 2, _check_order_statistics))
