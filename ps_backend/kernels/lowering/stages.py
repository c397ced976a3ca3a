"""Which loop of a chunk computes which value, where calls come between the loops.

A call needs whole chunks: what it starts from must have been computed by a loop before it. So loops
and calls take turns, and every step belongs to the loop of one *stage*. Each is computed as late as
its users allow: then fewer values are carried from loop to loop through scratch arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ps_backend.program.sweep import Sweep


@dataclass(frozen=True, slots=True)
class Stages:
    """Stage ``s`` is the calls that come before loop ``s``, then that loop."""

    last: int
    of: dict[int, int]
    """By value: the stage of a call, after the loop that computes what it starts from, or of the
    loop that computes a step."""
    carried: frozenset[int]
    """Steps that later loops need too, or calls after the next one."""

    def renumbered(self, number: Mapping[int, int]) -> Stages:
        """The same of other values."""
        of = {number[value]: stage for value, stage in self.of.items()}
        return Stages(self.last, of, frozenset(number[value] for value in self.carried))


def stages_of(sweep: Sweep, called: Mapping[int, tuple[int, ...]]) -> Stages:
    """``called``: by value of each call what it takes; all other steps are those of loops."""
    first = len(sweep.inputs) + len(sweep.scalars)
    stage = dict.fromkeys(range(first), 0)  # the first at which each value can be had
    for value, step in enumerate(sweep.steps, first):
        waits = value in called
        args = called.get(value, step.args)
        stage[value] = max((stage[arg] + waits for arg in args), default=0)
    last = max(stage.values(), default=0)
    of = {value: stage[value] if value in called else last for value in range(first, len(stage))}
    reads = [
        (value, arg)
        for value in reversed(of)
        for arg in called.get(value, sweep.steps[value - first].args)
        if arg in of and arg not in called
    ]
    for value, arg in reads:
        of[arg] = min(of[arg], of[value] - (value in called))
    carried = {arg for value, arg in reads if of[arg] < of[value] - (value in called)}
    carried |= {value for value in sweep.results & of.keys() - called.keys() if of[value] < last}
    return Stages(last, of, frozenset(carried))
