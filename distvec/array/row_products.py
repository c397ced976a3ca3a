"""Inner products of chosen rows of two tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from distvec.array.by_columns import ByColumns
from distvec.array.handle import Handle, check_session
from distvec.array.indexing import as_indices


def row_dot(x: Any, i: Any, y: Any, j: Any) -> Any:
    """``x[i[t]] @ y[j[t]]`` for each t: inner products of rows of two tables, shape ``(m,)``; lazy.

        scores = dv.row_dot(words, centres, contexts, others)

    ``i``, ``j``: vectors of m integers on the client, negative ones from the end, repeats allowed.
    It is ``numpy.vecdot(x[i], y[j])``. Of two tables that are split by columns no row travels: each
    server has a part of every row, and sends m sums for some of its blocks of columns. Of tables
    that are split by rows, the servers that hold ``y[j]`` send these rows to others. One message to
    each server, and the same bits on any number of them. ``TypeError`` where one table is split by
    rows and one by columns.
    """
    for one in (x, y):
        if not isinstance(one, Handle | ByColumns) or one.ndim != 2:
            raise TypeError(
                f"row_dot: needs two tables on the servers, got {type(one).__name__}; "
                f"put it there with session.array(...)"
            )
    check_session(x.session, y.table if isinstance(y, ByColumns) else y, "row_dot")
    if isinstance(x, ByColumns) is not isinstance(y, ByColumns):
        raise TypeError(
            "row_dot: one table is split by rows, and one by columns; make both by the same space"
        )
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"row_dot: rows of {x.shape[1]} and of {y.shape[1]} elements")
    rows, others = as_indices(i, len(x)), as_indices(j, len(y))
    if len(rows) != len(others):
        raise ValueError(f"row_dot: {len(rows)} indices of x, and {len(others)} of y")
    if not len(rows):
        return x.session.array(np.empty(0, np.result_type(x.dtype, y.dtype)))
    return np.vecdot(x[rows], y[others])
