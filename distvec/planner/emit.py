"""Traversals into sweeps, the form that servers run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from distvec.graph.expr import Node, topological
from distvec.graph.moves import GATHER, MOVEMENT, MOVES, params_of, phases_of
from distvec.planner.combine import combine
from distvec.planner.fuse import Traversal
from distvec.planner.plan import (
    PlannedPhase,
    PlannedProgram,
    PlannedSweep,
    PlannedView,
    Template,
)
from distvec.planner.schedule import PhaseOf, Schedule
from distvec.planner.simplify import product_of
from ps_backend.program.movements import MovementTypes
from ps_backend.program.sweep import Reduction, Step, Sweep
from ps_backend.program.types import ArrayType

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
    return Template(programs, [position[id(node)] for node in schedule.before])


def _phase(one: PhaseOf, position: dict[int, int]) -> PlannedPhase:
    """One phase of a movement; of its arguments those that the client holds come last."""
    node = one.outputs[0]
    arrays = [arg for arg in node.args if not arg.on_client]
    operands = [arg for arg in node.args if arg.on_client]
    types = MovementTypes(
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

    def is_input(node: Node) -> bool:
        is_there = node.known or node.op in _THERE or id(node) in stored
        return is_there and not node.on_client

    def view_of(node: Node) -> PlannedView | None:
        if node.known or node.op not in MOVES or id(node) in stored:
            return None
        index = position[id(node.args[1])] if node.op == GATHER else None
        return PlannedView(node.args[0].type, node.op, node.params or (0, 1), index)

    roots = [*traversal.stores, *_reduced(traversal)]
    order = list(topological(roots, lambda node: node.on_client or is_input(node)))
    inputs = [node for node in order if is_input(node)]
    steps = [node for node in order if not node.on_client and not is_input(node)]
    scalars, slot = _scalar_slots([*steps, *traversal.reductions], len(inputs))
    number = {id(node): k for k, node in enumerate(inputs)}
    number |= {id(node): k for k, node in enumerate(steps, len(inputs) + len(scalars))}

    def arguments(step: Node) -> tuple[int, ...]:
        return tuple(
            slot[id(step), k] if arg.on_client else number[id(arg)]
            for k, arg in enumerate(step.args)
        )

    held = stored | {id(node) for node in traversal.stores}
    structure = Sweep(
        inputs=tuple(node.type.value for node in inputs),
        scalars=tuple(node.type.value for node in scalars),
        steps=tuple(Step(s.op, arguments(s), s.type.value, s.params) for s in steps),
        outputs=tuple(number[id(node)] for node in traversal.stores),
        reductions=tuple(Reduction(r.op, arguments(r), *r.params) for r in traversal.reductions),
    )
    return PlannedSweep(
        combine(structure),
        traversal.space,
        inputs=[position[id(node.args[0] if view_of(node) else node)] for node in inputs],
        views=[view_of(node) for node in inputs],
        scalars=[position[id(node)] for node in scalars],
        stores=[position[id(node)] for node in traversal.stores],
        reductions=[position[id(node)] for node in traversal.reductions],
        products=[_factors(node, position, held) for node in traversal.reductions],
        reasons=[traversal.reasons[id(node)] for node in traversal.stores],
    )


def _reduced(traversal: Traversal) -> list[Node]:
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
