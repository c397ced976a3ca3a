"""The graph walked once: its nodes in one list, and how many answers must come before each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set

from distvec.graph.node import MOVEMENT, MOVES, Node, phases_of
from ps_backend.program.reducers import REDUCERS


class Walk:
    """Nodes below all roots that were added, arguments first.

    The *level* of a node is the number of answers from the servers that must be known before it can
    be computed: a reduction is one level above its argument, what reads a pending array at other
    slots one level above that, and a node with a value is at level 0.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.levels: dict[int, int] = {}
        """By id of the node; ``nodes`` keeps what these ids name alive."""
        self._done: set[int] = set()

    def add(self, roots: Iterable[Node], visit: Callable[[Node], None] | None = None) -> None:
        """Append what is below ``roots`` and not there yet; ``visit`` may settle each scalar first.

        Nothing below a node with a value is entered.
        """
        done = self._done
        for root in roots:
            stack = [root]  # no recursion, so a chain may be of any depth
            while stack:
                node = stack[-1]
                if id(node) in done:
                    stack.pop()
                    continue
                if node.value is None:
                    for arg in reversed(node.args):
                        if id(arg) not in done:
                            stack.append(arg)
                    if stack[-1] is not node:
                        continue
                    if visit is not None and node.on_client:
                        visit(node)
                stack.pop()
                done.add(id(node))
                self._append(node)

    def _append(self, node: Node) -> None:
        levels, level = self.levels, 0
        if node.value is None and node.args:
            level = max([levels[id(arg)] for arg in node.args])
            if node.op in REDUCERS:
                level += 1
            elif node.op in MOVES:
                level = max([levels[id(arg)] + (arg.value is None) for arg in node.args])
            elif node.op == MOVEMENT:
                level = self._end_of(node)
        levels[id(node)] = level
        self.nodes.append(node)

    def _end_of(self, node: Node) -> int:
        """The level of the last phase of a movement, or of its answer.

        The first of several phases may run beside the sweep that computes its arguments, as it asks
        no other server for them.
        """
        phases, waits = phases_of(node), phases_of(node) == 1
        begin = max(
            self.levels[id(arg)] + (waits and arg.value is None and not arg.on_client)
            for arg in node.args
        )
        return begin + phases - 1 + node.on_client

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


def find_read_whole(order: Sequence[Node], goals: Set[int]) -> set[int]:
    """Ids of the arrays of ``order`` (arguments first) that are needed as a whole.

    Not those of which only single elements are taken.
    """
    found = {id(node) for node in order if id(node) in goals}
    for node in reversed(order):
        if node.value is None and node.op != "take" and (node.on_client or id(node) in found):
            found.update(map(id, node.args))
    return found
