"""What needs no sweep of its own: values that the client can tell by itself, and what comes along
with an evaluation because it reads nothing new. No bit changes.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from distvec.graph.host_eval import value_of
from distvec.graph.node import MOVEMENT, Buffer, Graph, Node
from distvec.planner.toposort import Walk, find_read_whole
from ps_backend.program.reducers import REDUCERS

_DOUBLE, _SINGLE = np.dtype(np.float64), np.dtype(np.float32)


def simplify(graph: Graph, node: Node) -> None:
    """Settle ``node``, which the client keeps, if its value is known or follows from known ones."""
    value = _known_product(node) if node.op in REDUCERS else _fold(node)
    if value is not None:
        graph.settle(node, value, None)


def _known_product(node: Node) -> Any:
    """An inner product of two buffers that was computed before: buffers never change."""
    factors = product_of(node)
    if factors is None:
        return None
    a, b = factors[0].value, factors[1].value
    return a.products.get(b.id) if isinstance(a, Buffer) and isinstance(b, Buffer) else None


def _fold(node: Node) -> Any:
    """An operation of the client on what it knows."""
    if not all(arg.on_client and arg.known for arg in node.args):
        return None
    return value_of(node.op, node.params, node.type, [arg.value for arg in node.args])


def product_of(node: Node, stored: Set[int] = frozenset()) -> tuple[Node, Node] | None:
    """The two vectors whose inner product ``node`` is, if that is what it is.

    float32 vectors are seen through the cast that widens them, which changes no value, unless the
    widened ones, by their ids, are ``stored`` themselves. A sum of products that were rounded to
    float32, or wrapped to int32, is no inner product.
    """
    if node.op != "sum" or node.params or not node.args or node.args[0].value is not None:
        return None
    factors = node.args[0]
    if factors.op != "multiply" or factors.dtype != node.dtype:
        return None
    a, b = factors.args
    if a.on_client or b.on_client or a.type.row != b.type.row:
        return None
    return a if id(a) in stored else _narrow(a), b if id(b) in stored else _narrow(b)


def inner_of(graph: Graph, a: Node, b: Node) -> Node:
    """The node of the inner product of two vectors, in float64 (in int64 for those of int64)."""
    return graph.inner(_widen(graph, a), _widen(graph, b))


def _narrow(factor: Node) -> Node:
    """The float32 vector that ``factor`` is in float64; else itself."""
    widens = factor.op == "cast" and not factor.known and factor.dtype == _DOUBLE
    return factor.args[0] if widens and factor.args[0].dtype == _SINGLE else factor


def _widen(graph: Graph, vector: Node) -> Node:
    if vector.dtype != _SINGLE:
        return vector
    return graph.make("cast", (vector,), vector.type.of(_DOUBLE))


def free_riders(walk: Walk, goals: Sequence[Node], pending: Sequence[Node]) -> list[Node]:
    """Those ``pending`` nodes that are computed from no other vectors than the goals are.

    They join the goals in ``walk``.
    """
    missing = [node for node in pending if node.value is None and node not in goals]
    if not missing:
        return []
    below = walk.below(goals)
    whole = find_read_whole(below, {id(goal) for goal in goals})
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
