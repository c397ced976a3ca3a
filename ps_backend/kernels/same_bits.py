"""Which sweeps have the same bits whichever engine runs them."""

from __future__ import annotations

from ps_backend.kernels.numpy_loops import has_loop
from ps_backend.program import ops
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.sweep import Combination, Reduction, Step, Sweep
from ps_backend.program.types import FLOATS


def has_same_bits(sweep: Sweep) -> bool:
    """Whether another engine may run ``sweep`` from one call to the next, unseen.

    That is what consists of steps whose text has NumPy's bits, or that are NumPy's own loop
    everywhere, and of reductions whose order is fixed, or does not matter.
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
    if step.type.dtype not in FLOATS or (row.numba and not (row.loop or row.ulps)):
        return True
    if value in sweep.constants:
        return False
    if step.op == "sigmoid":  # ``lower`` makes an exponential and a text of it
        return has_loop("exp", (step.type.dtype,) * 2)
    return row.loop and has_loop(step.op, (*taken, step.type.dtype))
