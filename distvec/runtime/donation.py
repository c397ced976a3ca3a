"""Which vectors a program may overwrite: those that nobody will hold any more once it has run.

``x = x - 0.1 * g`` makes a new vector while the old one dies. Where all the vectors that a program
stores can take over the memory of such dying ones, it needs no memory of its own, and the servers
write in place. Only then: a program that gives memory away cannot be undone, and so must not be one
that fails on some server for want of memory.

The rule: A buffer never changes; the program that reads it last may only end it, and take over its
memory, if then no holder needs it. Holders are the arrays of the session, what the evaluation under
way was asked for, and what requests without an answer become if they fail (``holders``). A holder
needs the buffer it stands for, or those that it is still to be computed from: a node that gets its
value by the program at hand needs no other any more. Whoever reads a buffer by its id has an array
of their own that stands for it, and an array gets the value of another only under the holders'
lock, under which it is decided here. What is written in place is no buffer but a shared array of
the servers, which no program can name.
"""

from __future__ import annotations

from collections import Counter

from distvec.graph.node import Node
from distvec.planner.plan import Plan, PlannedProgram
from distvec.runtime.liveness import LiveValues
from ps_backend.program.row_ops import TABLE

LEAST_BYTES = 1 << 20
"""Two copies of smaller vectors cost less than finding out whether one would do."""


def find_donors(holders: LiveValues, plan: Plan) -> dict[int, int]:
    """Per vector that the last program stores, the dying input whose memory it takes over.

    All as positions in ``plan.nodes``. Empty if the memory of dying inputs is not enough for all,
    or if the plan might have to be run again.
    """
    program = plan.template.programs[-1]
    wanted = [position for sweep in program.sweeps for position in sweep.stores]
    if not wanted or min([plan.nodes[k].type.nbytes for k in wanted]) < LEAST_BYTES:
        return {}
    if program.before or program.after:
        return {}  # other servers may still fail
    for position in program.scalars:
        if plan.nodes[position].direct is not None:
            return {}  # an expanded inner product may cancel, and then its vectors are needed
    views = [view for sweep in program.sweeps for view in sweep.views if view is not None]
    by_index = any(view.index is not None for view in views)
    if by_index or any(sweep.structure.may_fail for sweep in program.sweeps):
        return {}  # an index may be out of range, on one server only
    # What two sweeps of the program read, the first must not write over.
    reads = Counter(position for sweep in program.sweeps for position in sweep.inputs)
    shared = {position for position, count in reads.items() if count > 1}
    dying = _dying(holders, plan) - _fetched(program) - shared
    donors: dict[int, int] = {}
    for sweep in program.sweeps:
        free = [position for position in sweep.inputs if position in dying]
        for position in sweep.stores:
            type = plan.nodes[position].type
            fitting = [donor for donor in free if plan.nodes[donor].type == type]
            if not fitting:
                return {}
            donors[position] = _best(plan, position, fitting)
            free.remove(donors[position])
    return donors


def _best(plan: Plan, position: int, fitting: list[int]) -> int:
    """Of arrays that are alike; one of which most stays as it is had best stay where it is."""
    node = plan.nodes[position]
    if node.op in TABLE and TABLE[node.op].over:
        own = [donor for donor in fitting if plan.nodes[donor] is node.args[0]]
        return (own or fitting)[0]
    return fitting[0]


def _fetched(program: PlannedProgram) -> set[int]:
    """What servers take from each other meanwhile, by its positions."""
    found = set()
    for sweep in program.sweeps:
        for position, view in zip(sweep.inputs, sweep.views, strict=True):
            if view is not None:
                found.add(position)
    return found


def _dying(holders: LiveValues, plan: Plan) -> set[int]:
    """Positions of the known vectors that nobody holds once ``plan`` has run.

    A buffer that two nodes stand for stays: the program would read it by the one while it writes
    over the other.
    """
    buffers = {
        position: node.value.id
        for position, node in enumerate(plan.nodes)
        if node.known and not node.on_client
    }
    uses = Counter(buffers.values())
    if holders.is_interrupted:
        return set()
    with holders.lock:
        held = holders.held(settled=_settled(plan))
    return {position for position, id in buffers.items() if id not in held and uses[id] == 1}


def _settled(plan: Plan) -> set[Node]:
    """The nodes that have their values once ``plan`` has run."""
    positions = set(plan.template.before)
    for program in plan.template.programs:
        positions.update(program.scalars)
        positions.update(program.made)
        for sweep in program.sweeps:
            positions.update(sweep.stores)
            positions.update(sweep.reductions)
    settled = {plan.nodes[position] for position in positions}
    settled.update(
        node for node, simplified in plan.aliases if simplified.known or simplified in settled
    )
    return settled
