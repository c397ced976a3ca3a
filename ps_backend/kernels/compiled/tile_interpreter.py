"""An interpreter, compiled once for all sweeps: inner loops, one after the other, on tiles.

A tile is so short that the values between its steps stay in the innermost caches; one tile runs
through all instructions, and is reduced, before the next begins. Most loops are NumPy's, called by
address, without the interpreter lock; those of ``llvm_loops`` are here.
"""

from __future__ import annotations

import numpy as np
from distvec_scalar_math import _short_dot  # type: ignore[import-not-found]
from numba import carray, njit  # type: ignore[attr-defined]

from ps_backend.kernels.compiled.llvm_loops import (
    MOST,
    SUM_OF_FLOATS,
    call_loop,
    chunk_sum,
    pointer_to,
    run_own,
    sum_of_integers,
)
from ps_backend.program.summation_order import CHUNK

_ONES = np.ones(CHUNK)
_compiled = njit(nogil=True, error_model="numpy", cache=True)


@_compiled
def run_tiles(  # type: ignore[no-untyped-def]
    instructions, operands, reductions, tree, scratch, low, high, tile, block, index
):
    """Run all instructions on the elements from ``low`` to ``high``, ``tile`` at a time.

    An instruction is ``(loop, context, data, first, count)``: one of ``numpy_loops``, or the number
    of one of ``llvm_loops``, and which of the operands it takes, the last one being its result. An
    operand is ``(address, step, stride)``: where it begins, by how many bytes a tile moves on for
    each element, and from one element to the next. With a step of -1 it is a register, at that
    offset of the memory at ``scratch``.

    A reduction is ``(loop, context, data, operand, partials, size, column)``: of each ``block`` of
    elements a result of ``size`` bytes goes to the array at ``partials``. ``tree`` has the nodes of
    the block that it is at, one column for each sum of floats. ``index`` is the global index of
    element 0, which begins a block.
    """
    most = 2
    for k in range(len(instructions)):
        most = max(most, instructions[k, 4])
    table = np.empty(2 * most + 3, np.int64)
    start = table.ctypes.data
    at = low
    while at < high:
        end = min(at + tile, high)
        if len(reductions):
            end = min(end, (at // block + 1) * block)
        length = end - at
        for k in range(len(instructions)):
            first, count = instructions[k, 3], instructions[k, 4]
            for j in range(count):
                step = operands[first + j, 1]
                table[j] = operands[first + j, 0] + (scratch if step < 0 else step * at)
                table[count + 1 + j] = operands[first + j, 2]
            table[count] = length
            if instructions[k, 0] < MOST:
                run_own(instructions[k, 0], start, length, index + at)
                continue
            call_loop(
                instructions[k, 0],
                instructions[k, 1],
                instructions[k, 2],
                start,
                start + 8 * count,
                start + 8 * (count + 1),
            )
        for k in range(len(reductions)):
            step = operands[reductions[k, 3], 1]
            data = operands[reductions[k, 3], 0] + (scratch if step < 0 else step * at)
            size = reductions[k, 5]
            result = reductions[k, 4] + size * (at // block)
            if reductions[k, 0] == SUM_OF_FLOATS:
                _climb(tree, reductions[k, 6], data, at % block, length)
                if end % block == 0 or end == high:
                    _descend(tree, reductions[k, 6], end - at // block * block, result)
                continue
            if reductions[k, 0] < MOST:
                total = sum_of_integers(reductions[k, 0], data, length)
                sums = carray(pointer_to(np.int64, result, 0), (1,))
                sums[0] = total if at % block == 0 else sums[0] + total
                continue
            if at % block == 0:
                _copy(data, result, size)
            table[0] = table[2] = result
            table[1] = data
            table[3] = length
            table[4] = table[6] = 0
            table[5] = operands[reductions[k, 3], 2]
            call_loop(
                reductions[k, 0],
                reductions[k, 1],
                reductions[k, 2],
                start,
                start + 24,
                start + 32,
            )
        at = end
    return table[0]  # a use after the calls: numba frees an array after its last one


@_compiled
def _climb(tree, column, data, skip, length):  # type: ignore[no-untyped-def]
    """Take some chunks of a block, ``skip`` elements after its begin, into ``tree``."""
    for low in range(0, length, CHUNK):
        if length - low >= CHUNK:
            total = chunk_sum(data + 8 * low)
        else:
            count = length - low
            total = _short_dot(carray(pointer_to(np.float64, data, low), (count,)), _ONES[:count])
        level, number = 0, (skip + low) // CHUNK
        while number >> level & 1:
            total = tree[level, column] + total
            level += 1
        tree[level, column] = total


@_compiled
def _descend(tree, column, length, result):  # type: ignore[no-untyped-def]
    """Store the sum of a block of so many elements."""
    number = (length + CHUNK - 1) // CHUNK
    level = 0
    while not number >> level & 1:
        level += 1
    total = tree[level, column]
    level += 1
    while number >> level:
        if number >> level & 1:
            total = tree[level, column] + total
        level += 1
    carray(pointer_to(np.float64, result, 0), (1,))[0] = total


@_compiled
def _copy(source, target, size):  # type: ignore[no-untyped-def]
    here = carray(pointer_to(np.uint8, source, 0), (size,))
    there = carray(pointer_to(np.uint8, target, 0), (size,))
    for i in range(size):
        there[i] = here[i]
