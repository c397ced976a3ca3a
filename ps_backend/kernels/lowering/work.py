"""How much there is to do for one element of a sweep."""

from __future__ import annotations

from ps_backend.program import ops
from ps_backend.program.sweep import Combination, Sweep

_COSTLY = 8
"""Additions that an exponential in vector code takes as long as."""
_VERY_COSTLY = 64
"""And what the C library or SciPy computes element by element."""


def work_of(sweep: Sweep) -> int:
    """So many additions: of the steps, and of reading and writing."""
    first = len(sweep.inputs) + len(sweep.scalars)
    work = len(sweep.inputs) + len(sweep.outputs) + len(sweep.reductions) + 1
    for value, step in enumerate(sweep.steps, first):
        if isinstance(step, Combination):
            work += len(step.links)
        elif value not in sweep.constants:
            row = ops.TABLE[step.op]
            work += (_COSTLY if row.numba else _VERY_COSTLY) if row.costly else 1
    return work
