"""Programs whose answers are not here yet, and how they are taken back.

A program that nobody waits for gives its nodes their buffers as it leaves, so that the graph does
not grow meanwhile. Should it fail, they are pending again, with what they were computed from: it
was not asked for, so its failure is nobody's error, and whoever asks for such a node hears of it.
"""

from __future__ import annotations

import threading

from distvec.graph.expr import Graph, Memento, Node


class Flight:
    """One request under way, and the nodes that have values already which it is to make."""

    __slots__ = ("_before", "_failed", "_landed", "sending")

    def __init__(self) -> None:
        self.sending = threading.RLock()
        """Held by the thread that sends the request and waits, for others that want its nodes."""
        self._landed = False
        self._failed = False
        self._before: list[tuple[Node, Memento]] = []

    def end(self, error: Exception | None) -> None:
        """It was answered. Called by whichever thread waits for the answer."""
        self._failed, self._landed = error is not None, True
        if error is None:
            self._before.clear()  # now, so that what they were computed from is freed

    def remember(self, node: Node, memento: Memento) -> None:
        """``node``, which gets its value now, is to be so again if the request fails."""
        self._before.append((node, memento))

    def mementos(self) -> list[Memento]:
        """What its nodes become if it fails."""
        return [memento for _, memento in list(self._before)]

    def take_back(self, graph: Graph) -> list[Node]:
        """If it failed, or never left, make its nodes what they were; returns these."""
        if self._landed and not self._failed:
            self._before.clear()
        nodes = []
        while self._before:
            node, memento = self._before.pop()
            graph.restore(node, memento)
            nodes.append(node)
        return nodes
