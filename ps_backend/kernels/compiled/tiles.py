"""An interpreter, compiled once for all sweeps: NumPy's inner loops, one after the other, on tiles.

A tile is so short that what is computed on the way stays in the innermost caches; one tile runs
through all instructions before the next begins. The loops are called by address, without the
interpreter lock.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ps_backend.kernels.compiled.simd import call_loop


@njit(nogil=True, error_model="numpy", cache=True)
def run_tiles(instructions, operands, scratch, low, high, tile):  # type: ignore[no-untyped-def]
    """Run all instructions on the elements from ``low`` to ``high``, ``tile`` at a time.

    An instruction is ``(loop, context, data, first, count)``: one of ``numpy_loops``, and which of
    the operands it takes, the last one being its result. An operand is ``(address, step, stride)``:
    where it begins, by how many bytes a tile moves on for each element, and from one element to the
    next. With a step of -1 it is a register, at that offset of the memory at ``scratch``.
    """
    most = 0
    for k in range(len(instructions)):
        most = max(most, instructions[k, 4])
    table = np.empty(2 * most + 1, np.int64)
    start = table.ctypes.data
    for at in range(low, high, tile):
        length = min(tile, high - at)
        for k in range(len(instructions)):
            first, count = instructions[k, 3], instructions[k, 4]
            for j in range(count):
                step = operands[first + j, 1]
                table[j] = operands[first + j, 0] + (scratch if step < 0 else step * at)
                table[count + 1 + j] = operands[first + j, 2]
            table[count] = length
            call_loop(
                instructions[k, 0],
                instructions[k, 1],
                instructions[k, 2],
                start,
                start + 8 * count,
                start + 8 * (count + 1),
            )
    return table[0]  # a use after the calls: numba frees an array after its last one
