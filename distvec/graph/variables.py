"""Nodes that stand for the arguments of a function that is being differentiated.

While the function runs they have no value, so that whatever it returns still has its graph. Then
what was made of them is made of the arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from distvec.graph.expr import Graph, Node, topological

VARIABLE = "variable"
"""The op of such nodes."""


class NotDifferentiable(TypeError):
    """A function uses an operation without a derivative, or reads values of its argument."""


def variable(graph: Graph, argument: Node) -> Node:
    """A node of the type of ``argument`` that has no value yet."""
    node = graph.placeholder(VARIABLE, argument.type)
    node.depth = argument.depth
    return node


def conclude(variable: Node, argument: Node) -> None:
    """Let ``variable`` be ``argument``: somebody may have kept what was made of it."""
    variable.op, variable.args = "copy", (argument,)
    variable.depth = argument.depth + 1


def depending(roots: Iterable[Node], on: Sequence[Node] | None = None) -> list[Node]:
    """The nodes below ``roots`` that depend on variables, or on those of ``on``; arguments first.

    Not entered is what has a value.
    """
    wanted = None if on is None else {id(one) for one in on}
    found: list[Node] = []
    among: set[int] = set()
    for node in topological(roots, lambda node: node.value is not None):
        is_one = node.op == VARIABLE if wanted is None else id(node) in wanted
        if is_one or (node.value is None and any(id(arg) in among for arg in node.args)):
            among.add(id(node))
            found.append(node)
    return found


def substituted(graph: Graph, roots: Sequence[Node], instead: Mapping[Node, Node]) -> list[Node]:
    """``roots`` made of other nodes, where they are made of the keys of ``instead``."""
    new = {id(old): node for old, node in instead.items()}
    for node in depending(roots, list(instead)):
        if id(node) not in new:
            args = tuple([new.get(id(arg), arg) for arg in node.args])
            made = new[id(node)] = graph.make(node.op, args, node.type, node.params)
            if node in graph.still:
                graph.still.add(made)
    return [new.get(id(root), root) for root in roots]


def refuse_variables(roots: Sequence[Node]) -> None:
    """``NotDifferentiable`` if ``roots`` depend on a variable: they have no values yet."""
    if depending(roots):
        raise NotDifferentiable(
            "a value is needed, within a function that is being differentiated, of what depends on "
            "its argument; read or tested, as by float(), .item(), .numpy(), persist() or if, it "
            "would lose its graph. Write distvec.where(condition, x, y) for a condition, "
            "distvec.where(mask, x, 0) for the elements x[mask]; or return the array and read it "
            "after the call: value_and_grad(f, has_aux=True)"
        )
