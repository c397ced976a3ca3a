"""Compiled loops over any number of vectors: inner products and linear combinations.

The vectors are given as tables of addresses, so one compilation serves every count. A caller walks
its arrays in chunks small enough that a chunk of every vector stays in the cache; each function
does one chunk. The vectors are contiguous and all float64 or all float32; each function is compiled
for either when it is first called with it.
"""

from __future__ import annotations

import numpy as np
from distvec_scalar_math import _short_dot  # type: ignore[import-not-found]
from numba import carray, njit  # type: ignore[attr-defined]

from ps_backend.kernels.compiled.linear_tables import ADD, DIVIDE, SCALE, START
from ps_backend.kernels.compiled.llvm_loops import LINE, TOGETHER, dotter, pointer_to, scaled_adder
from ps_backend.program.summation_order import CHUNK

_start = scaled_adder(1, fresh=True)
_add_1, _add_2, _add_4, _add_8 = (scaled_adder(count) for count in (1, 2, 4, 8))
_dot_1, _dot_2, _dot_3, _dot_4 = (dotter(count) for count in (1, 2, 3, 4))


_compiled = njit(nogil=True, error_model="numpy", cache=True)


@_compiled
def multi_dot(dtype, firsts, counts, seconds, tree, number, low, length):  # type: ignore[no-untyped-def]
    """Take the inner products of one chunk into ``tree``: see ``climb``.

    The chunk is that of ``number`` in its block, and elements ``low`` to ``low + length`` of the
    vectors. Group ``g`` takes vector ``firsts[g]`` with the ``counts[g]`` vectors from
    ``TOGETHER * g`` on in ``seconds``; ``tree``, float64, has a column for each of these. An inner
    product has the bits of the sum of its products in float64, whatever others are computed beside
    it.
    """
    sums = np.empty(TOGETHER)
    for group in range(len(firsts)):
        first, count, at = firsts[group], counts[group], group * TOGETHER
        others, into = seconds.ctypes.data + seconds.itemsize * at, sums.ctypes.data
        if length < CHUNK:
            x = carray(pointer_to(dtype, first, low), (length,))
            for k in range(count):
                sums[k] = _short_dot(x, carray(pointer_to(dtype, seconds[at + k], low), (length,)))
        elif count == 4:
            _dot_4(dtype, first, others, into, low, length)
        elif count == 3:
            _dot_3(dtype, first, others, into, low, length)
        elif count == 2:
            _dot_2(dtype, first, others, into, low, length)
        else:
            _dot_1(dtype, first, others, into, low, length)
        for k in range(count):
            total, level = sums[k], 0
            while number >> level & 1:
                total = tree[level, at + k] + total
                level += 1
            tree[level, at + k] = total


@_compiled
def multi_dot_end(tree, chunks, products):  # type: ignore[no-untyped-def]
    """The inner products of a block of so many ``chunks``, of which ``tree`` has the nodes."""
    level = 0
    while not chunks >> level & 1:
        level += 1
    products[:] = tree[level]
    level += 1
    while chunks >> level:
        if chunks >> level & 1:
            for k in range(len(products)):
                products[k] = tree[level, k] + products[k]
        level += 1


@_compiled
def combine(links, vectors, coefficients, low, y):  # type: ignore[no-untyped-def]
    """Run the links of a combination on ``y``, for the elements from ``low`` on.

    Where no link is ``START``, ``y`` holds the value to go on from. ``vectors`` has an address for
    each link, used by those that take a vector; ``coefficients`` are of the dtype of ``y``. Every
    operation is rounded, in the order of the links, so the bits are those of the same arithmetic
    in NumPy.
    """
    dtype, size, length = y.dtype, y.itemsize, len(y)
    width = LINE // size
    whole = length // width * width
    into = y.ctypes.data
    k = 0
    while k < len(links):
        kind, coefficient = links[k], coefficients[k]
        xs = vectors.ctypes.data + vectors.itemsize * k
        scales = coefficients.ctypes.data + size * k
        count = 1
        if kind == START:
            _start(dtype, into, xs, scales, low, whole, length)
            x = carray(pointer_to(dtype, vectors[k], low), y.shape)
            for i in range(whole, length):
                y[i] = coefficient * x[i]
        elif kind == ADD:
            while count < 8 and k + count < len(links) and links[k + count] == ADD:
                count += 1
            if count == 8:
                _add_8(dtype, into, xs, scales, low, whole, length)
            elif count >= 4:
                count = 4
                _add_4(dtype, into, xs, scales, low, whole, length)
            elif count >= 2:
                count = 2
                _add_2(dtype, into, xs, scales, low, whole, length)
            else:
                _add_1(dtype, into, xs, scales, low, whole, length)
            for other in range(k, k + count):
                x = carray(pointer_to(dtype, vectors[other], low), y.shape)
                for i in range(whole, length):
                    y[i] += coefficients[other] * x[i]
        elif kind == SCALE:
            for i in range(length):
                y[i] *= coefficient
        elif kind == DIVIDE:
            for i in range(length):
                y[i] /= coefficient
        else:
            for i in range(length):
                y[i] += coefficient
        k += count


_LONG_CHUNK = 2048


@_compiled
def combine_over(links, vectors, coefficients, y):  # type: ignore[no-untyped-def]
    """``combine`` over all of ``y``, chunk by chunk; the vectors begin where ``y`` does."""
    for low in range(0, len(y), _LONG_CHUNK):
        combine(links, vectors, coefficients, low, y[low : low + _LONG_CHUNK])


@_compiled
def multi_dot_over(dtype, firsts, counts, seconds, products, block_size, length):  # type: ignore[no-untyped-def]
    """``multi_dot`` over vectors of ``length``: in ``products`` by block."""
    tree = np.empty((64, len(seconds)))
    totals = np.empty(len(seconds))
    for b in range(products.shape[1]):
        start, high = b * block_size, min((b + 1) * block_size, length)
        for low in range(start, high, CHUNK):
            size = min(CHUNK, high - low)
            multi_dot(dtype, firsts, counts, seconds, tree, (low - start) // CHUNK, low, size)
        multi_dot_end(tree, (high - start + CHUNK - 1) // CHUNK, totals)
        products[:, b] = totals
