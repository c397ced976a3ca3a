"""What the client can tell by itself gets its value, without a bit changed."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np

from distvec.graph.client_values import value_of
from distvec.graph.expr import Buffer, Graph, Node
from ps_backend.program.reducers import REDUCERS

_DOUBLE, _SINGLE = np.dtype(np.float64), np.dtype(np.float32)


def simplify(graph: Graph, node: Node) -> None:
    """Settle ``node``, which the client keeps, if its value is known or follows from known ones."""
    value = _known_product(node) if node.op in REDUCERS else _folded(node)
    if value is not None:
        graph.settle(node, value, None)


def _known_product(node: Node) -> Any:
    """An inner product of two buffers that was computed before: buffers never change."""
    factors = product_of(node)
    if factors is None:
        return None
    a, b = factors[0].value, factors[1].value
    return a.products.get(b.id) if isinstance(a, Buffer) and isinstance(b, Buffer) else None


def _folded(node: Node) -> Any:
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
    return graph.inner(_widened(graph, a), _widened(graph, b))


def _narrow(factor: Node) -> Node:
    """The float32 vector that ``factor`` is in float64; else itself."""
    widens = factor.op == "cast" and not factor.known and factor.dtype == _DOUBLE
    return factor.args[0] if widens and factor.args[0].dtype == _SINGLE else factor


def _widened(graph: Graph, vector: Node) -> Node:
    if vector.dtype != _SINGLE:
        return vector
    return graph.make("cast", (vector,), vector.type.of(_DOUBLE))
