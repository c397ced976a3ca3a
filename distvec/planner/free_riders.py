"""What comes along with an evaluation because it reads nothing new."""

from __future__ import annotations

from collections.abc import Sequence

from distvec.graph.expr import Graph, Node
from distvec.graph.moves import MOVEMENT
from distvec.planner.simplify import inner_of, product_of
from distvec.planner.walk import Walk, in_full


def free_riders(walk: Walk, goals: Sequence[Node], pending: Sequence[Node]) -> list[Node]:
    """Those ``pending`` nodes that are computed from no other vectors than the goals are.

    They join the goals in ``walk``.
    """
    missing = [node for node in pending if node.value is None and node not in goals]
    if not missing:
        return []
    below = walk.below(goals)
    whole = in_full(below, {id(goal) for goal in goals})
    stored = [node for node in below if node.value is not None and not node.on_client]
    reads = {id(node): _READS if id(node) in whole else _READS_MORE for node in stored}
    reads |= {id(node): _READS for node in below if node.op == MOVEMENT and node.value is None}
    _follow(walk.nodes, reads)
    riders = []
    for node in missing:
        before = len(walk.nodes)
        walk.add((node,))
        _follow(walk.nodes[before:], reads)
        if reads[id(node)] == _READS:
            riders.append(node)
        else:
            walk.forget(before)
    return riders


_NOTHING, _READS, _READS_MORE = range(3)
"""What a node is computed from: no stored vector, some that the goals read too, others."""


def _follow(nodes: Sequence[Node], reads: dict[int, int]) -> None:
    """Add to ``reads``, by id, what is true of ``nodes`` (arguments first)."""
    for node in nodes:
        if node.op == MOVEMENT:
            reads.setdefault(id(node), _READS_MORE)
        elif node.value is None:
            reads[id(node)] = max([reads[id(arg)] for arg in node.args], default=_NOTHING)
        elif id(node) not in reads:
            reads[id(node)] = _NOTHING if node.on_client else _READS_MORE


def own_products(graph: Graph, order: Sequence[Node], stored: set[int]) -> list[Node]:
    """The squared norms of those vectors in ``stored`` that an inner product is taken of.

    They cost no traffic, and cosines, norms and step sizes ask for them next; the result is
    remembered with the buffer.
    """
    found = []
    for node in order:
        for factor in (product_of(node, stored) or ()) if node.op == "sum" else ():
            if id(factor) in stored and factor.value is None:
                found.append(inner_of(graph, factor, factor))
    return list(dict.fromkeys(found))
