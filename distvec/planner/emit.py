"""Fourth pass: loops into sweeps, the form that servers run."""

from __future__ import annotations

from distvec.expr import Node, topological
from distvec.planner.fuse import Loop
from distvec.planner.plan import Plan, PlannedProgram, PlannedSweep
from distvec.planner.schedule import Schedule
from ps_backend.program import Reduction, Step, Sweep, ValueType


def emit(schedule: Schedule) -> Plan:
    """The plan: per program its sweeps, and the nodes that their inputs and outputs stand for."""
    stored: set[int] = set()
    programs = []
    for stage in schedule.stages:
        sweeps = [_sweep(loop, stored) for loop in stage.loops]
        programs.append(PlannedProgram(sweeps, stage.scalars))
        stored |= {id(node) for loop in stage.loops for node in loop.stores}
    return Plan(programs, schedule.before)


def _type(node: Node) -> ValueType:
    return ValueType(node.dtype.name)


def _sweep(loop: Loop, stored: set[int]) -> PlannedSweep:
    """Number the values of a loop: inputs, then scalars, then steps, each in order of first use."""

    def is_input(node: Node) -> bool:
        return node.space is not None and (node.known or id(node) in stored)

    roots = [*loop.stores, *(reduction.args[0] for reduction in loop.reductions)]
    order = topological(roots, lambda node: node.known or node.space is None or is_input(node))
    inputs = [node for node in order if is_input(node)]
    steps = [node for node in order if node.space is not None and not is_input(node)]
    # Constants get a slot for each use, so that two which happen to be equal, as a step size of one
    # and a literal one, do not make another structure and another kernel of the same expression.
    uses = [(step, k) for step in steps for k, arg in enumerate(step.args) if arg.space is None]
    number = {id(node): k for k, node in enumerate(inputs)}
    slot: dict[tuple[int, int], int] = {}
    scalars: list[Node] = []
    shared: dict[int, int] = {}
    for step, position in uses:
        arg = step.args[position]
        if arg.op == "const" or id(arg) not in shared:
            shared[id(arg)] = len(inputs) + len(scalars)
            scalars.append(arg)
        slot[id(step), position] = shared[id(arg)]
    first = len(inputs) + len(scalars)
    number |= {id(node): k for k, node in enumerate(steps, first)}

    def argument(step: Node, position: int) -> int:
        arg = step.args[position]
        return slot[id(step), position] if arg.space is None else number[id(arg)]

    structure = Sweep(
        inputs=tuple(_type(node) for node in inputs),
        scalars=tuple(_type(node) for node in scalars),
        steps=tuple(
            Step(node.op, tuple(argument(node, k) for k in range(len(node.args))), _type(node))
            for node in steps
        ),
        outputs=tuple(number[id(node)] for node in loop.stores),
        reductions=tuple(Reduction(r.op, number[id(r.args[0])]) for r in loop.reductions),
    )
    reasons = [loop.reasons[id(node)] for node in loop.stores]
    return PlannedSweep(
        structure, loop.space, inputs, scalars, list(loop.stores), list(loop.reductions), reasons
    )
