"""What comes along with an evaluation because it reads nothing new."""

from __future__ import annotations

from collections.abc import Sequence

from distvec.graph.expr import Graph, Node
from distvec.planner.fuse import buffers
from distvec.planner.simplify import inner_of, product_of


def free_riders(goals: Sequence[Node], pending: Sequence[Node]) -> list[Node]:
    """Those ``pending`` nodes that are computed from no other vectors than the goals are."""
    missing = [node for node in pending if not node.known and node not in goals]
    if not missing:
        return []
    read = buffers(goals)
    return [node for node in missing if (needs := buffers([node])) and needs <= read]


def own_products(graph: Graph, order: Sequence[Node], stored: set[int]) -> list[Node]:
    """The squared norms of those vectors in ``stored`` that an inner product is taken of.

    They cost no traffic, and cosines, norms and step sizes ask for them next; the result is
    remembered with the buffer.
    """
    found = []
    for node in order:
        for factor in product_of(node, stored) or ():
            if id(factor) in stored and not factor.known:
                found.append(inner_of(graph, factor, factor))
    return list(dict.fromkeys(found))
