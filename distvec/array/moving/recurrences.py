"""Linear recurrences along axis 0, of which most filters and averages over time are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distvec.array.by_columns import ByColumns
from distvec.array.handle import check_session
from distvec.array.moving.core import move
from distvec.array.operators import Arithmetic, operand_node
from distvec.graph import build
from distvec.graph.node import Graph, Node
from ps_backend.program import recurrences
from ps_backend.program.types import FLOATS, Row, array_type, client_type

_FLOAT = np.dtype(np.float64)


def linear_recurrence(a: Any, b: Any, initial: Any = 0.0) -> Any:
    """``y[t] = a[t] * y[t - 1] + b[t]`` along axis 0, with ``y[-1] = initial``; lazy.

    ``a`` and ``b`` are broadcast: vectors or tables, one of them may be a number, or a row for all
    ``t`` of a table. ``initial`` is a number, or one for each column. The result is in the dtype of
    the floats among them, else float64; it is computed in float64. Of NumPy's arrays alone it is
    NumPy's, so that an algorithm runs on either.

    On the servers a movement of two phases: two messages to each, 8 bytes for each border of blocks
    and column between them, 24 where ``a`` differs from row to row. Each block is computed row by
    row, from what the blocks before lead to: the same bits on any number of servers, and those of
    the loop for 1024 rows and less.

    ``ValueError`` for shapes that do not fit, ``TypeError`` for long arrays of the client beside
    those of the servers, or tables that are split by columns.
    """
    given = (a, b, initial)
    if any(isinstance(one, ByColumns) for one in given):
        raise TypeError(
            "linear_recurrence: a table that is split by columns; put it there by rows, as in "
            "session.array(x.numpy())"
        )
    like = next((one for one in given if isinstance(one, Arithmetic)), None)
    if like is None:
        return _of_numpy(*given)
    for one in given:
        if isinstance(one, Arithmetic):
            check_session(like.session, one, "linear_recurrence")
    made = [one.made() if isinstance(one, Arithmetic) else one for one in given]
    dtype = _dtype_of(made)
    _check(*map(np.shape, made))
    like = max((one for one in made if isinstance(one, Arithmetic)), key=lambda one: one.ndim)
    graph = like.session.graph
    with like.session.holders.lock:
        factor, term, start = (_node(like, one) for one in made)
        space, shape = build.common_shape([factor, term])
        if space is None:
            type = client_type(_FLOAT, shape)
            args = factor, term, build.collect(graph, start)
            found = build.on_client(graph, "client.recurrence", args, type)
            return like.like(build.cast(graph, found, dtype))
        made_type = array_type(space, dtype if dtype.name in FLOATS else _FLOAT, shape[1:])
        factor, term = (_as_float(graph, one) for one in (factor, term))
        term = build.broadcast_to(graph, term, made_type.of(term.dtype))
        factor = build.fit(graph, factor, space, shape)
        start = build.cast(graph, build.collect(graph, start), _FLOAT)
        inputs, operands = [like.like(term)], [like.like(start)]
        (operands if factor.on_client else inputs).append(like.like(factor))
    (result,) = move(recurrences.KIND, inputs, operands, [made_type])
    return result if result.dtype == dtype else result.astype(dtype)


def _as_float(graph: Graph, node: Node) -> Node:
    return node if node.dtype.name in FLOATS else build.cast(graph, node, _FLOAT)


def _of_numpy(a: Any, b: Any, initial: Any) -> np.ndarray:
    dtype = _dtype_of((a, b, initial))
    given = [np.asarray(one, np.float64) for one in (a, b, initial)]
    _check(*map(np.shape, given))
    return recurrences.of_arrays(*given).astype(dtype)


def _dtype_of(given: Sequence[Any]) -> np.dtype[Any]:
    """That of the floats among them, else float64."""
    kinds = [one.dtype if hasattr(one, "dtype") else one for one in given]
    arrays = [np.asarray(one).dtype if isinstance(one, list | tuple) else one for one in kinds]
    found = np.result_type(*arrays)
    return found if found.kind == "f" else _FLOAT


def _check(a: Row, b: Row, initial: Row) -> None:
    """``ValueError`` unless the shapes fit."""
    shape = np.broadcast_shapes(a, b)
    if not shape:
        raise ValueError("linear_recurrence: a or b must be an array, along whose axis 0 it goes")
    if initial not in ((), (1,), shape[1:]):
        raise ValueError(
            f"linear_recurrence: initial is a number, or of shape {shape[1:]}: one for each "
            f"column; got {initial}"
        )


def _node(like: Arithmetic, operand: Any) -> Node:
    """An operand as a node; what is NumPy's and small travels along."""
    given = np.asarray(operand) if isinstance(operand, list | tuple) else operand
    node = operand_node(like, "linear_recurrence", given)
    if isinstance(node, Node):
        return node
    return like.session.graph.constant(node, np.result_type(given))
