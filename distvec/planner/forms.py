"""Plans kept by the form of what is asked for, which one walk finds before any pass.

The iterations of a loop ask for graphs of the same form over other buffers and numbers. All that
the passes decide follows from the form: ops, types, which nodes are known, which are goals, which
somebody holds; and from which inner products of stored vectors are known. So the plan of the first
one is kept with where its values come from, and the next one is that plan over other values.

The slots that views read and the numbers of movements are parameters of their nodes, so that they
are part of the form.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

from distvec.graph.host_eval import value_of
from distvec.graph.node import MOVEMENT, Graph, Node, movement_key
from distvec.planner.pending import (
    NOTHING,
    READS,
    known_product,
    read_by,
    simplify,
    waits_to_travel,
)
from distvec.planner.plan import Plan, Template
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.types import NodeType

_MOST_NODES = 2048
"""Of a form. Where there are more, each step of a loop mostly has another one."""
_MOST_KEPT = 1 << 17
"""Nodes of all forms whose plans are kept."""
_MOST_VARIANTS = 4


class Form(NamedTuple):
    """What the passes would be given."""

    nodes: list[Node]
    """Arguments first."""
    key: tuple[Any, ...]
    """The same for graphs of one form. It has ids of types, which live as long as the nodes do."""


class _Walk:
    """Nodes in order, and the parts of the key that say what they are."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.nodes: list[Node] = []
        self.place: dict[int, int] = {}
        self.reads: dict[int, int] = {}
        """By id of each node, what it is computed from: ``READS`` or ``NOTHING``."""
        self.parts: list[Any] = []
        self.takes = self.folds = self.moves = False
        """Whether single elements are taken of an array: it is not read as a whole; whether a
        value of the client was computed, so that what it was computed from is not needed; and
        whether there are movements."""

    def add(self, root: Node, *, is_target: bool = False) -> bool:
        """Append what is below ``root`` and not there yet; False if it has no form.

        Client values below a target are settled, if they can be.
        """
        place, reads, nodes, parts = self.place, self.reads, self.nodes, self.parts
        stack = [root]
        while stack:
            node = stack[-1]
            me = id(node)
            if me in place:
                stack.pop()
                continue
            op = node.op
            if node.value is None:
                if is_target and op == "sum" and not node.params:
                    value = known_product(node)
                    if value is not None:
                        self._graph.settle(node, value, None)
                        continue
                args = node.args
                for arg in reversed(args):
                    if id(arg) not in place:
                        stack.append(arg)
                if stack[-1] is not node:
                    continue
                if op == "slots" and waits_to_travel(node):
                    return False
                if node.on_client:
                    if op in REDUCERS:
                        self.takes = self.takes or op == "take"
                    elif is_target:
                        simplify(self._graph, node)
                        if node.value is not None:
                            self.folds = True
                            continue
                parts += (op, id(node.type), node.params)
                read = NOTHING
                for arg in args:
                    it = id(arg)
                    parts.append(place[it])
                    if reads[it]:
                        read = READS
                if op == MOVEMENT:
                    self.moves, read = True, READS
            else:
                read = NOTHING if node.on_client else READS
                parts += ("const" if op == "const" else "", id(node.type))
            stack.pop()
            reads[me] = read
            place[me] = len(nodes)
            nodes.append(node)
        return len(nodes) <= _MOST_NODES


def form_of(
    graph: Graph,
    targets: Sequence[Node],
    pending: Sequence[Node],
    most: int,
    exact: Container[Node],
) -> Form | None:
    """The form of ``targets``, and of what comes along: of ``pending``, of the latest so many.

    ``exact`` are inner products that are not to be expanded. Values of the client that are found to
    be known, or can be computed, are settled. None for graphs that have none.
    """
    if len(targets) > _MOST_NODES:
        return None
    walk = _Walk(graph)
    for root in targets:
        if not walk.add(root, is_target=True):
            return None
    if walk.folds:
        return form_of(graph, targets, pending, most, exact)
    place = walk.place
    goals = dict.fromkeys([place[id(node)] for node in targets])
    for node in pending[-most:]:
        at = place.get(id(node))
        if at in goals or node.value is not None:
            continue
        if (read_by(node, walk.reads) if at is None else walk.reads[id(node)]) == READS:
            if walk.takes or not walk.add(node):
                return None
            goals[place[id(node)]] = None
    if walk.moves:
        for node in siblings(walk.nodes, pending, [walk.nodes[k] for k in goals]):
            if not walk.add(node):
                return None
            goals[place[id(node)]] = None
    held = sorted([place[id(node)] for node in pending if id(node) in place and not node.on_client])
    parts = walk.parts
    parts += (None, *goals, None, *held, None)
    if exact:
        parts += [k for k, node in enumerate(walk.nodes) if node.op == "sum" and node in exact]
    return Form(walk.nodes, tuple(parts))


def siblings(order: Sequence[Node], pending: Sequence[Node], goals: Sequence[Node]) -> list[Node]:
    """The other outputs, that somebody holds, of the movements that are to run."""
    moved = [node for node in order if node.op == MOVEMENT and node.value is None]
    if not moved:
        return []
    keys, known = {movement_key(node) for node in moved}, {id(node) for node in (*moved, *goals)}
    held = [node for node in pending if node.op == MOVEMENT and id(node) not in known]
    return list(dict.fromkeys(node for node in held if movement_key(node) in keys))


class Origin(NamedTuple):
    """A value that a pass has found out: ``op`` of other values, or one that is always the same.

    An ``op`` of ``""`` is the known inner product of two buffers.
    """

    op: str
    params: tuple[Any, ...]
    type: NodeType
    args: tuple[Node, ...]
    value: Any = None


class Discoveries:
    """What a plan depends on besides the form, as the passes find it out."""

    def __init__(self) -> None:
        self.origins: dict[Node, Origin] = {}
        """Of constants that passes have made, in the order of their making."""
        self.asked: dict[tuple[Node, Node], bool] = {}
        """Pairs of buffers, and whether their inner product is known."""
        self.by_values = False
        """Whether numbers have decided something: then the plan serves once."""


class KeptPlan:
    """The template of a plan, and where its values come from."""

    def __init__(
        self,
        template: Template,
        sources: list[int | None],
        steps: list[tuple[Origin, tuple[int, ...]]],
        asked: list[tuple[int, int, bool]],
        aliases: list[tuple[int, int]],
        direct: dict[int, int],
    ) -> None:
        self._template = template
        self._sources = sources
        """By position of the plan, the node of the form; or ``~k`` for the result of a step; or
        None for what the plan computes, and for which no node is needed."""
        self._steps = steps
        self._asked = asked
        self._aliases, self._direct = aliases, direct
        self._is_whole = sources == [*range(len(sources))]
        """Whether the nodes of the form are the plan's, as they are."""

    @property
    def size(self) -> int:
        """Positions."""
        return len(self._sources)

    def plan(self, form: Form) -> Plan | None:
        """The plan for another graph of the form, if the same inner products are known there."""
        given = form.nodes
        for a, b, is_known in self._asked:
            if (given[b].value.id in given[a].value.products) is not is_known:
                return None
        if self._is_whole and len(given) == len(self._sources):
            return Plan(self._template, given, [node.value for node in given], (), {})
        found: list[Any] = []
        for origin, args in self._steps:
            if origin.value is not None:
                found.append(origin.value)
                continue
            values = [given[k].value if k >= 0 else found[~k] for k in args]
            if origin.op:
                found.append(value_of(origin.op, origin.params, origin.type, values))
            else:
                found.append(values[0].products[values[1].id])
        nodes: list[Node | None] = []
        known: list[Any] = []
        for source in self._sources:
            if source is None:
                nodes.append(None)
                known.append(None)
            elif source >= 0:
                node = given[source]
                nodes.append(node)
                known.append(node.value)
            else:
                nodes.append(None)
                known.append(found[~source])
        aliases = [(given[k], position) for k, position in self._aliases]
        return Plan(
            self._template,
            nodes,
            known,
            aliases,
            {position: given[k] for position, k in self._direct.items()},
        )


class KeptPlans:
    """By form."""

    def __init__(self) -> None:
        self._plans: dict[tuple[Any, ...], list[KeptPlan]] = {}
        self._types: dict[int, NodeType] = {}
        """Those that keys name by their ids."""
        self._size = 0

    def find(self, form: Form) -> Plan | None:
        """The plan for ``form``, if one like it is kept."""
        for one in self._plans.get(form.key, ()):
            plan = one.plan(form)
            if plan is not None:
                return plan
        return None

    def keep(self, form: Form, plan: Plan, discoveries: Discoveries, newest: int) -> None:
        """Keep ``plan``, which passes have made of ``form``; not if something else decided.

        ``newest``: the serial number of the latest node before.
        """
        kept = _kept(form, plan, discoveries, newest)
        if kept is None:
            return
        if self._size > _MOST_KEPT:
            self._plans.clear()
            self._types.clear()
            self._size = 0
        variants = self._plans.setdefault(form.key, [])
        if len(variants) >= _MOST_VARIANTS:
            del variants[0]
        variants.append(kept)
        self._types |= {id(node.type): node.type for node in form.nodes}
        self._size += kept.size + len(form.key)


def _kept(form: Form, plan: Plan, discoveries: Discoveries, newest: int) -> KeptPlan | None:
    if discoveries.by_values:
        return None
    place = {id(node): k for k, node in enumerate(form.nodes)}
    steps: list[tuple[Origin, tuple[int, ...]]] = []
    made: dict[Node, int] = {}

    def source(node: Node) -> int | None:
        """Where the value of ``node`` is found."""
        known = place.get(id(node))
        if known is None and node in discoveries.origins:
            if node not in made:
                origin = discoveries.origins[node]
                args = tuple([_index(source(arg)) for arg in origin.args])
                steps.append((origin._replace(args=()), args))
                made[node] = ~(len(steps) - 1)
            known = made[node]
        return known

    sources = []
    try:
        for node in plan.nodes:
            assert node is not None  # of a new plan all have one
            found = source(node)
            if found is None and (node.value is not None or node.serial <= newest):
                return None  # it was there before, though not below what was asked for
            sources.append(found)
        asked = [(place[id(a)], place[id(b)], known) for (a, b), known in discoveries.asked.items()]
        aliases = [(place[id(node)], position) for node, position in plan.aliases]
        direct = {position: place[id(node)] for position, node in plan.direct.items()}
    except KeyError:
        return None
    return KeptPlan(plan.template, sources, steps, asked, aliases, direct)


def _index(found: int | None) -> int:
    if found is None:
        raise KeyError
    return found
