"""The planner: from nodes that are asked for to the programs that compute them.

Passes over nodes, each in a file of its own, in this order. Nothing here talks to a server.

=============  ==========================================================================
toposort       the graph as one list, arguments first, and how many answers each node needs
simplify       what the client can tell by itself gets its value: products, arithmetic;
               what comes along because it reads nothing new: pending arrays, norms
view_pushdown  reading at other slots, moved down to what is stored
linear         inner products of linear combinations, where a scalar is known earlier so
fuse           which vectors are stored, and which stores and reductions share one traversal;
               traversals into programs: one program is one message per server
emit           programs in the form that servers run (``ps_backend.program``),
               and which steps are one linear combination, which sums inner products
=============  ==========================================================================

A graph of the same shape over other buffers and scalars gets the same programs, so the last four
passes run once per shape: ``Planner`` keeps what they made.

Many graphs need no pass: a few operations on stored arrays, a dot product, a step of an update. One
walk finds that out (``plain_order``).
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from distvec.graph.node import MOVEMENT, MOVES, Graph, Node, movement_key
from distvec.planner.emit import emit
from distvec.planner.fuse import fuse, schedule
from distvec.planner.linear import InnerProductExpansion
from distvec.planner.pending import (
    NOTHING,
    READS,
    Walk,
    free_riders,
    own_products,
    read_by,
    simplify,
    waits_to_travel,
)
from distvec.planner.plan import Plan, Reason, Template
from distvec.planner.view_pushdown import ViewPushdown
from ps_backend.program.reducers import REDUCERS

_REWRITTEN = MOVES | {MOVEMENT}
_MOST_NODES = 512
"""Where there are more, it is not the passes that take long."""


class PlainOrder(NamedTuple):
    """What the passes would make of a graph."""

    nodes: list[Node]
    """Arguments first."""
    goals: set[int]
    """Ids of what is computed: the targets, and what comes along."""
    held: set[int]
    """Ids of the arrays that somebody holds."""
    riders: int
    """How many come along."""


class _PlainWalk:
    """Nodes in order, as long as no pass has anything to do.

    Most evaluations of a loop are such: some operations on stored arrays, a dot product, a step of
    an update, and what somebody holds of them.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.nodes: list[Node] = []
        self.reads: dict[int, int] = {}
        """By id of each node, what it is computed from: ``READS`` or ``NOTHING``."""
        self.sums = False
        self.takes = False
        """Whether single elements are taken of an array: it is not read as a whole."""
        self._late: set[int] = set()
        """Ids of values that are known only after a reply."""

    def add(self, root: Node, *, is_target: bool = False) -> bool:
        """Append what is below ``root`` and not there yet; False where a pass might do something.

        Client values below a target are settled, if they can be.
        """
        reads, late, order = self.reads, self._late, self.nodes
        stack = [root]
        while stack:
            node = stack[-1]
            me = id(node)
            if me in reads:
                stack.pop()
                continue
            read = NOTHING if node.on_client else READS
            if node.value is None:
                args, read, is_late = node.args, NOTHING, False
                for arg in reversed(args):
                    by_arg = reads.get(id(arg))
                    if by_arg is None:
                        stack.append(arg)
                    elif by_arg:
                        read = READS
                if stack[-1] is not node:
                    continue
                op = node.op
                if op in _REWRITTEN or (op == "slots" and waits_to_travel(node)):
                    return False
                if late:
                    is_late = not late.isdisjoint(map(id, args))
                if op in REDUCERS:
                    if is_late:
                        return False
                    is_late = True
                    self.sums = self.sums or op == "sum"
                    self.takes = self.takes or op == "take"
                if is_target and node.on_client:
                    simplify(self._graph, node)
                    if node.value is not None:
                        return False
                if is_late:
                    late.add(me)
            stack.pop()
            reads[me] = read
            order.append(node)
        return len(order) <= _MOST_NODES


def plain_order(
    graph: Graph, targets: Sequence[Node], pending: Sequence[Node], most: int
) -> PlainOrder | None:
    """The nodes below ``targets``, and what comes along: of ``pending``, of the latest so many.

    None where a pass might do something: views, movements, a reduction that waits for another one,
    values that the client knows or can compute. Such values that are found on the way are settled.
    """
    if len(targets) > _MOST_NODES:
        return None
    walk = _PlainWalk(graph)
    for root in targets:
        if not walk.add(root, is_target=True):
            return None
    goals = {id(node) for node in targets}
    held, riders = {id(node) for node in pending if not node.on_client}, 0
    for node in pending[-most:]:
        me = id(node)
        if me in goals or node.value is not None:
            continue
        if walk.takes:
            return None
        if read_by(node, walk.reads) == READS:
            if me not in walk.reads and not walk.add(node):
                return None
            goals.add(me)
            riders += 1
    if walk.sums and (held or [node for node in targets if not node.on_client]):
        for product in own_products(graph, walk.nodes, goals | held):
            walk.add(product)
    return PlainOrder(walk.nodes, goals, held, riders)


__all__ = ["Plan", "Planner", "Reason", "Template"]

_MOST_TEMPLATES = 1024
_MOST_RIDERS = 64

_RIDE = "{} pending arrays come along: they read nothing new"
_EXPANDED = "{} inner products of linear combinations follow from those of stored vectors"
_MOVED = "{} views of expressions are computed from views of what these are made of"
_DIRECT = "{} inner products are computed directly: expanded, they lose digits (cancellation_limit)"


class Planner:
    """Plans for the nodes of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._templates: dict[Any, Template] = {}
        self._exact: weakref.WeakSet[Node] = weakref.WeakSet()
        self.cancellation_limit = 1e4
        """As ``Session.cancellation_limit``."""

    def plan(self, targets: Sequence[Node], pending: Sequence[Node] = ()) -> Plan:
        """The programs that compute ``targets``.

        ``pending`` are nodes that a user holds as well. Those that lie on the way are stored where
        they are computed, and the latest of the others come along where that reads nothing new.
        """
        # A view that is not asked for is free: it reads values that are stored anyway.
        pending = [node for node in pending if node.op not in MOVES]
        if not self._exact:
            plain = plain_order(self._graph, targets, pending, _MOST_RIDERS)
            if plain is not None:
                found = self._templates.get(_shape(plain.nodes, plain.goals, plain.held))
                if found is not None:
                    if plain.riders:
                        found = found.with_notes([_RIDE.format(plain.riders)])
                    return Plan(found, plain.nodes, [])
        walk = Walk()
        walk.add(targets, partial(simplify, self._graph))
        riders = free_riders(walk, targets, pending[-_MOST_RIDERS:])
        goals = [*targets, *riders]
        if [node for node in walk.nodes if node.op == MOVEMENT]:
            siblings = _siblings(walk.below(goals), pending, goals)
            walk.add(siblings)
            goals += siblings
        notes = [_RIDE.format(len(riders))] * bool(riders)
        roots = list(dict.fromkeys(goals))
        kept = {id(node) for node in pending if not node.on_client}
        order = walk.below(roots)
        replaced: dict[int, Node] = {}
        if not MOVES.isdisjoint([node.op for node in order]):
            descent = ViewPushdown(self._graph, walk, {id(root) for root in roots} | kept)
            replaced = descent.run(order)
            if descent.moved:
                notes.append(_MOVED.format(descent.moved))
            roots, kept = _replace_nodes(replaced, roots, order, kept)
            order = walk.below(roots)
        depth = max([walk.levels[id(node)] for node in order], default=0)
        if depth > 1 and self.cancellation_limit >= 1:
            stored = {id(root) for root in roots} | kept
            expansion = InnerProductExpansion(
                self._graph, walk, stored, self._exact, self.cancellation_limit
            )
            expanded = expansion.run(order)
            if expansion.expanded:
                notes.append(_EXPANDED.format(expansion.expanded))
            roots, kept = _replace_nodes(expanded, roots, order, kept)
            order = walk.below(roots)
            replaced = {
                key: expanded.get(id(new), new) for key, new in replaced.items()
            } or expanded
        extra = own_products(self._graph, order, {id(root) for root in roots} | kept)
        if extra:
            walk.add(extra)
            order = walk.below([*roots, *extra])
        aliases = [(node, replaced[id(node)]) for node in goals if id(node) in replaced]
        if self._exact and (direct := sum(node in self._exact for node in order)):
            notes.append(_DIRECT.format(direct))
        template = self._template(order, walk.levels, {id(root) for root in roots}, kept)
        return Plan(template.with_notes(notes) if notes else template, order, aliases)

    def compute_directly(self, product: Node) -> None:
        """Never again expand this inner product: its terms cancel."""
        self._exact.add(product)

    def _template(
        self, order: Sequence[Node], levels: Mapping[int, int], goals: set[int], kept: set[int]
    ) -> Template:
        shape = _shape(order, goals, kept)
        found = self._templates.get(shape)
        if found is None:
            if len(self._templates) >= _MOST_TEMPLATES:
                self._templates.clear()
            fused = fuse(order, levels, goals, kept)
            found = emit(order, schedule(fused, levels)).with_notes(fused.notes)
            self._templates[shape] = found
        return found


def _siblings(order: Sequence[Node], pending: Sequence[Node], goals: Sequence[Node]) -> list[Node]:
    """The other outputs, that somebody holds, of the movements that are to run."""
    moved = [node for node in order if node.op == MOVEMENT and node.value is None]
    if not moved:
        return []
    keys, known = {movement_key(node) for node in moved}, {id(node) for node in (*moved, *goals)}
    held = [node for node in pending if node.op == MOVEMENT and id(node) not in known]
    return list(dict.fromkeys(node for node in held if movement_key(node) in keys))


def _replace_nodes(
    new: Mapping[int, Node], roots: Sequence[Node], order: Sequence[Node], kept: set[int]
) -> tuple[list[Node], set[int]]:
    """Roots, and ids of what is kept, once each node of ``order`` gave way to its ``new`` one."""
    found = list(dict.fromkeys([new[id(root)] for root in roots]))
    return found, {id(new[id(node)]) for node in order if id(node) in kept}


def _shape(order: Sequence[Node], goals: set[int], kept: set[int]) -> Any:
    """What the programs for a graph depend on: ops and types, but no values."""
    position: dict[int, int] = {}
    parts: list[Any] = []
    for number, node in enumerate(order):
        me = id(node)
        position[me] = number
        if node.value is not None:
            parts.append((node.op == "const", node.type))
        else:
            args = [position[id(arg)] for arg in node.args]
            parts.append((node.op, node.type, node.params, me in goals, me in kept, *args))
    return tuple(parts)
