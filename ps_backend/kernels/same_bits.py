"""Which sweeps have the same bits whichever engine runs them."""

from __future__ import annotations

from ps_backend.kernels.numpy_loops import has_loop
from ps_backend.program import ops
from ps_backend.program.combination import Combination
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.sweep import Reduction, Step, Sweep
from ps_backend.program.types import FLOATS


def has_same_bits(sweep: Sweep) -> bool:
    """Whether another engine may run ``sweep`` from one call to the next, unseen.

    That is what consists of steps that are rounded as IEEE 754 says, have no rounding, or are
    NumPy's own loop everywhere, and of reductions whose order is fixed, or does not matter.
    """
    first = len(sweep.inputs) + len(sweep.scalars)
    return all(
        isinstance(step, Combination) or _is_exact(sweep, value, step)
        for value, step in enumerate(sweep.steps, first)
    ) and all(_has_one_order(sweep, reduction) for reduction in sweep.reductions)


def _has_one_order(sweep: Sweep, reduction: Reduction) -> bool:
    reducer = REDUCERS[reduction.op]
    wide = reducer.accumulators(sweep.types[reduction.args[0]].dtype)[0]
    is_found = reducer.picks or reducer.locates or reducer.truth  # among the values: not rounded
    return wide.kind != "f" or is_found or reducer.in_order is not None


def _is_exact(sweep: Sweep, value: int, step: Step) -> bool:
    row = ops.TABLE[step.op]
    taken = [sweep.types[arg].dtype for arg in step.args]
    if row.converts:  # of floats out of range C leaves it open what an integer is
        return step.type.dtype in (*FLOATS, "bool") or not {*taken} & {*FLOATS}
    if row.numexpr is not None or step.op == "where" or step.type.dtype not in FLOATS:
        return True
    return (
        row.loop and value not in sweep.constants and has_loop(step.op, (*taken, step.type.dtype))
    )
