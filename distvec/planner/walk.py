"""The graph walked once: its nodes in one list, and how many answers must come before each."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from distvec.graph.expr import Node, topological


class Walk:
    """Nodes below all roots that were added, arguments first.

    The *level* of a node is the number of answers from the servers that must be known before it can
    be computed: a reduction is one level above its argument, a node with a value is at level 0.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.levels: dict[int, int] = {}
        """By id of the node; ``nodes`` keeps what these ids name alive."""
        self._done: set[int] = set()

    def add(self, roots: Iterable[Node], visit: Callable[[Node], None] | None = None) -> None:
        """Append what is below ``roots`` and not there yet; ``visit`` may settle each node first.

        Nothing below a node with a value is entered.
        """
        levels = self.levels
        for node in topological(roots, is_known, self._done):
            if visit is not None:
                visit(node)
            level = 0
            if node.value is None and node.args:
                level = max([levels[id(arg)] for arg in node.args]) + node.is_reduction
            levels[id(node)] = level
            self.nodes.append(node)

    def level(self, node: Node) -> int:
        """The level of ``node``, which is added if it is not there."""
        if id(node) not in self.levels:
            self.add((node,))
        return self.levels[id(node)]

    def forget(self, nodes: int) -> None:
        """Keep only the first so many ``nodes``."""
        for node in self.nodes[nodes:]:
            del self.levels[id(node)]
            self._done.discard(id(node))
        del self.nodes[nodes:]

    def below(self, roots: Iterable[Node]) -> list[Node]:
        """Those nodes that ``roots``, which are among them, are still computed from."""
        needed = {id(root) for root in roots}
        for node in reversed(self.nodes):
            if node.value is None and id(node) in needed:
                needed.update(map(id, node.args))
        return [node for node in self.nodes if id(node) in needed]


def is_known(node: Node) -> bool:
    """Whether it has its value; what it was computed from does not matter any more."""
    return node.value is not None
