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

Most graphs need no pass: one of the same form was planned before, as in a loop. One walk finds that
out (``forms``).
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from distvec.graph.node import MOVEMENT, MOVES, Graph, Node
from distvec.planner.emit import emit
from distvec.planner.forms import Discoveries, KeptPlans, form_of, siblings
from distvec.planner.fuse import fuse, schedule
from distvec.planner.linear import InnerProductExpansion
from distvec.planner.pending import Walk, free_riders, own_products, simplify
from distvec.planner.plan import Plan, Reason, Template
from distvec.planner.view_pushdown import ViewPushdown

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
        self._expanding, self._direct = KeptPlans(), KeptPlans()
        """Plans by form, made with expansions of inner products, and without."""
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
        exact = self._exact if len(self._exact) else ()
        form = form_of(self._graph, targets, pending, _MOST_RIDERS, exact)
        if form is None:
            return self._by_passes(targets, pending, Discoveries())
        kept = self._expanding if self.cancellation_limit >= 1 else self._direct
        plan = kept.find(form)
        if plan is None:
            newest, discoveries = self._graph.newest, Discoveries()
            plan = self._by_passes(targets, pending, discoveries)
            kept.keep(form, plan, discoveries, newest)
        return plan

    def _by_passes(
        self, targets: Sequence[Node], pending: Sequence[Node], discoveries: Discoveries
    ) -> Plan:
        """As ``plan``, by all passes."""
        walk = Walk()
        walk.add(targets, partial(simplify, self._graph))
        riders = free_riders(walk, targets, pending[-_MOST_RIDERS:])
        goals = [*targets, *riders]
        if [node for node in walk.nodes if node.op == MOVEMENT]:
            others = siblings(walk.below(goals), pending, goals)
            walk.add(others)
            goals += others
        notes = [_RIDE.format(len(riders))] * bool(riders)
        roots = list(dict.fromkeys(goals))
        kept = {id(node) for node in pending if not node.on_client}
        order = walk.below(roots)
        replaced: dict[int, Node] = {}
        if not MOVES.isdisjoint([node.op for node in order]):
            stored = {id(root) for root in roots} | kept
            descent = ViewPushdown(self._graph, walk, stored, discoveries)
            replaced = descent.run(order)
            if descent.moved:
                notes.append(_MOVED.format(descent.moved))
            roots, kept = _replace_nodes(replaced, roots, order, kept)
            order = walk.below(roots)
        depth = max([walk.levels[id(node)] for node in order], default=0)
        if depth > 1 and self.cancellation_limit >= 1:
            stored = {id(root) for root in roots} | kept
            expansion = InnerProductExpansion(
                self._graph, walk, stored, self._exact, self.cancellation_limit, discoveries
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
        position = {id(node): number for number, node in enumerate(order)} if replaced else {}
        aliases = [
            (node, position[id(replaced[id(node)])])
            for node in goals
            if replaced.get(id(node), node) is not node
        ]
        if self._exact and (direct := sum(node in self._exact for node in order)):
            notes.append(_DIRECT.format(direct))
        template = self._template(order, walk.levels, {id(root) for root in roots}, kept)
        return Plan(
            template.with_notes(notes) if notes else template,
            order,
            [node.value for node in order],
            aliases,
            {k: node.direct for k, node in enumerate(order) if node.direct is not None},
        )

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
