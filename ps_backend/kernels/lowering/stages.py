"""Which loop of a chunk computes which value, where calls come between the loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ps_backend.kernels.lowering.split import Call
from ps_backend.program.sweep import Sweep


@dataclass(frozen=True, slots=True)
class Stages:
    """Stage ``s`` is the calls that come before loop ``s``, then that loop."""

    last: int
    of_call: tuple[int, ...]
    """The stage of every call: after the loop that computes what it starts from."""
    of_step: dict[int, int]
    """The stage whose loop computes a step, by number of its value."""
    carried: tuple[int, ...]
    """Steps that later loops need too, through scratch arrays."""


def stages_of(sweep: Sweep, calls: Sequence[Call]) -> Stages:
    """Every step is computed as late as its users allow: fewer values are carried that way."""
    own = len(sweep.inputs) - len(calls)
    first = len(sweep.inputs) + len(sweep.scalars)
    soonest, of_call = _soonest(sweep, calls, own, first)
    last = max([*soonest, *of_call], default=0)
    of_step = dict.fromkeys(range(first, len(sweep.types)), last)
    for call, stage in zip(calls, of_call, strict=True):
        for arg in call.args:
            if arg >= first:
                of_step[arg] = min(of_step[arg], stage - 1)
    carried = set()
    for value in reversed(range(first, len(sweep.types))):
        for arg in sweep.steps[value - first].args:
            if arg >= first:
                of_step[arg] = min(of_step[arg], of_step[value])
    for value in range(first, len(sweep.types)):
        carried |= {
            a for a in sweep.steps[value - first].args if of_step.get(a, last) < of_step[value]
        }
    kept = {*sweep.outputs, *(reduction.arg for reduction in sweep.reductions)}
    carried |= {value for value in kept if of_step.get(value, last) < last}
    for call, stage in zip(calls, of_call, strict=True):
        carried |= {arg for arg in call.args if of_step.get(arg, stage - 1) < stage - 1}
    return Stages(last, of_call, of_step, tuple(sorted(carried & of_step.keys())))


def _soonest(
    sweep: Sweep, calls: Sequence[Call], own: int, first: int
) -> tuple[list[int], tuple[int, ...]]:
    """The first stage at which each value can be had, and the stages of the calls."""
    of_call = [0] * len(calls)
    while True:
        soonest = [0] * own + of_call + [0] * len(sweep.scalars)
        for step in sweep.steps:
            soonest.append(max((soonest[arg] for arg in step.args), default=0))
        again = [max((soonest[arg] + 1 for arg in call.args), default=0) for call in calls]
        if again == of_call:
            return soonest, tuple(of_call)
        of_call = again
