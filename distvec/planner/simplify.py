"""First pass: rewrites that keep every bit of every result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distvec.expr import Buffer, Graph, Node, topological

Rule = Callable[[Graph, Node], Node | None]


def simplify(graph: Graph, roots: Sequence[Node]) -> list[Node]:
    """Equivalent nodes for ``roots``: every rule of ``RULES`` applied from the leaves up."""
    new: dict[int, Node] = {}
    for node in topological(roots, lambda n: n.known):
        rebuilt = node
        if not node.known and any(new[id(arg)] is not arg for arg in node.args):
            rebuilt = graph.make(
                node.op, tuple(new[id(arg)] for arg in node.args), node.dtype, node.space
            )
        if not rebuilt.known:
            for rule in RULES:
                better = rule(graph, rebuilt)
                if better is not None:
                    rebuilt = better
                    break
        new[id(node)] = rebuilt
    return [new[id(root)] for root in roots]


def _negation_of_negation(graph: Graph, node: Node) -> Node | None:
    if node.op == "negative" and node.args[0].op == "negative":
        return node.args[0].args[0]
    return None


def _known_product(graph: Graph, node: Node) -> Node | None:
    """An inner product of two buffers that was computed before: buffers never change."""
    factors = product_of(node)
    if factors is None:
        return None
    a, b = (factor.value for factor in factors)
    if isinstance(a, Buffer) and isinstance(b, Buffer) and b.id in a.products:
        return graph.constant(a.products[b.id], node.dtype)
    return None


def product_of(node: Node) -> tuple[Node, Node] | None:
    """The two vectors whose inner product ``node`` is, if that is what it is."""
    if node.op != "sum" or not node.args or node.args[0].known:
        return None
    factors = node.args[0]
    if factors.op == "multiply" and all(arg.space is not None for arg in factors.args):
        return factors.args[0], factors.args[1]
    return None


RULES: tuple[Rule, ...] = (_negation_of_negation, _known_product)
