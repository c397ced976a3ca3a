"""Which vectors are stored, what shares one traversal of memory, and which traversals share one
program: one message to each server that holds data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from distvec.graph.node import MOVEMENT, MOVES, Node, first_level, movement_key, phases_of
from distvec.planner.pending import find_read_whole
from distvec.planner.view_pushdown import view_sources
from ps_backend.program import ops, row_ops
from ps_backend.program.spaces import Space


@dataclass
class Traversal:
    """One traversal of the arrays of ``space``: what it stores and what it reduces."""

    level: int
    space: Space
    stores: list[Node] = field(default_factory=list)
    reductions: list[Node] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    """Why each stored node is stored, by its id."""


@dataclass
class Fused:
    """All traversals, in order of level, and the scalars that the client computes between them."""

    traversals: list[Traversal]
    scalars: list[Node]
    movements: list[Node]
    """What servers compute in phases; it is stored by itself."""
    notes: list[str]
    """Why vectors that several programs need are not stored."""


def fuse(
    order: Sequence[Node], levels: Mapping[int, int], goals: set[int], kept: set[int]
) -> Fused:
    """Traversals that compute the nodes of ``order`` (arguments first).

    The vectors whose ids are in ``goals`` are stored; so are those in ``kept``, which a user holds,
    where storing them saves a later read.
    """
    wanted = {id(node): "asked for" for node in order if id(node) in goals and not node.on_client}
    below = _sources(order)
    whole = find_read_whole(order, goals)
    for node in order:
        is_held = id(node) in kept and id(node) in whole and id(node) not in wanted
        if is_held and not node.known and below[id(node)][0]:
            wanted[id(node)] = "held by a variable"
    for key, why in view_sources(order).items():
        wanted.setdefault(key, why)
    traversals: dict[tuple[int, Space, bool], Traversal] = {}
    plain = _plain(order)
    notes: list[str] = []
    needed: dict[int, set[int]] = defaultdict(set)

    def traversal(level: int, node: Node) -> Traversal:
        space = node.type.space
        # Vectors alone are swept by quicker kernels than tables, and vectors beside them.
        key = level, space, id(node) in plain
        return traversals.setdefault(key, Traversal(level, space))

    # From the results down: ``needed`` says in which levels' traversals a vector is needed, and all
    # its users come before it.
    for node in reversed(order):
        if node.known or node.op == MOVEMENT:
            continue
        if node.is_reduction:
            level = levels[id(node)] - 1
            sources = [arg for arg in node.args if not arg.on_client]
            for source in sources:
                needed[id(source)].add(level)
            traversal(level, sources[0]).reductions.append(node)
        elif not node.on_client:
            computed = needed[id(node)]
            reason = wanted.get(id(node))
            if reason is not None:
                computed.add(levels[id(node)])
            elif len(computed) > 1 and node.op not in MOVES:
                if _is_worth_storing(below[id(node)]):
                    reason = f"needed by {len(computed)} programs"
                elif node.args:
                    notes.append(
                        f"{node!r} is computed again in {len(computed)} programs: "
                        f"cheaper than to store it and read it back"
                    )
            if reason is not None:
                first = min(computed)
                computed = {first}
                target = traversal(first, node)
                target.stores.append(node)
                target.reasons[id(node)] = reason
            for arg in node.args if node.op not in MOVES else ():
                needed[id(arg)] |= computed
    ordered = [
        traversals[key]
        for key in sorted(traversals, key=lambda key: (key[0], key[1].length, key[2]))
    ]
    for one in ordered:
        one.stores.reverse()
        one.reductions.reverse()
    moved = [node for node in order if node.op == MOVEMENT and not node.known]
    scalars = [
        node
        for node in order
        if node.on_client and not (node.known or node.is_reduction or node.op == MOVEMENT)
    ]
    return Fused(ordered, scalars, moved, notes)


def _plain(order: Sequence[Node]) -> set[int]:
    """Ids of the vectors that are computed from vectors and scalars alone, element by element."""
    found: set[int] = set()
    for node in order:
        if node.on_client or node.type.row:
            continue
        if (
            node.known
            or (node.op in MOVES and not node.args[0].type.row)
            or node.op == MOVEMENT
            or (
                node.op in ops.TABLE and all(arg.is_scalar or id(arg) in found for arg in node.args)
            )
        ):
            found.add(id(node))
    return found


Source = tuple[tuple[int, ...], bool]
"""Of a node: ids of stored vectors below it, two at most, and whether a costly op is there too."""


def _sources(order: Sequence[Node]) -> dict[int, Source]:
    """By id of the node."""
    found: dict[int, Source] = {}
    for node in order:
        if node.known or node.op in MOVES or node.op == MOVEMENT:
            found[id(node)] = ((id(node),) if not node.on_client else (), False)
            continue
        below = [found[id(arg)] for arg in node.args]
        vectors = dict.fromkeys(vector for inputs, _ in below for vector in inputs)
        costly = _is_costly(node) or any(costly for _, costly in below)
        found[id(node)] = (tuple(vectors)[:2], costly)
    return found


def _is_costly(node: Node) -> bool:
    """Whether it takes long, or is much narrower than the rows that it is computed from."""
    if node.op in ops.TABLE:
        return ops.TABLE[node.op].costly
    if node.op not in row_ops.TABLE:
        return False
    widths = [prod(arg.type.row) for arg in node.args if not arg.on_client]
    return bool(widths) and (not row_ops.TABLE[node.op].view or prod(node.type.row) < max(widths))


def _is_worth_storing(source: Source) -> bool:
    """Whether reading the stored value back costs less than computing it again."""
    inputs, costly = source
    return costly or len(inputs) > 1


class PhaseOf(NamedTuple):
    """A phase of a movement, of which these nodes are the outputs."""

    outputs: Sequence[Node]
    phase: int


@dataclass
class Stage:
    """Traversals that wait for the same answers, and the scalars that the client then computes."""

    traversals: list[Traversal] = field(default_factory=list)
    before: list[PhaseOf] = field(default_factory=list)
    """Phases of movements that run before the traversals,"""
    after: list[PhaseOf] = field(default_factory=list)
    """and the first ones, which take what these have stored."""
    scalars: list[Node] = field(default_factory=list)


@dataclass
class Schedule:
    """Stages in order. ``before`` are scalars that need no answer at all."""

    stages: list[Stage]
    before: list[Node]


def schedule(fused: Fused, levels: Mapping[int, int]) -> Schedule:
    """One stage per level of traversals; a scalar goes to the stage after which it is known."""
    by_level: dict[int, Stage] = {}
    for traversal in fused.traversals:
        by_level.setdefault(traversal.level, Stage()).traversals.append(traversal)
    for outputs, first, phases in _movements(fused.movements, levels):
        for phase in range(phases):
            stage = by_level.setdefault(first + phase, Stage())
            is_early = phase > 0 or phases == 1
            (stage.before if is_early else stage.after).append(PhaseOf(outputs, phase))
    before: list[Node] = []
    for scalar in fused.scalars:
        level = levels[id(scalar)]
        earlier = [known for known in by_level if known < level]
        (by_level[max(earlier)].scalars if earlier else before).append(scalar)
    return Schedule([by_level[level] for level in sorted(by_level)], before)


def _movements(
    nodes: Sequence[Node], levels: Mapping[int, int]
) -> Iterator[tuple[list[Node], int, int]]:
    """The outputs of each movement, the level of its first phase, and how many phases it has."""
    groups: dict[tuple[object, ...], list[Node]] = {}
    for node in nodes:
        groups.setdefault(movement_key(node), []).append(node)
    for outputs in groups.values():
        node = outputs[0]
        yield outputs, first_level(node, levels[id(node)]), phases_of(node)
