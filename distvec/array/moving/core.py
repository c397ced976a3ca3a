"""What the functions of this room have in common: how a movement is added to the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distvec.array.operators import Arithmetic
from distvec.graph import view_nodes
from distvec.graph.node import Node
from ps_backend.program.movements import TABLE
from ps_backend.program.types import ArrayType, NodeType


def move(
    kind: str,
    arrays: Sequence[Any],
    operands: Sequence[Any],
    types: Sequence[NodeType],
    params: Sequence[int] = (),
) -> list[Any]:
    """The outputs, of ``types``, of the movement ``kind``; lazy.

    ``arrays`` are on the servers; ``operands``, small arrays, are kept by the client or are those
    of NumPy. Outputs that nobody holds when the others are computed are not made. One message for
    each phase; one for all of them where a single server has the arrays, since they are short.
    """
    like = arrays[0]
    made = [array.made() for array in arrays]  # what a mask selects is put together first
    count = like.session.client.servers
    given = [array.node.type for array in made]
    holders = {
        server
        for type in (*given, *types)
        if isinstance(type, ArrayType)
        for server in type.space.holders(count)
    }
    phases = 1 if len(holders) == 1 else TABLE[kind].phases
    with like.session.holders.lock:
        graph = like.session.graph
        held = [_operand(like, operand) for operand in operands]
        args = [*(array.node for array in made), *held]
        return [
            like.like(view_nodes.movement(graph, kind, number, args, type, phases, params))
            for number, type in enumerate(types)
        ]


def _operand(like: Arithmetic, operand: Any) -> Node:
    if isinstance(operand, Arithmetic):
        return operand.node
    values = np.asarray(operand)
    return like.session.graph.client_value(values, values.dtype)
