"""Compiled loops over any number of vectors: inner products and linear combinations.

The vectors are given as tables of addresses, so one compilation serves every count. A caller walks
its arrays in chunks small enough that a chunk of every vector stays in the cache; each function
does one chunk. All vectors are float64 and contiguous.
"""

from __future__ import annotations

import numpy as np
from numba import carray, njit  # type: ignore[attr-defined]

from ps_backend.kernels.chains import ADD, DIVIDE, SCALE, START
from ps_backend.kernels.simd import LANES, TOGETHER, WIDTH, dotter, float64_at, scaled_adder

_start = scaled_adder(1, fresh=True)
_add_1, _add_2, _add_4, _add_8 = (scaled_adder(count) for count in (1, 2, 4, 8))
_dot_1, _dot_2, _dot_3, _dot_4 = (dotter(count) for count in (1, 2, 3, 4))


@njit(
    "void(int64[::1], int64[::1], int64[::1], float64[::1], int64, int64)",
    nogil=True,
    error_model="numpy",
    cache=True,
)
def multi_dot(firsts, counts, seconds, totals, low, length):  # type: ignore[no-untyped-def]
    """Add the inner products of one chunk, elements ``low`` to ``low + length``, to ``totals``.

    Group ``g`` takes vector ``firsts[g]`` with the ``counts[g]`` vectors from ``TOGETHER * g`` on
    in ``seconds``; ``totals`` is laid out as ``seconds``. An inner product has the bits of the
    ``_sum`` of its products, whatever others are computed beside it.
    """
    offset, ahead = 8 * low, 8 * length
    whole = length // LANES * LANES
    sums = np.empty(TOGETHER)
    for group in range(len(firsts)):
        first, count, at = firsts[group], counts[group], group * TOGETHER
        others = seconds.ctypes.data + 8 * at
        if count == 4:
            _dot_4(first, others, sums.ctypes.data, offset, whole, ahead)
        elif count == 3:
            _dot_3(first, others, sums.ctypes.data, offset, whole, ahead)
        elif count == 2:
            _dot_2(first, others, sums.ctypes.data, offset, whole, ahead)
        else:
            _dot_1(first, others, sums.ctypes.data, offset, whole, ahead)
        x = carray(float64_at(first + offset), (length,))
        for k in range(count):
            y = carray(float64_at(seconds[at + k] + offset), (length,))
            for i in range(whole, length):
                sums[k] += x[i] * y[i]
            totals[at + k] += sums[k]


@njit(
    "void(int64[::1], int64[::1], float64[::1], int64, float64[::1])",
    nogil=True,
    error_model="numpy",
    cache=True,
)
def chain(links, vectors, coefficients, low, y):  # type: ignore[no-untyped-def]
    """Run the links of a chain on ``y``, for the elements from ``low`` on.

    Where no link is ``START``, ``y`` holds the value to go on from. ``vectors`` has an address for
    each link, used by those that take a vector. Every operation is rounded, in the order of the
    links, so the bits are those of the same arithmetic in NumPy.
    """
    offset, ahead = 8 * low, 8 * len(y)
    whole = len(y) // WIDTH * WIDTH
    into = y.ctypes.data
    k = 0
    while k < len(links):
        kind, coefficient = links[k], coefficients[k]
        xs, scales = vectors.ctypes.data + 8 * k, coefficients.ctypes.data + 8 * k
        count = 1
        if kind == START:
            _start(into, xs, scales, offset, whole, ahead)
            x = carray(float64_at(vectors[k] + offset), y.shape)
            for i in range(whole, len(y)):
                y[i] = coefficient * x[i]
        elif kind == ADD:
            while count < 8 and k + count < len(links) and links[k + count] == ADD:
                count += 1
            if count == 8:
                _add_8(into, xs, scales, offset, whole, ahead)
            elif count >= 4:
                count = 4
                _add_4(into, xs, scales, offset, whole, ahead)
            elif count >= 2:
                count = 2
                _add_2(into, xs, scales, offset, whole, ahead)
            else:
                _add_1(into, xs, scales, offset, whole, ahead)
            for other in range(k, k + count):
                x = carray(float64_at(vectors[other] + offset), y.shape)
                for i in range(whole, len(y)):
                    y[i] += coefficients[other] * x[i]
        elif kind == SCALE:
            for i in range(len(y)):
                y[i] *= coefficient
        elif kind == DIVIDE:
            for i in range(len(y)):
                y[i] /= coefficient
        else:
            for i in range(len(y)):
                y[i] += coefficient
        k += count
