"""First pass: what the client can tell by itself gets its value, without a bit changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distvec.expr import Buffer, Graph, Node, topological
from ps_backend import ops


def simplify(graph: Graph, roots: Sequence[Node]) -> None:
    """Settle the nodes below ``roots`` that are known already or follow from known scalars."""
    for node in topological(roots, lambda n: n.value is not None):
        if node.value is None and node.space is None:
            value = _known_product(node) if node.is_reduction else _folded(node)
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
    """A scalar operation on scalars that the client knows."""
    values = [arg.value for arg in node.args]
    if any(value is None for value in values):
        return None
    with np.errstate(all="ignore"):
        return node.dtype.type(ops.TABLE[node.op].numpy(*values))


def product_of(node: Node) -> tuple[Node, Node] | None:
    """The two vectors whose inner product ``node`` is, if that is what it is."""
    if node.op != "sum" or not node.args or node.args[0].value is not None:
        return None
    factors = node.args[0]
    if factors.op == "multiply" and all(arg.space is not None for arg in factors.args):
        return factors.args[0], factors.args[1]
    return None
