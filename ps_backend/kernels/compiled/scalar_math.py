"""Scalar helpers that compiled kernels call, each with NumPy's result on every special value.

Kernels import them from a copy in the cache folder (``machine_code.scalar_functions``), where each
is compiled once for all kernels: that is half of what a kernel takes to compile.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from ps_backend.kernels.compiled.llvm_loops import (
    LINE,
    call_loop,
    chunk_dot,
    chunk_sum,
    copy_past_caches,
    copy_through_caches,
    fence,
    normal,
    uniform,
)
from ps_backend.program import philox
from ps_backend.program.summation_order import CHUNK, LANES, LEAF, WIDE

_WEYL = np.uint64(philox.FEISTEL_WEYL)
_MIX0, _MIX1 = (np.uint64(one) for one in philox.FEISTEL_MIXERS)
_SHIFT0, _SHIFT1, _SHIFT2 = (np.uint64(one) for one in philox.FEISTEL_SHIFTS)
_FEW_BITS = philox.FEW_BITS
_FEISTEL_ROUNDS, _MORE_ROUNDS = philox.FEISTEL_ROUNDS, philox.MORE_ROUNDS
_1 = np.uint64(1)

_inline = njit(nogil=True, error_model="numpy", cache=True)

# Accumulations may be reordered for SIMD, and these loops hold nothing else: a user's arithmetic
# keeps NumPy's bits. They only read memory, so the compiler makes one version of each, without
# tests on addresses at run time that would choose between two orders of addition.
_reordered = njit(nogil=True, cache=True, fastmath={"reassoc", "nsz"})
_no_nans = njit(nogil=True, cache=True, fastmath={"reassoc", "nsz", "nnan"})


@_inline
def _apply1(loop, x, results):  # type: ignore[no-untyped-def]
    """Run one of ``numpy_loops``, perhaps in place."""
    table = np.empty(5, np.int64)
    table[0] = x.ctypes.data
    table[1] = results.ctypes.data
    table[2] = len(results)
    table[3], table[4] = x.itemsize, results.itemsize
    start = table.ctypes.data
    call_loop(loop[0], loop[1], loop[2], start, start + 16, start + 24)
    return table[2]  # a use after the call: numba frees an array after its last one


@_inline
def _apply2(loop, x, x_moves, y, y_moves, results):  # type: ignore[no-untyped-def]
    """The same of two arguments, either of which may be its first element everywhere.

    NumPy has loops of their own for that: ``x ** 0.5`` is a square root.
    """
    table = np.empty(7, np.int64)
    table[0], table[1] = x.ctypes.data, y.ctypes.data
    table[2] = results.ctypes.data
    table[3] = len(results)
    table[4], table[5] = x.itemsize * x_moves, y.itemsize * y_moves
    table[6] = results.itemsize
    start = table.ctypes.data
    call_loop(loop[0], loop[1], loop[2], start, start + 24, start + 32)
    return table[3]


@_inline
def _leaf(x, y):  # type: ignore[no-untyped-def]
    """The inner product of a leaf, or of less, in the order of ``program.summation_order``."""
    lanes = np.zeros(LANES)
    whole = len(x) // LANES * LANES
    for i in range(0, whole, LANES):
        for lane in range(LANES):
            lanes[lane] += np.float64(x[i + lane]) * np.float64(y[i + lane])
    width = LANES
    while width > 1:
        width //= 2
        for lane in range(width):
            lanes[lane] = lanes[2 * lane] + lanes[2 * lane + 1]
    total = lanes[0]
    for i in range(whole, len(x)):
        total += np.float64(x[i]) * np.float64(y[i])
    return total


@_inline
def _short_dot(x, y):  # type: ignore[no-untyped-def]
    """The inner product of a chunk that is the last of its block, and may be short."""
    half = 2 * LEAF
    left = _leaf(x[:LEAF], y[:LEAF])
    if len(x) > LEAF:
        left += _leaf(x[LEAF:half], y[LEAF:half])
    if len(x) <= half:
        return left
    right = _leaf(x[half : half + LEAF], y[half : half + LEAF])
    if len(x) > half + LEAF:
        right += _leaf(x[half + LEAF :], y[half + LEAF :])
    return left + right


_ONES = np.ones(CHUNK)


@_inline
def _sum(values):  # type: ignore[no-untyped-def]
    if len(values) == CHUNK:
        return chunk_sum(values.ctypes.data)
    return _short_dot(values, _ONES[: len(values)])


@_inline
def _dot(x, y):  # type: ignore[no-untyped-def]
    """The bits are those of the ``_sum`` of the products."""
    if len(x) == CHUNK:
        return chunk_dot(x.ctypes.data, y.ctypes.data)
    return _short_dot(x, y)


@_inline
def _put(target, values, stream):  # type: ignore[no-untyped-def]
    """Copy; with ``stream`` past the caches, where ``target`` must begin at a cache line."""
    line = LINE // values.itemsize
    whole = len(values) // line * line
    if stream:
        copy_past_caches(target.ctypes.data, values.ctypes.data, whole * values.itemsize)
    else:
        copy_through_caches(target.ctypes.data, values.ctypes.data, whole * values.itemsize)
    for i in range(whole, len(values)):
        target[i] = values[i]
    return values[0]  # a use after the call: numba frees an array after its last one


@_inline
def _settle():  # type: ignore[no-untyped-def]
    """Let nobody see anything later before what ``_put`` has stored."""
    fence()


@_reordered
def _int_sum(values):  # type: ignore[no-untyped-def]
    total = values.dtype.type(0)
    for i in range(len(values)):
        total += values[i]
    return total


@_reordered
def _count(mask):  # type: ignore[no-untyped-def]
    total = 0
    for i in range(len(mask)):
        total += mask[i]
    return total


@_reordered
def _int_prod(values):  # type: ignore[no-untyped-def]
    total = values.dtype.type(1)
    for i in range(len(values)):
        total *= values[i]
    return total


@_inline
def _prod(values):  # type: ignore[no-untyped-def]
    """A chunk of floats, in the order of ``program.summation_order``."""
    lanes = np.ones(WIDE)
    whole = len(values) // WIDE * WIDE
    for i in range(0, whole, WIDE):
        for lane in range(WIDE):
            lanes[lane] *= values[i + lane]
    for i in range(whole, len(values)):
        lanes[i - whole] *= values[i]
    width = WIDE
    while width > 1:
        width //= 2
        for lane in range(width):
            lanes[lane] *= lanes[lane + width]
    return lanes[0]


@_no_nans
def _smallest(values):  # type: ignore[no-untyped-def]
    result = values[0]
    for i in range(len(values)):
        result = values[i] if values[i] < result else result
    return result


@_no_nans
def _largest(values):  # type: ignore[no-untyped-def]
    result = values[0]
    for i in range(len(values)):
        result = values[i] if values[i] > result else result
    return result


@njit(nogil=True, cache=True)
def _count_nans(values):  # type: ignore[no-untyped-def]
    count = 0
    for i in range(len(values)):
        count += values[i] != values[i]
    return count


@_inline
def _min(values):  # type: ignore[no-untyped-def]
    return _smallest(values) if _count_nans(values) == 0 else values.dtype.type(np.nan)


@_inline
def _max(values):  # type: ignore[no-untyped-def]
    return _largest(values) if _count_nans(values) == 0 else values.dtype.type(np.nan)


@njit(nogil=True, cache=True)
def _least_number(values):  # type: ignore[no-untyped-def]
    lanes = np.full(LANES, values.dtype.type(np.inf))
    whole = len(values) // LANES * LANES
    for i in range(0, whole, LANES):
        for lane in range(LANES):  # a comparison with NaN is false
            lanes[lane] = values[i + lane] if values[i + lane] < lanes[lane] else lanes[lane]
    result = _smallest(lanes)
    for i in range(whole, len(values)):
        result = values[i] if values[i] < result else result
    only_nans = result == np.inf and _count_nans(values) == len(values)
    return values.dtype.type(np.nan) if only_nans else result


@njit(nogil=True, cache=True)
def _greatest_number(values):  # type: ignore[no-untyped-def]
    lanes = np.full(LANES, values.dtype.type(-np.inf))
    whole = len(values) // LANES * LANES
    for i in range(0, whole, LANES):
        for lane in range(LANES):
            lanes[lane] = values[i + lane] if values[i + lane] > lanes[lane] else lanes[lane]
    result = _largest(lanes)
    for i in range(whole, len(values)):
        result = values[i] if values[i] > result else result
    only_nans = result == -np.inf and _count_nans(values) == len(values)
    return values.dtype.type(np.nan) if only_nans else result


@_inline
def _argmin(values):  # type: ignore[no-untyped-def]
    where = 0
    for i in range(1, len(values)):
        if values[i] < values[where] or (values[i] != values[i] and values[where] == values[where]):
            where = i
    return where


@_inline
def _argmax(values):  # type: ignore[no-untyped-def]
    where = 0
    for i in range(1, len(values)):
        if values[i] > values[where] or (values[i] != values[i] and values[where] == values[where]):
            where = i
    return where


@_inline
def _maximum(a, b):  # type: ignore[no-untyped-def]
    return a if (a > b or a != a) else b  # of two zeros the second, as processors do


@_inline
def _minimum(a, b):  # type: ignore[no-untyped-def]
    return a if (a < b or a != a) else b


@_inline
def _fmax(a, b):  # type: ignore[no-untyped-def]
    return a if (a >= b or b != b) else b


@_inline
def _fmin(a, b):  # type: ignore[no-untyped-def]
    return a if (a <= b or b != b) else b


@_inline
def _sign(a):  # type: ignore[no-untyped-def]
    return a if a != a else type(a)((a > 0) - (a < 0))


@_inline
def _isinf(a):  # type: ignore[no-untyped-def]
    return (a == a) & (a - a != 0)


@_inline
def _rint(a):  # type: ignore[no-untyped-def]
    return np.rint(a)


@_inline
def _log(a):  # type: ignore[no-untyped-def]
    return np.log(a)


@_inline
def _remainder(a, b):  # type: ignore[no-untyped-def]
    mod = np.fmod(a, b)
    if b == 0:
        return mod
    if mod != 0:
        return mod + b if (b < 0) != (mod < 0) else mod
    return math.copysign(mod, b)


@_inline
def _floor_divide(a, b):  # type: ignore[no-untyped-def]
    if b == 0:
        return a / b
    mod = np.fmod(a, b)
    div = (a - mod) / b
    if mod != 0 and (b < 0) != (mod < 0):
        div -= 1
    if div == 0:
        return math.copysign(div, a / b)
    floored = np.floor(div)
    return floored + 1 if div - floored > 0.5 else floored


@_inline
def _int_pow(a, b):  # type: ignore[no-untyped-def]
    result = type(a)(1)
    while b > 0:
        if b & 1:
            result *= a
        a *= a
        b >>= 1
    return result


@_inline
def _to_uint64(a):  # type: ignore[no-untyped-def]
    return np.uint64(a) if a >= 2.0**63 else np.uint64(np.int64(a))


@_inline
def _uniform(key, index):  # type: ignore[no-untyped-def]
    return uniform(np.int64(key), np.int64(index))


@_inline
def _normal(radius_key, angle_key, index):  # type: ignore[no-untyped-def]
    return normal(np.int64(radius_key), np.int64(angle_key), np.int64(index))


@_inline
def _mixed(word):  # type: ignore[no-untyped-def]
    word = (word ^ (word >> _SHIFT0)) * _MIX0
    word = (word ^ (word >> _SHIFT1)) * _MIX1
    return word ^ (word >> _SHIFT2)


@_inline
def _permuted(key, length, place):  # type: ignore[no-untyped-def]
    if place < 0 or place >= length:
        return place
    bits = 2
    while bits < 63 and length - 1 >> bits:
        bits += 1
    right = np.uint64(bits - bits // 2)
    high_mask = (_1 << np.uint64(bits // 2)) - _1
    low_mask = (_1 << right) - _1
    rounds = _MORE_ROUNDS if bits <= _FEW_BITS else _FEISTEL_ROUNDS
    value = np.uint64(place)
    while True:
        high, low = value >> right, value & low_mask
        weyl = np.uint64(0)
        for _ in range(0, rounds, 2):
            weyl += _WEYL
            high ^= _mixed(low + (np.uint64(key) ^ weyl)) & high_mask
            weyl += _WEYL
            low ^= _mixed(high + (np.uint64(key) ^ weyl)) & low_mask
        value = (high << right) | low
        if value < np.uint64(length):
            return np.int64(value)
