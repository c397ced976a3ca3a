"""The head of an expression: the operations next to its result, as one line."""

from __future__ import annotations

from distvec.graph.expr import Node

_DEPTH = 4
_MOST_NODES = 16
_LEFT_OUT = "..."


def head(node: Node) -> str:
    """``add(multiply(x0, 2.0), x1)``: arrays that are stored have a name each, numbers are shown.

    Below some depth, or beyond some operations, there are dots.
    """
    return _Writer().text(node, _DEPTH)


class _Writer:
    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._left = _MOST_NODES

    def text(self, node: Node, depth: int) -> str:
        """``node``, and so many operations below it."""
        if node.known:
            return str(node.value) if node.type.shape == () else self._name(node)
        if not node.args:
            return f"{node.op}()"
        self._left -= 1
        if not depth or self._left < 0:
            return _LEFT_OUT
        return f"{node.op}({', '.join(self.text(arg, depth - 1) for arg in node.args)})"

    def _name(self, node: Node) -> str:
        return self._names.setdefault(id(node), f"x{len(self._names)}")
