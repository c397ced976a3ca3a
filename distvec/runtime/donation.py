"""Which vectors a program may overwrite: those that nobody will hold any more once it has run.

``x = x - 0.1 * g`` makes a new vector while the old one dies. Where all the vectors that a program
stores can take over the memory of such dying ones, it needs no memory of its own, and the servers
write in place. Only then: a program that gives memory away cannot be undone, and so must not be one
that fails on some server for want of memory.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from distvec.planner.plan import Plan

LEAST_BYTES = 1 << 20
"""Two copies of smaller vectors cost less than finding out whether one would do."""

_probe = [object()]
_IN_LIST = sys.getrefcount(_probe[0])
"""The count of an object that a list alone holds, while it is asked for."""


def references(items: Sequence[object], k: int) -> int:
    """How many references there are to ``items[k]`` besides that of the list ``items``."""
    return sys.getrefcount(items[k]) - _IN_LIST


def find_donors(plan: Plan, values: list[Any]) -> dict[int, int]:
    """Per vector that the last program stores, the dying input whose memory it takes over.

    All as positions in ``plan.nodes``; ``values`` are the values there so far. Empty if the memory
    of dying inputs is not enough for all, or if the plan might have to be run again.
    """
    program = plan.template.programs[-1]
    if any(plan.nodes[position].direct is not None for position in program.scalars):
        return {}  # an expanded inner product may cancel, and then its vectors are needed
    wanted = [position for sweep in program.sweeps for position in sweep.stores]
    if not wanted or any(_bytes(plan, position) < LEAST_BYTES for position in wanted):
        return {}
    dying = _dying(plan, values)
    donors: dict[int, int] = {}
    for sweep in program.sweeps:
        free = [position for position in sweep.inputs if position in dying]
        for position in sweep.stores:
            dtype = plan.nodes[position].dtype
            fitting = [donor for donor in free if plan.nodes[donor].dtype == dtype]
            if not fitting:
                return {}
            donors[position] = fitting[0]
            free.remove(fitting[0])
    return donors


def _bytes(plan: Plan, position: int) -> int:
    node = plan.nodes[position]
    return 0 if node.space is None else node.space.length * node.dtype.itemsize


def _dying(plan: Plan, values: list[Any]) -> set[int]:
    """Positions of known vectors that only ``plan`` still refers to.

    From the roots down: a node goes with the plan if every reference to it is the plan's own or
    that of a node which lets go of its arguments, because it gets its value or goes itself.
    Nothing is said of references that cannot be accounted for; the vectors behind them stay.
    """
    nodes = plan.nodes
    settled = {
        position
        for program in plan.template.programs
        for sweep in program.sweeps
        for position in (*sweep.stores, *sweep.reductions)
    }
    settled.update(position for program in plan.template.programs for position in program.scalars)
    settled.update(plan.template.before)
    accounted = Counter(id(node) for pair in plan.aliases for node in pair)
    dying = set()
    for position in range(len(nodes) - 1, -1, -1):
        alone = references(nodes, position) == accounted[id(nodes[position])]
        if position in settled or alone:
            accounted.update(map(id, nodes[position].args))
        is_vector = nodes[position].known and nodes[position].space is not None
        # The buffer, likewise: its node alone holds it, besides ``values``.
        if alone and is_vector and references(values, position) == 1:
            dying.add(position)
    return dying
