"""Which sweeps have the same bits whichever engine runs them."""

from __future__ import annotations

from ps_backend.kernels.numpy_loops import has_loop
from ps_backend.program import ops
from ps_backend.program.combination import Combination
from ps_backend.program.sweep import Step, Sweep
from ps_backend.program.types import FLOATS


def has_same_bits(sweep: Sweep) -> bool:
    """Whether another engine may run ``sweep`` from one call to the next, unseen.

    That is what reduces nothing, of steps that are rounded as IEEE 754 says, have no rounding, or
    are NumPy's own loop everywhere.
    """
    first = len(sweep.inputs) + len(sweep.scalars)
    return not sweep.reductions and all(
        isinstance(step, Combination) or _is_exact(sweep, value, step)
        for value, step in enumerate(sweep.steps, first)
    )


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
