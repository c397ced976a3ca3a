"""The compiled loops of collectives.

They have no branches on values that random elements decide. A random place of a long array takes
the time of a way to the main memory, unless many are under way at once: so what is needed
``_AHEAD`` elements later is asked for; a processor alone looks less far ahead, and takes three
times as long.

Of sorts, keys are unsigned integers. Where a merge carries indices along, these are arrays; else
None. Of running results, each row depends on the one before, block by block, of ``(blocks, rows,
width)``: ``states`` are what the blocks go on from, ``(blocks, width)``, in the dtype that is
computed in; where a row is one number it stays in a register. Inputs may be of other dtypes than
results.
"""

from __future__ import annotations

from math import frexp
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_AHEAD = 128
_NEAR = 1 << 15  # elements that are in the cache
_I32 = ir.IntType(32)
_BYTE_POINTER = ir.IntType(8).as_pointer()


@intrinsic
def _prefetch(context: Any, array: Any, place: Any) -> Any:
    """Ask for the line of memory where an element is; no place can fault."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.bitcast(builder.gep(view.data, [arguments[1]]), _BYTE_POINTER)
        kind = ir.FunctionType(ir.VoidType(), [_BYTE_POINTER, _I32, _I32, _I32])
        function = builder.module.declare_intrinsic("llvm.prefetch", (_BYTE_POINTER,), kind)
        builder.call(function, [pointer, _I32(0), _I32(3), _I32(1)])
        return context.get_dummy_value()

    return types.void(array, place), generate


@njit(cache=True, nogil=True)
def take(source: Any, low: int, wanted: Any, length: int, out: Any) -> None:
    """``out[k] = source[wanted[k] - low]``; ``length`` is added to indices below 0."""
    for k in range(len(wanted)):
        index = wanted[k]
        out[k] = source[np.uint64(index + length * (index < 0) - low)]


@njit(cache=True, nogil=True)
def take_far(source: Any, low: int, wanted: Any, length: int, out: Any) -> None:
    """The same where the elements are far from each other, and from the caches."""
    count = len(wanted)
    for k in range(count):
        ahead, index = wanted[min(k + _AHEAD, count - 1)], wanted[k]
        _prefetch(source, ahead + length * (ahead < 0) - low)  # type: ignore[call-arg]
        out[k] = source[np.uint64(index + length * (index < 0) - low)]


@njit(cache=True, nogil=True)
def compress(mask: Any, source: Any, out: Any) -> None:
    """``out[:] = source[mask]``: as many elements as ``out`` has."""
    k = i = 0
    while k < len(out):
        out[k] = source[i]
        k += mask[i]
        i += 1


@njit(cache=True, nogil=True)
def assign_at(out: Any, low: int, wanted: Any, length: int, values: Any) -> None:
    """``out[wanted[k] - low] = values[k]``, one after the other; indices below 0 as ``take``."""
    count = len(wanted)
    for k in range(count):
        ahead, index = wanted[min(k + _AHEAD, count - 1)], wanted[k]
        _prefetch(out, ahead + length * (ahead < 0) - low)  # type: ignore[call-arg]
        out[np.uint64(index + length * (index < 0) - low)] = values[k]


@njit(cache=True, nogil=True)
def add_at(out: Any, low: int, wanted: Any, length: int, values: Any) -> None:
    """``out[wanted[k] - low] += values[k]``, one after the other; indices below 0 as ``take``."""
    count = len(wanted)
    if len(out) <= _NEAR:
        for k in range(count):
            index = wanted[k]
            out[np.uint64(index + length * (index < 0) - low)] += values[k]
        return
    for k in range(count):
        ahead, index = wanted[min(k + _AHEAD, count - 1)], wanted[k]
        _prefetch(out, ahead + length * (ahead < 0) - low)  # type: ignore[call-arg]
        out[np.uint64(index + length * (index < 0) - low)] += values[k]


@njit(cache=True, nogil=True)
def extremes(indices: Any) -> Any:
    """The least and the greatest of at least one index."""
    least = greatest = indices[0]
    for k in range(len(indices)):  # in vector registers, which ``min`` or an iterator would prevent
        index = indices[k]
        least = index if index < least else least
        greatest = index if index > greatest else greatest
    return least, greatest


@njit(cache=True, nogil=True)
def count_below(indices: Any, starts: Any, length: int, below: Any) -> None:
    """Add to ``below`` how many indices are less than each of ``starts``."""
    for k in range(len(starts)):
        start, found = starts[k], 0
        for index in indices:
            found += index + length * (index < 0) < start
        below[k] += found


@njit(cache=True, nogil=True)
def distribute_by_owner(
    indices: Any, first: int, starts: Any, length: int, cursors: Any, places: Any, wanted: Any
) -> None:
    """Write each index, and where it stood, to the next place of its owner, from ``cursors`` on.

    They stood at ``first`` and after.
    """
    if len(starts) == 1:  # two cursors stay in registers: three times as fast
        start, left, right = starts[0], cursors[0], cursors[1]
        for k in range(len(indices)):
            index = indices[k]
            index += length * (index < 0)
            is_right = index >= start
            cursor = right if is_right else left
            places[cursor] = first + k
            wanted[cursor] = index
            right += is_right
            left += 1 - is_right
        cursors[0], cursors[1] = left, right
        return
    for k in range(len(indices)):
        index = indices[k]
        index += length * (index < 0)
        owner = 0
        for start in starts:
            owner += index >= start
        cursor = cursors[owner]
        places[cursor] = first + k
        wanted[cursor] = index
        cursors[owner] = cursor + 1


@njit(cache=True, nogil=True)
def scatter(values: Any, places: Any, out: Any) -> None:
    """``out[places[k]] = values[k]``, where ``places`` mostly ascend."""
    for k in range(len(places)):
        out[places[k]] = values[k]


@njit(cache=True, nogil=True)
def count(numbers: Any, counts: Any) -> int:
    """Add to ``counts`` how often each number is among ``numbers``; how many are none of them.

    In turns into two tables, as a number that is there many times in a row has to wait for its
    own last count.
    """
    bins = np.uint64(len(counts))
    first, second = np.zeros(bins + 1, np.int64), np.zeros(bins + 1, np.int64)
    for k in range(0, len(numbers) - 1, 2):
        first[min(np.uint64(numbers[k]), bins)] += 1  # as unsigned, negative ones are too large
        second[min(np.uint64(numbers[k + 1]), bins)] += 1
    if len(numbers) % 2:
        first[min(np.uint64(numbers[-1]), bins)] += 1
    for number in range(len(counts)):
        counts[number] += first[number] + second[number]
    return int(first[bins] + second[bins])


@njit(cache=True, nogil=True)
def _join(into: Any, other: Any, numbers: Any) -> None:
    """Add the sums in ``other``, which are those of ``numbers``, and leave zeros there."""
    bins = len(into)
    if 8 * len(numbers) < bins:  # few of them are not zero
        for one in numbers:
            place = np.uint64(one)
            if place < np.uint64(bins):
                into[place] += other[place]
                other[place] = 0.0
    else:
        for number in range(bins):
            into[number] += other[number]
            other[number] = 0.0


@njit(cache=True, nogil=True)
def weigh(numbers: Any, weights: Any, size: int, level: int, spare: Any, sums: Any) -> None:
    """Add the weights of each number of ``2 ** level`` blocks to ``sums``.

    In a block one after the other, and blocks in their tree; of one block to what is there. Two
    blocks go on side by side, as a sum has to wait for its own last one. ``spare``: ``level + 1``
    rows of zeros, which are there afterwards, too.
    """
    count, bins = len(numbers), np.uint64(len(sums))
    if level == 0:
        for k in range(count):
            number = np.uint64(numbers[k])
            if number < bins:
                sums[number] += weights[k]
        return
    row = np.arange(level + 1)  # of the left child of each level; the last one is free
    end = node = 0
    while end < count:
        low, middle = end, min(end + size, count)
        end = min(middle + size, count)
        left, right = spare[row[0]], spare[row[level]]
        for k in range(low, low + end - middle):
            number = np.uint64(numbers[k])
            if number < bins:
                left[number] += weights[k]
            number = np.uint64(numbers[k + size])
            if number < bins:
                right[number] += weights[k + size]
        for k in range(low + end - middle, middle):
            number = np.uint64(numbers[k])
            if number < bins:
                left[number] += weights[k]
        _join(left, right, numbers[middle:end])
        node += 2
        height = 1
        while height < level and not node >> height & 1:
            begin = (node - (1 << height)) * size
            _join(spare[row[height]], spare[row[height - 1]], numbers[begin:end])
            height += 1
        if height < level:
            row[height - 1], row[height] = row[height], row[height - 1]
    _join(sums, spare[row[level - 1]], numbers)


@njit(cache=True, nogil=True)
def bin_numbers(values: Any, edges: Any, scale: float, numbers: Any) -> None:
    """Between which two edges each value is, the last one included; -1 outside of all, and for NaN.

    ``scale``, bins by the whole width, is nearly always right where all bins have one width. Where
    the edges show that it is wrong, they are searched, without a branch on values.
    """
    count, bins = len(edges), len(edges) - 1
    first, last = edges[0], edges[bins]
    misses = 0
    for k in range(len(values)):
        value = values[k]
        if not (value >= first and value <= last):
            numbers[k] = -1
            continue
        if misses * 8 <= k + 64:
            number = min(int((value - first) * scale), bins - 1)
            if value >= edges[number] and (number == bins - 1 or value < edges[number + 1]):
                numbers[k] = number
                continue
            misses += 1
        low, left = 0, count
        while left > 1:
            half = left // 2
            low = low + half if edges[low + half] <= value else low
            left -= half
        numbers[k] = min(low, bins - 1)


@njit(cache=True, nogil=True)
def split(a: Any, b: Any, rank: Any) -> Any:
    """How many of the first ``rank`` keys of sorted ``a`` and ``b`` merged are from ``a``.

    Of equal keys those of ``a`` come first.
    """
    low, high = max(0, rank - len(b)), min(rank, len(a))
    while low < high:
        middle = (low + high) // 2
        if b[rank - middle - 1] < a[middle]:
            high = middle
        else:
            low = middle + 1
    return low


@njit(nogil=True)
def _step(a, b, out, a_indices, b_indices, out_indices, i, j, k):  # type: ignore[no-untyped-def]
    """Write the less of ``a[i]`` and ``b[j]``; 1 if it is that of ``b``."""
    first, second = a[i], b[j]
    is_second = second < first
    out[k] = second if is_second else first
    if out_indices is not None:
        from_a, from_b = a_indices[i], b_indices[j]  # both, so that there is nothing to branch on
        out_indices[k] = from_b if is_second else from_a
    return 1 if is_second else 0


@njit(nogil=True)
def _finish(  # type: ignore[no-untyped-def]
    a, b, out, a_indices, b_indices, out_indices, i, i_end, j, j_end, k
):
    """Merge what is left of two ranges, one of which may be empty."""
    while i < i_end and j < j_end:
        took = _step(a, b, out, a_indices, b_indices, out_indices, i, j, k)
        i, j, k = i + 1 - took, j + took, k + 1
    out[k : k + i_end - i] = a[i:i_end]
    out[k + i_end - i : k + i_end - i + j_end - j] = b[j:j_end]
    if out_indices is not None:
        out_indices[k : k + i_end - i] = a_indices[i:i_end]
        out_indices[k + i_end - i : k + i_end - i + j_end - j] = b_indices[j:j_end]


@njit(cache=True, nogil=True)
def merge(a, b, out, a_indices, b_indices, out_indices):  # type: ignore[no-untyped-def]
    """Merge two sorted runs of keys; of equal ones those of ``a`` come first.

    Each step waits for the one before, so four quarters of the result are merged side by side.
    """
    quarter = len(out) // 4
    i1, i2, i3 = split(a, b, quarter), split(a, b, 2 * quarter), split(a, b, 3 * quarter)
    j1, j2, j3 = quarter - i1, 2 * quarter - i2, 3 * quarter - i3
    p0, p1, p2, p3 = 0, i1, i2, i3
    q0, q1, q2, q3 = 0, j1, j2, j3
    k = 0
    while True:
        steps = min(i1 - p0, j1 - q0, i2 - p1, j2 - q1, i3 - p2, j3 - q2)
        steps = min(steps, len(a) - p3, len(b) - q3)
        if steps <= 0:
            break
        for at in range(k, k + steps):
            t0 = _step(a, b, out, a_indices, b_indices, out_indices, p0, q0, at)
            t1 = _step(a, b, out, a_indices, b_indices, out_indices, p1, q1, at + quarter)
            t2 = _step(a, b, out, a_indices, b_indices, out_indices, p2, q2, at + 2 * quarter)
            t3 = _step(a, b, out, a_indices, b_indices, out_indices, p3, q3, at + 3 * quarter)
            p0, q0 = p0 + 1 - t0, q0 + t0
            p1, q1 = p1 + 1 - t1, q1 + t1
            p2, q2 = p2 + 1 - t2, q2 + t2
            p3, q3 = p3 + 1 - t3, q3 + t3
        k += steps
    for p, p_end, q, q_end, at in (
        (p0, i1, q0, j1, k),
        (p1, i2, q1, j2, k + quarter),
        (p2, i3, q2, j3, k + 2 * quarter),
        (p3, len(a), q3, len(b), k + 3 * quarter),
    ):
        _finish(a, b, out, a_indices, b_indices, out_indices, p, p_end, q, q_end, at)


PICKS = {"maximum": 0, "minimum": 1, "fmax": 2, "fmin": 3}
"""Ufuncs that give one of two floats, by name: a loop is compiled once for all of them."""

_LARGE, _SMALL = 1e150, 1e-150
"""Between them no product of two factors leaves the range of floats."""

_compiled = njit(nogil=True, error_model="numpy", cache=True)


@_compiled
def sums(x, states):  # type: ignore[no-untyped-def]
    """Add the rows of each block to its state."""
    blocks, rows, width = x.shape
    done = 0
    if width == 1:
        done = blocks // 4 * 4
        for k in range(0, done, 4):  # side by side, as each waits for its own last result
            a, b, c, d = states[k, 0], states[k + 1, 0], states[k + 2, 0], states[k + 3, 0]
            for i in range(rows):
                a += x[k, i, 0]
                b += x[k + 1, i, 0]
                c += x[k + 2, i, 0]
                d += x[k + 3, i, 0]
            states[k, 0], states[k + 1, 0], states[k + 2, 0], states[k + 3, 0] = a, b, c, d
    for k in range(done, blocks):
        for i in range(rows):
            for j in range(width):
                states[k, j] += x[k, i, j]


@_compiled
def running_sums(x, states, carries, y):  # type: ignore[no-untyped-def]
    """Rows of ``y``: the sum of the rows of ``x`` so far, with the carry into the block."""
    blocks, rows, width = x.shape
    for k in range(blocks):
        if width == 1:
            last, carry = states[k, 0], carries[k, 0]
            for i in range(rows):
                last += x[k, i, 0]
                y[k, i, 0] = carry + last
        else:
            for i in range(rows):
                for j in range(width):
                    states[k, j] += x[k, i, j]
                    y[k, i, j] = carries[k, j] + states[k, j]


@_compiled
def products(x, fractions, exponents):  # type: ignore[no-untyped-def]
    """The product of the rows of each block, as ``scaled_product``."""
    blocks, rows, width = x.shape
    for k in range(blocks):
        for j in range(width):
            fraction, exponent = 1.0, 0
            for i in range(rows):
                factor = x[k, i, j]
                if not _SMALL < abs(factor) < _LARGE:
                    factor, shift = frexp(factor)
                    exponent += shift
                fraction *= factor
                if not _SMALL < abs(fraction) < _LARGE:
                    fraction, shift = frexp(fraction)
                    exponent += shift
            fraction, shift = frexp(fraction)
            fractions[k, j], exponents[k, j] = fraction, exponent + shift


@_compiled
def running_products(x, states, y):  # type: ignore[no-untyped-def]
    """Rows of ``y``: the state of the block times the rows of ``x`` so far."""
    blocks, rows, width = x.shape
    for k in range(blocks):
        if width == 1:
            last = states[k, 0]
            for i in range(rows):
                last *= x[k, i, 0]
                y[k, i, 0] = last
        else:
            for i in range(rows):
                for j in range(width):
                    states[k, j] *= x[k, i, j]
                    y[k, i, j] = states[k, j]


@njit(inline="always", error_model="numpy")
def _picked(number, a, b):  # type: ignore[no-untyped-def]
    if number == 0:
        return a if a >= b or a != a else b
    if number == 1:
        return a if a <= b or a != a else b
    if number == 2:
        return a if a >= b or b != b else b
    return a if a <= b or b != b else b


@_compiled
def pick(number, x, states, y):  # type: ignore[no-untyped-def]
    """Rows of ``y``: what is picked of the state of the block and the rows of ``x`` so far."""
    blocks, rows, width = x.shape
    for k in range(blocks):
        if width == 1:
            last = states[k, 0]
            fours = rows // 4 * 4
            for i in range(0, fours, 4):  # picked among themselves first: the same, but sooner
                a = x[k, i, 0]
                b = _picked(number, a, x[k, i + 1, 0])
                c = _picked(number, b, x[k, i + 2, 0])
                d = _picked(number, c, x[k, i + 3, 0])
                y[k, i, 0] = _picked(number, last, a)
                y[k, i + 1, 0] = _picked(number, last, b)
                y[k, i + 2, 0] = _picked(number, last, c)
                last = _picked(number, last, d)
                y[k, i + 3, 0] = last
            for i in range(fours, rows):
                last = _picked(number, last, x[k, i, 0])
                y[k, i, 0] = last
        else:
            for i in range(rows):
                for j in range(width):
                    states[k, j] = _picked(number, states[k, j], x[k, i, j])
                    y[k, i, j] = states[k, j]


@_compiled
def recur(a, b, states, y):  # type: ignore[no-untyped-def]
    """Rows of ``y``: ``a`` times the row before, that of ``states`` at first, plus that of ``b``.

    ``a`` is like ``b``, or has extents of 1 instead. A ``y`` with no rows gets none; the last ones
    are left in ``states``.
    """
    blocks, rows, width = b.shape
    outer = 1 if a.shape[0] == blocks else 0
    down = 1 if a.shape[1] == rows else 0
    right = 1 if a.shape[2] == width else 0
    stores = y.shape[1] > 0
    done = 0
    if width == 1:
        done = blocks // 4 * 4
        for k in range(0, done, 4):  # side by side, as each waits for its own last result
            p, q, r, s = states[k, 0], states[k + 1, 0], states[k + 2, 0], states[k + 3, 0]
            for i in range(rows):
                at = i * down
                p = a[k * outer, at, 0] * p + b[k, i, 0]
                q = a[(k + 1) * outer, at, 0] * q + b[k + 1, i, 0]
                r = a[(k + 2) * outer, at, 0] * r + b[k + 2, i, 0]
                s = a[(k + 3) * outer, at, 0] * s + b[k + 3, i, 0]
                if stores:
                    y[k, i, 0], y[k + 1, i, 0], y[k + 2, i, 0], y[k + 3, i, 0] = p, q, r, s
            states[k, 0], states[k + 1, 0], states[k + 2, 0], states[k + 3, 0] = p, q, r, s
    for k in range(done, blocks):
        for i in range(rows):
            for j in range(width):
                factor = a[k * outer, i * down, j * right]
                states[k, j] = factor * states[k, j] + b[k, i, j]
                if stores:
                    y[k, i, j] = states[k, j]
