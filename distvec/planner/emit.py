"""Traversals into sweeps, the form that servers run: also which steps of a sweep are one linear
combination, and which of its reductions are inner products.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set

from distvec.graph.node import GATHER, MOVEMENT, MOVES, Node, params_of, phases_of
from distvec.planner.fuse import PhaseOf, Schedule, Traversal
from distvec.planner.pending import product_of
from distvec.planner.plan import (
    PlannedPhase,
    PlannedProgram,
    PlannedSweep,
    PlannedValue,
    PlannedView,
    Template,
)
from ps_backend.program.collectives import CollectiveTypes
from ps_backend.program.sweep import Combination, Link, Reduction, Step, Sweep
from ps_backend.program.types import FLOATS, ArrayType


def combine(sweep: Sweep) -> Sweep:
    """``sweep`` with its linear combinations and inner products instead of what they replace."""
    reductions = tuple([_dot(sweep, r) or r for r in sweep.reductions])
    combinations = _combinations(sweep, reductions)
    if not combinations and reductions == sweep.reductions:
        return sweep
    first = len(sweep.inputs) + len(sweep.scalars)
    steps = dict(enumerate(sweep.steps, first)) | combinations
    needed = {*sweep.outputs}.union(*[reduction.args for reduction in reductions])
    for value in reversed(steps):
        if value in needed:
            needed.update(steps[value].args)
    kept = [value for value in steps if value in needed]
    number = dict(zip(range(first), range(first), strict=True))
    number |= zip(kept, range(first, first + len(kept)), strict=True)
    return Sweep(
        sweep.inputs,
        sweep.scalars,
        tuple([steps[value].renumbered(number) for value in kept]),
        tuple([number[value] for value in sweep.outputs]),
        tuple([reduction.renumbered(number) for reduction in reductions]),
    )


def _dot(sweep: Sweep, reduction: Reduction) -> Reduction | None:
    """The inner product that a sum of products in float64 is, of two factors of one dtype.

    float32 factors that were widened for the product are taken as they are: it is exact.
    """
    if reduction.op != "sum" or reduction.axis is not None:
        return None
    step = _step(sweep, reduction.args[0])
    if step is None or step.op not in ("multiply", "square") or step.type.dtype != "float64":
        return None
    factors = [_strip_widening(sweep, arg) for arg in (step.args * 2)[:2]]
    first, second = (sweep.types[factor].dtype for factor in factors)
    return Reduction("dot", tuple(factors)) if first == second else None


def _strip_widening(sweep: Sweep, value: int) -> int:
    step = _step(sweep, value)
    widens = step is not None and step.op == "cast" and step.type.dtype == "float64"
    narrow = step.args[0] if step is not None and widens else value
    return narrow if sweep.types[narrow].dtype == "float32" else value


def _step(sweep: Sweep, value: int) -> Step | Combination | None:
    number = value - len(sweep.inputs) - len(sweep.scalars)
    return sweep.steps[number] if number >= 0 else None


def _combinations(sweep: Sweep, reductions: Sequence[Reduction]) -> dict[int, Combination]:
    """By value: of every maximal chain of links, if it is more than one link."""
    count, types = len(sweep.inputs), sweep.types
    scalars = range(count, count + len(sweep.scalars))
    leaves: dict[int, Link] = {}
    chains: dict[int, list[Link]] = {}
    uses: Counter[int] = Counter()
    for value, step in enumerate(sweep.steps, scalars.stop):
        args, dtype = step.args, step.type.dtype
        if step.op not in _LINKED or dtype not in FLOATS:
            continue
        if [arg for arg in args if types[arg].dtype != dtype]:
            continue
        if not uses:  # few sweeps come here
            leaves = {value: Link("start", value) for value in range(count)}
            uses.update([arg for one in (*sweep.steps, *reductions) for arg in one.args])
            uses.update(sweep.outputs)
        leaf = _leaf(step, leaves, scalars)
        if leaf is not None:
            leaves[value] = leaf
            continue
        # Of two candidates for the running value the one that goes on from others is taken.
        goes_on = [position for position, arg in enumerate(args) if arg in chains]
        for position in dict.fromkeys((*goes_on, *range(len(args)))):
            links = _links(step, position, leaves, scalars)
            if links:
                running = args[position]
                before = [leaves.get(running, Link("start", running))]
                if running in chains and uses[running] == 1:
                    before = chains.pop(running)
                before += links
                chains[value] = before
                break
    # One that only goes on from a value, and reads no vector besides, is no gain.
    return {
        value: Combination(tuple(links), types[value])
        for value, links in chains.items()
        if any(link.vector in leaves for link in links)
    }


_LINKED = frozenset(("add", "subtract", "multiply", "divide", "negative"))


def _leaf(step: Step | Combination, leaves: Mapping[int, Link], scalars: range) -> Link | None:
    """What ``step`` makes of a leaf, if that is one again."""
    if step.op == "negative" and step.args[0] in leaves:
        leaf = leaves[step.args[0]]
        return leaf._replace(negative=not leaf.negative)
    if step.op == "multiply":
        for factor, scalar in (step.args, step.args[::-1]):
            if factor in leaves and scalar in scalars and leaves[factor].scalar is None:
                return leaves[factor]._replace(scalar=scalar)
    return None


def _links(
    step: Step | Combination, position: int, leaves: Mapping[int, Link], scalars: range
) -> list[Link]:
    """What ``step`` does to its argument ``position`` as links; none if there are no such links.

    ``x - a*y`` is ``x + (-a)*y`` to the last bit, and ``a*y - x`` is ``-x + a*y``.
    """
    if step.args[position] in scalars:
        return []
    if step.op == "negative":
        return [Link("negate")]
    if step.op not in ("add", "subtract", "multiply", "divide"):
        return []
    other = step.args[1 - position]
    if step.op in ("multiply", "divide"):
        scales = other in scalars and (step.op, position) != ("divide", 1)
        return [Link(_SCALING[step.op], scalar=other)] if scales else []
    negative = (step.op, position) == ("subtract", 0)
    flip = [Link("negate")] if (step.op, position) == ("subtract", 1) else []
    if other in scalars:
        return [*flip, Link("shift", None, other, negative)]
    if other in leaves:
        leaf = leaves[other]
        return [*flip, Link("add", leaf.vector, leaf.scalar, negative != leaf.negative)]
    return []


_SCALING = {"multiply": "scale", "divide": "divide"}

_THERE = MOVES | {MOVEMENT}
"""Ops of what a sweep finds stored: what movements make, and by views what these read."""


def emit(order: Sequence[Node], schedule: Schedule) -> Template:
    """Per program its sweeps; nodes are named by their position in ``order``."""
    position = {id(node): number for number, node in enumerate(order)}
    stored: set[int] = set()
    programs = []
    for stage in schedule.stages:
        sweeps = [sweep_of(traversal, stored, position) for traversal in stage.traversals]
        phases = [[_phase(one, position) for one in some] for some in (stage.before, stage.after)]
        scalars = [position[id(node)] for node in stage.scalars]
        programs.append(PlannedProgram(sweeps, scalars, *phases))
        stored |= {id(node) for traversal in stage.traversals for node in traversal.stores}
    before = [position[id(node)] for node in schedule.before]
    return Template(programs, before, [_value(node, position) for node in order])


def _value(node: Node, position: Mapping[int, int]) -> PlannedValue:
    args = () if node.known else tuple([position[id(arg)] for arg in node.args])
    return PlannedValue(node.op, node.params, node.type, args, node.direct is not None)


def _phase(one: PhaseOf, position: dict[int, int]) -> PlannedPhase:
    """One phase of a movement; of its arguments those that the client holds come last."""
    node = one.outputs[0]
    arrays = [arg for arg in node.args if not arg.on_client]
    operands = [arg for arg in node.args if arg.on_client]
    types = CollectiveTypes(
        inputs=tuple(arg.type for arg in arrays if isinstance(arg.type, ArrayType)),
        operands=tuple(arg.type.value for arg in operands),
        outputs=tuple((output.params[1], output.type) for output in one.outputs),
    )
    return PlannedPhase(
        node.params[0],
        one.phase,
        phases_of(node),
        inputs=[position[id(arg)] for arg in arrays],
        operands=[position[id(arg)] for arg in operands],
        outputs=[position[id(output)] for output in one.outputs],
        params=params_of(node),
        types=types,
    )


def sweep_of(traversal: Traversal, stored: Set[int], position: Mapping[int, int]) -> PlannedSweep:
    """Number its values: inputs, then scalars, then steps, each in order of first use.

    ``stored`` are ids of nodes without a value yet that it finds stored all the same, ``position``
    says by what number the plan calls a node.
    """

    inputs, steps = _values_of(traversal, stored)
    scalars, slot = _scalar_slots([*steps, *traversal.reductions], len(inputs))
    number = {id(node): k for k, node in enumerate(inputs)}
    number |= {id(node): k for k, node in enumerate(steps, len(inputs) + len(scalars))}

    def arguments(step: Node) -> tuple[int, ...]:
        me = id(step)
        return tuple(
            [slot[me, k] if arg.on_client else number[id(arg)] for k, arg in enumerate(step.args)]
        )

    def view_of(node: Node) -> PlannedView | None:
        if node.op not in MOVES or node.value is not None or id(node) in stored:
            return None
        index = position[id(node.args[1])] if node.op == GATHER else None
        return PlannedView(node.args[0].type, node.op, node.params or (0, 1), index)

    stores, reductions = traversal.stores, traversal.reductions
    held = stored | {id(node) for node in stores}
    views = [view_of(node) for node in inputs]
    structure = Sweep(
        inputs=tuple([node.type.value for node in inputs]),
        scalars=tuple([node.type.value for node in scalars]),
        steps=tuple([Step(s.op, arguments(s), s.type.value, s.params) for s in steps]),
        outputs=tuple([number[id(node)] for node in stores]),
        reductions=tuple([Reduction(r.op, arguments(r), *r.params) for r in reductions]),
    )
    return PlannedSweep(
        combine(structure),
        traversal.space,
        inputs=[
            position[id(node if view is None else node.args[0])]
            for node, view in zip(inputs, views, strict=True)
        ],
        views=views,
        scalars=[position[id(node)] for node in scalars],
        stores=[position[id(node)] for node in stores],
        reductions=[position[id(node)] for node in reductions],
        products=[_factors(node, position, held) for node in reductions],
        reasons=[traversal.reasons[id(node)] for node in stores],
    )


def _values_of(traversal: Traversal, stored: Set[int]) -> tuple[list[Node], list[Node]]:
    """The arrays that it reads, and those that it computes, each in order of first use."""
    inputs: list[Node] = []
    steps: list[Node] = []
    done: set[int] = set()
    for root in (*traversal.stores, *_reduced_arrays(traversal)):
        stack = [root]
        while stack:
            node = stack[-1]
            me = id(node)
            if me in done:
                stack.pop()
                continue
            if node.value is not None or node.op in _THERE or me in stored:
                inputs.append(node)
            else:
                args = [arg for arg in node.args if not arg.on_client and id(arg) not in done]
                if args:
                    stack += args[::-1]
                    continue
                steps.append(node)
            done.add(me)
            stack.pop()
    return inputs, steps


def _reduced_arrays(traversal: Traversal) -> list[Node]:
    """The arrays that it reduces."""
    return [arg for one in traversal.reductions for arg in one.args if not arg.on_client]


def _scalar_slots(
    steps: Sequence[Node], first: int
) -> tuple[list[Node], dict[tuple[int, int], int]]:
    """The runtime scalars of a sweep, and which one each argument of a step or reduction is.

    Constant numbers get a slot for each use, so that two which happen to be equal, as a step size
    of one and a literal one, do not make another structure and another kernel of the same
    expression. Constant arrays, as indices that are read and written, travel once.
    """
    scalars: list[Node] = []
    slot: dict[tuple[int, int], int] = {}
    shared: dict[int, int] = {}
    for step in steps:
        for k, arg in enumerate(step.args):
            if not arg.on_client:
                continue
            is_number = arg.op == "const" and not arg.type.shape
            if is_number or id(arg) not in shared:
                shared[id(arg)] = first + len(scalars)
                scalars.append(arg)
            slot[id(step), k] = shared[id(arg)]
    return scalars, slot


def _factors(
    reduction: Node, position: Mapping[int, int], stored: Set[int]
) -> tuple[int, int] | None:
    factors = product_of(reduction, stored)
    return None if factors is None else (position[id(factors[0])], position[id(factors[1])])
