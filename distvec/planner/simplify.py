"""First pass: rewrites that keep every bit of every result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distvec.expr import Buffer, Graph, Node, topological

Rule = Callable[[Graph, Node], Node | None]


def simplify(graph: Graph, roots: Sequence[Node]) -> dict[int, Node]:
    """The equivalent of every node below ``roots``, by its id; rules apply from the leaves up."""
    new: dict[int, Node] = {}
    for node in topological(roots, lambda n: n.known):
        if node.known:
            new[id(node)] = node
            continue
        args = tuple([new[id(arg)] for arg in node.args])
        rebuilt = node if args == node.args else graph.make(node.op, args, node.dtype, node.space)
        rule = None if rebuilt.known else RULES.get(rebuilt.op)
        new[id(node)] = (rule(graph, rebuilt) if rule else None) or rebuilt
    return new


def _negation_of_negation(graph: Graph, node: Node) -> Node | None:
    return node.args[0].args[0] if node.args[0].op == "negative" else None


def known_product(graph: Graph, node: Node) -> Node | None:
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


RULES: dict[str, Rule] = {"negative": _negation_of_negation, "sum": known_product}
"""A rewrite for nodes of one op, or None where it does not apply."""
