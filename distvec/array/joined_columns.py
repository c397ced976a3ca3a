"""``ufunc.at`` of tables that are split by columns: rows at indices, joined to others; lazy.

Each server has a part of every row, and so of those that are joined to it: nothing moves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array.core.handle import check_not_slice, check_session, is_broadcastable
from distvec.array.exchanged import flipped
from distvec.array.indexing.pull_push import addable
from distvec.graph import build
from ps_backend.program.row_ops import JOINS
from ps_backend.program.types import array_type


def join_rows(name: str, x: Any, where: npt.NDArray[np.int64], values: Any) -> None:
    """Let ``x``, split by columns, have ``values`` joined to its rows at ``where``, in their order.

    ``name``: of a ufunc of ``JOINS``; each index counts, also one that repeats. ``values``: what
    ``(len(where), k)`` is broadcast of, on the client or on the servers. In their order, so the
    bits are NumPy's.
    """
    if name == "subtract" and x.dtype == np.bool_:
        raise TypeError("numpy boolean subtract, the `-` operator, is not supported")
    check_not_slice(x.table)
    if not len(where):
        return
    table, given = x.table, _beside(x, where, values)
    with table.turn, table.session.holders.lock:
        graph = table.session.graph
        type = array_type(table.node.type.space, x.dtype, (len(where),))
        joined = build.broadcast_to(graph, given.node, type)
        places = graph.client_value(where, np.dtype(np.int64))
        params = (JOINS.index(name),)
        args = table.node, joined, places
        table.become(graph.make("scatter_columns", args, table.node.type, params))


def _beside(x: Any, where: npt.NDArray[np.int64], values: Any) -> Any:
    """``values`` in the dtype of ``x``, with their axes exchanged: a column for each index.

    ``ValueError`` where the shape does not fit, ``TypeError`` where NumPy refuses the cast.
    """
    table = x.table
    on_servers = hasattr(values, "session")
    given = flipped(values if on_servers else addable(x, where, values))
    if not on_servers:
        if given.ndim and len(given) == len(table) > 1:
            return table.session.array(given)
        row = given.ravel() if given.ndim else given
        return table.like(table.session.graph.client_value(row, x.dtype))
    check_session(table.session, given, "values")
    shape = len(table), len(where)
    if not is_broadcastable(values.shape, shape[::-1]):
        raise ValueError(f"{len(where)} indices but values of shape {values.shape}")
    if not np.can_cast(given.dtype, x.dtype, "same_kind"):
        raise TypeError(f"Cannot cast values from {given.dtype!r} to {x.dtype!r}; use astype")
    return given.astype(x.dtype)
