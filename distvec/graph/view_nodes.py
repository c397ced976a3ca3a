"""Nodes that read an array at other slots than their own: slices, what is assigned to slices, and
what index arrays name. Nodes that servers compute in phases, as elements change place.

For a view servers fetch what they need of the array from each other, while they run the sweep that
reads it: so it must be stored before. (Through cheap expressions the planner moves the reading down
to what these are computed from.)
"""

from __future__ import annotations

from collections.abc import Sequence

from distvec.graph.node import Graph, Node
from ps_backend.program.spaces import Space
from ps_backend.program.types import NodeType, array_type

VIEW, SPREAD, GATHER = "view", "spread", "gather"
MOVES = frozenset((VIEW, SPREAD, GATHER))
"""The ops of such nodes."""

MOVEMENT = "movement"
"""The op of what a movement makes: see ``ps_backend.program.collectives``."""


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


def movement(
    graph: Graph,
    kind: str,
    number: int,
    args: Sequence[Node],
    type: NodeType,
    phases: int,
    params: Sequence[int] = (),
) -> Node:
    """Output ``number`` of a movement of ``args``: arrays, then what the client holds.

    It takes so many ``phases``: one where a single server has all of the arrays.
    """
    return graph.make(MOVEMENT, tuple(args), type, (kind, number, phases, *params))


def phases_of(node: Node) -> int:
    """In how many phases a movement is computed."""
    phases: int = node.params[2]
    return phases


def params_of(node: Node) -> tuple[int, ...]:
    """The integers that a movement takes."""
    return node.params[3:]


def first_level(node: Node, level: int) -> int:
    """The level of the first phase of a movement, which is itself of ``level``."""
    return level - node.on_client - (phases_of(node) - 1)


def movement_key(node: Node) -> tuple[object, ...]:
    """What the outputs of one movement have in common."""
    kind, _, *others = node.params
    return kind, tuple(others), *map(id, node.args)
