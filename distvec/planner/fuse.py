"""Second pass: which vectors are stored, and what shares one traversal of memory.

The *level* of a node is the number of answers from the servers that must be known before it can be
computed: a reduction is one level above its argument. All stores and reductions of one level over
one space make one ``Loop``: its inputs are read once, however many results there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from distvec.expr import Graph, Node, topological
from distvec.planner.simplify import product_of
from ps_backend.space import DenseSpace

_COSTLY = frozenset(
    "exp expm1 log log1p log2 log10 tanh sin cos sigmoid pow uniform remainder floor_divide".split()
)


@dataclass
class Loop:
    """One traversal of the arrays of ``space``: what it stores and what it reduces."""

    level: int
    space: DenseSpace
    stores: list[Node] = field(default_factory=list)
    reductions: list[Node] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    """Why each stored node is stored, by its id."""


@dataclass
class Fused:
    """All loops, in order of level, and the scalars that the client computes between them."""

    loops: list[Loop]
    scalars: list[Node]
    levels: dict[int, int]


def fuse(graph: Graph, goals: Sequence[Node], pending: Sequence[Node], kept: set[int]) -> Fused:
    """Loops that compute ``goals``; what else of ``pending`` reads nothing new comes along."""
    roots = _with_free_riders(goals, pending)
    order = topological(roots, _is_known)
    levels = _levels(order)
    wanted = {id(root): "asked for" for root in roots if root.space is not None}
    for node in order:
        if id(node) in kept and id(node) not in wanted and _buffers([node]):
            wanted[id(node)] = "held by a variable"
    loops: dict[tuple[int, DenseSpace], Loop] = {}
    needed: dict[int, set[int]] = defaultdict(set)

    def loop(level: int, space: DenseSpace) -> Loop:
        return loops.setdefault((level, space), Loop(level, space))

    for node in reversed(order):
        if node.known:
            continue
        if node.is_reduction:
            source = node.args[0]
            level = levels[id(source)]
            needed[id(source)].add(level)
            loop(level, _space(source)).reductions.append(node)
        elif node.space is not None:
            computed = needed[id(node)]
            reason = wanted.get(id(node))
            if reason is not None:
                computed.add(levels[id(node)])
            elif len(computed) > 1 and _is_worth_storing(node):
                reason = f"needed by {len(computed)} programs"
            if reason is not None:
                first = min(computed)
                computed = {first}
                target = loop(first, node.space)
                target.stores.append(node)
                target.reasons[id(node)] = reason
            for arg in node.args:
                needed[id(arg)] |= computed
    ordered = [loops[key] for key in sorted(loops, key=lambda key: (key[0], key[1].length))]
    for one in ordered:
        one.stores.reverse()
        one.reductions.reverse()
        _add_own_products(graph, one)
    scalars = [n for n in order if n.space is None and not n.known and not n.is_reduction]
    return Fused(ordered, scalars, levels)


def _is_known(node: Node) -> bool:
    return node.known


def _space(node: Node) -> DenseSpace:
    if node.space is None:
        raise TypeError(f"{node!r} is a scalar where a vector is needed")
    return node.space


def _levels(order: Sequence[Node]) -> dict[int, int]:
    levels: dict[int, int] = {}
    for node in order:
        level = max((levels[id(arg)] for arg in node.args), default=0) if not node.known else 0
        levels[id(node)] = level + node.is_reduction if not node.known else 0
    return levels


def _is_worth_storing(node: Node) -> bool:
    """Whether reading the stored value back costs less than computing it again."""
    inputs, costly = set(), False
    for below in topological([node], _is_known):
        costly = costly or below.op in _COSTLY
        if below.known and below.space is not None:
            inputs.add(id(below))
    return costly or len(inputs) > 1


def _with_free_riders(goals: Sequence[Node], pending: Sequence[Node]) -> list[Node]:
    """The goals, and those pending nodes that read nothing but what the goals read anyway."""
    read = _buffers(goals)
    roots = list(dict.fromkeys(goals))
    for node in pending:
        if not node.known and node not in roots:
            needs = _buffers([node])
            if needs and needs <= read:
                roots.append(node)
    return roots


def _buffers(roots: Sequence[Node]) -> set[int]:
    return {id(n) for n in topological(roots, _is_known) if n.known and n.space is not None}


def _add_own_products(graph: Graph, loop: Loop) -> None:
    """Let the square of a stored vector's norm ride along with any inner product taken of it.

    It costs no traffic, and cosines, norms and step sizes ask for it next; the result is remembered
    with the buffer.
    """
    stored = {id(node) for node in loop.stores}
    for reduction in list(loop.reductions):
        for factor in product_of(reduction) or ():
            if id(factor) in stored and factor.dtype == reduction.dtype:
                square = graph.make("multiply", (factor, factor), factor.dtype, factor.space)
                own = graph.make("sum", (square,), reduction.dtype, None)
                if own not in loop.reductions:
                    loop.reductions.append(own)
