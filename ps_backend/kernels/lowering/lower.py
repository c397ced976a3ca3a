"""Ops in terms of others, where that lets NumPy's vector code do the expensive part."""

from __future__ import annotations

from ps_backend.program.sweep import Reduction, Step, Sweep

_SIGMOID = (("abs", 0), ("negative", -1), ("exp", -1), ("sigmoid_of_exp", 0, -1))
"""Steps in order; an argument 0 is that of the op, -1 the step before."""


def lower(sweep: Sweep) -> Sweep:
    """``sweep`` with every sigmoid computed from an exponential; the other steps as they are."""
    if not any(step.op == "sigmoid" for step in sweep.steps):
        return sweep
    first = len(sweep.inputs) + len(sweep.scalars)
    number = list(range(first))  # of each old value in the new sweep
    steps: list[Step] = []
    for step in sweep.steps:
        args = tuple(number[arg] for arg in step.args)
        if step.op == "sigmoid":
            for op, *places in _SIGMOID:
                last = first + len(steps) - 1
                chosen = tuple(args[0] if place == 0 else last for place in places)
                steps.append(Step(op, chosen, step.type))
        else:
            steps.append(Step(step.op, args, step.type))
        number.append(first + len(steps) - 1)
    return Sweep(
        sweep.inputs,
        sweep.scalars,
        tuple(steps),
        tuple(number[value] for value in sweep.outputs),
        tuple(Reduction(r.op, number[r.arg]) for r in sweep.reductions),
    )
