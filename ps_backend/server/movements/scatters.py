"""Scatters: each server sends its pairs of an index and a value to the owner of the place.

An owner applies those of the first server first, and each server's in their order, which is that of
the index array: so the bits are NumPy's, and the number of servers does not show.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.moving.random_access import put
from ps_backend.program.scatters import KIND, ufunc_of
from ps_backend.server.movements.pairs import leave_pairs, taken_pairs
from ps_backend.server.movements.phase import Phase, Run

Array = npt.NDArray[Any]

_PIECE = 1 << 20
"""Elements that are applied, or copied, without a pause."""


def phases() -> dict[str, tuple[Run, ...]]:
    """By kind, the functions of the phases."""
    return {KIND: (_leave, _apply)}


def _leave(phase: Phase) -> None:
    _, has_base = phase.params
    index, *values = phase.inputs[has_base:]
    ((_, made),) = phase.call.types.outputs
    leave_pairs(phase, index, values[0] if values else None, made.space)


def _apply(phase: Phase) -> None:
    way, has_base = phase.params
    types = phase.call.types
    sent = types.inputs[has_base + 1 :]
    out, ((_, made),) = phase.outputs[0], types.outputs
    _begin(phase, out, phase.inputs[0] if has_base else phase.operands[0])
    low, _ = phase.range_of(made.space)
    ufunc = ufunc_of(way)
    for indices, values in taken_pairs(phase, (sent[0].row, sent[0].dtype) if sent else None):
        put(out, low, indices, phase.operands[-1] if values is None else values, ufunc)


def _begin(phase: Phase, out: Array, base: Array) -> None:
    """What is there before."""
    step = max(1, _PIECE // max(1, int(np.prod(out.shape[1:]))))
    for low in range(0, len(out), step):
        some = slice(low, low + step)
        np.copyto(out[some], base[some] if base.shape == out.shape else base)
        phase.pause()
