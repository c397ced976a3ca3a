"""Nodes that read an array at other slots than their own: slices, what is assigned to slices, and
what index arrays name.

Servers fetch what they need of the array from each other, while they run the sweep that reads it:
so it must be stored before. (Through cheap expressions the planner moves the reading down to what
these are computed from.)
"""

from __future__ import annotations

from distvec.graph.expr import Graph, Node
from ps_backend.program.spaces import Space
from ps_backend.program.types import array_type

VIEW, SPREAD, GATHER = "view", "spread", "gather"
MOVES = frozenset((VIEW, SPREAD, GATHER))
"""The ops of such nodes."""


def view(graph: Graph, source: Node, space: Space, start: int, step: int) -> Node:
    """Slot ``i`` of ``space`` is slot ``start + step * i`` of ``source``."""
    type = array_type(space, source.dtype, source.type.row)
    return graph.make(VIEW, (source,), type, (start, step))


def spread(graph: Graph, source: Node, space: Space, start: int, step: int) -> Node:
    """Slot ``start + step * j`` of ``space`` is slot ``j`` of ``source``; others are undefined."""
    type = array_type(space, source.dtype, source.type.row)
    return graph.make(SPREAD, (source,), type, (start, step))


def gather(graph: Graph, source: Node, index: Node) -> Node:
    """Slot ``i`` of the space of ``index``, of int64, is slot ``index[i]`` of ``source``."""
    type = array_type(index.type.space, source.dtype, source.type.row)
    return graph.make(GATHER, (source, index), type)
