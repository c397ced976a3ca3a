"""Graphs that no pass rewrites: one walk finds that out.

Many evaluations are such: a few operations on stored arrays, a dot product, a step of an update.
"""

from __future__ import annotations

from collections.abc import Sequence

from distvec.graph.node import Graph, Node
from distvec.graph.view_nodes import MOVEMENT, MOVES
from distvec.planner.simplify import simplify
from ps_backend.program.reducers import REDUCERS

_REWRITTEN = MOVES | {MOVEMENT}
_MOST = 64
"""Nodes. Where there are more, it is not the passes that take long."""


def plain_order(
    graph: Graph, targets: Sequence[Node], pending: Sequence[Node]
) -> list[Node] | None:
    """The nodes below ``targets``, arguments first, if the programs follow from them as they are.

    None where a pass might do something: views, movements, a reduction that waits for another one,
    values that the client knows or can compute, ``pending`` arrays besides the targets, and inner
    products beside stored vectors, whose norms come along. Client values that are found on the way
    are settled.
    """
    if len(targets) > _MOST:
        return None
    for node in pending:
        if node not in targets:
            return None
    order: list[Node] = []
    waits: set[int] = set()  # ids of what is known only after an answer
    done: set[int] = set()
    sums = stores = False
    for root in targets:
        stores = stores or not root.on_client
        stack = [root]
        while stack:
            node = stack[-1]
            me = id(node)
            if me in done:
                stack.pop()
                continue
            if node.value is None:
                waiting = [arg for arg in node.args if id(arg) not in done]
                if waiting:
                    stack += waiting[::-1]
                    continue
                op = node.op
                if op in _REWRITTEN:
                    return None
                is_late = not waits.isdisjoint(map(id, node.args)) if waits else False
                if op in REDUCERS:
                    if is_late:
                        return None
                    sums = sums or op == "sum"
                    is_late = True
                if node.on_client:
                    simplify(graph, node)
                    if node.value is not None:
                        return None
                if is_late:
                    waits.add(me)
            stack.pop()
            done.add(me)
            order.append(node)
            if len(order) > _MOST:
                return None
    return None if sums and stores else order
