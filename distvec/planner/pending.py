"""The pending graph: walked once, and what of it needs no sweep of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from distvec.graph.host_eval import value_of
from distvec.graph.node import MOVEMENT, MOVES, Buffer, Graph, Node, phases_of
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
                    waiting = [arg for arg in node.args if id(arg) not in done]
                    if waiting:
                        stack += waiting[::-1]
                        continue
                    if visit is not None and node.on_client:
                        visit(node)
                stack.pop()
                done.add(id(node))
                self._append(node)

    def _append(self, node: Node) -> None:
        levels, level = self.levels, 0
        if node.value is None and node.args:
            op = node.op
            if op in MOVES:
                level = max([levels[id(arg)] + (arg.value is None) for arg in node.args])
            elif op == MOVEMENT:
                level = self._end_of(node)
            else:
                for arg in node.args:
                    if levels[id(arg)] > level:
                        level = levels[id(arg)]
                level += op in REDUCERS
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
        me, levels = id(node), self.levels
        if me not in levels:
            if node.value is None and [arg for arg in node.args if id(arg) not in levels]:
                self.add((node,))
            else:
                self._done.add(me)
                self._append(node)
        return levels[me]

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


_DOUBLE, _SINGLE = np.dtype(np.float64), np.dtype(np.float32)


def simplify(graph: Graph, node: Node) -> None:
    """Settle ``node``, which the client keeps, if its value is known or follows from known ones."""
    value = known_product(node) if node.op in REDUCERS else _fold(node)
    if value is not None:
        graph.settle(node, value, None)


def known_product(node: Node) -> Any:
    """An inner product of two buffers that was computed before: buffers never change."""
    factors = product_of(node)
    if factors is None:
        return None
    a, b = factors[0].value, factors[1].value
    return a.products.get(b.id) if isinstance(a, Buffer) and isinstance(b, Buffer) else None


def _fold(node: Node) -> Any:
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
    return graph.inner(_widen(graph, a), _widen(graph, b))


def _narrow(factor: Node) -> Node:
    """The float32 vector that ``factor`` is in float64; else itself."""
    widens = factor.op == "cast" and not factor.known and factor.dtype == _DOUBLE
    return factor.args[0] if widens and factor.args[0].dtype == _SINGLE else factor


def _widen(graph: Graph, vector: Node) -> Node:
    if vector.dtype != _SINGLE:
        return vector
    return graph.make("cast", (vector,), vector.type.of(_DOUBLE))


def free_riders(walk: Walk, goals: Sequence[Node], pending: Sequence[Node]) -> list[Node]:
    """Those ``pending`` nodes that are computed from no other vectors than the goals are.

    They join the goals in ``walk``.
    """
    missing = [node for node in pending if node.value is None and node not in goals]
    if not missing:
        return []
    below = walk.below(goals)
    whole = find_read_whole(below, {id(goal) for goal in goals})
    stored = [node for node in below if node.value is not None and not node.on_client]
    reads = {id(node): READS if id(node) in whole else READS_MORE for node in stored}
    reads |= {id(node): READS for node in below if node.op == MOVEMENT and node.value is None}
    _follow(walk.nodes, reads)
    riders = []
    for node in missing:
        if read_by(node, reads) == READS:
            before = len(walk.nodes)
            walk.add((node,))
            _follow(walk.nodes[before:], reads)
            riders.append(node)
    return riders


NOTHING, READS, READS_MORE = range(3)
"""What a node is computed from: no stored vector, some that the goals read too, others."""


def read_by(node: Node, reads: Mapping[int, int]) -> int:
    """What ``node`` is computed from, where ``reads`` says so of the goals, and all below them.

    What has changed least lately is looked at first: of a long chain that nobody evaluates, such
    as the sum of all steps of a loop, an end is near that the goals do not read.
    """
    found, seen, stack = NOTHING, set[int](), [node]
    while stack:
        one = stack.pop()
        me = id(one)
        if me in seen:
            continue
        seen.add(me)
        known = reads.get(me)
        if known is None:
            if one.value is None and one.op != MOVEMENT and not waits_to_travel(one):
                args = one.args
                shallow_last = len(args) < 2 or args[0].depth >= args[-1].depth
                stack += args if shallow_last else args[::-1]
                continue
            known = NOTHING if one.value is not None and one.on_client else READS_MORE
        if known == READS_MORE:
            return known
        found = max(found, known)
    return found


def waits_to_travel(node: Node) -> bool:
    """Whether it is an array of the client that is not known yet."""
    return node.op == "slots" and node.args[0].value is None


def _follow(nodes: Sequence[Node], reads: dict[int, int]) -> None:
    """Add to ``reads``, by id, what is true of ``nodes`` (arguments first)."""
    for node in nodes:
        if node.op == MOVEMENT:
            reads.setdefault(id(node), READS_MORE)
        elif waits_to_travel(node):
            reads[id(node)] = READS_MORE
        elif node.value is None:
            reads[id(node)] = max([reads[id(arg)] for arg in node.args], default=NOTHING)
        elif id(node) not in reads:
            reads[id(node)] = NOTHING if node.on_client else READS_MORE


def own_products(graph: Graph, order: Sequence[Node], stored: set[int]) -> list[Node]:
    """The squared norms of those vectors in ``stored`` that an inner product is taken of.

    They cost no traffic, and cosines, norms and step sizes ask for them next; the result is
    remembered with the buffer.
    """
    found = []
    for node in order:
        for factor in (product_of(node, stored) or ()) if node.op == "sum" else ():
            if id(factor) in stored and factor.value is None:
                found.append(inner_of(graph, factor, factor))
    return list(dict.fromkeys(found))
