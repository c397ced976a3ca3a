"""The loops of sorts, compiled: without branches on what random elements decide.

Keys are unsigned integers. Where a merge carries indices along, these are arrays; else None.
"""

from __future__ import annotations

from typing import Any

from numba import njit

_DIGITS = 256


@njit(cache=True, nogil=True)
def encode(bits: Any, keys: Any, sign: Any, infinity: Any, flip: Any, equal_zeros: Any) -> None:
    """The keys of floats, which are given as ``bits``: see ``ordered_keys``."""
    nan = infinity | (infinity >> 1)
    for i in range(len(bits)):
        number = bits[i]
        magnitude = number & ~sign
        number = nan if magnitude > infinity else number
        number = magnitude if equal_zeros and magnitude == 0 else number
        keys[i] = (~number if number & sign else number | sign) ^ flip


@njit(cache=True, nogil=True)
def decode(keys: Any, bits: Any, sign: Any, flip: Any) -> None:
    """The floats, as ``bits``, that have ``keys``."""
    for i in range(len(keys)):
        number = keys[i] ^ flip
        bits[i] = number ^ sign if number & sign else ~number


@njit(cache=True, nogil=True)
def count_digits(keys: Any, shift: Any, counts: Any) -> None:
    """Count each value of 8 bits of the keys, ``shift`` bits from the lowest."""
    for key in keys:
        counts[(key >> shift) & (_DIGITS - 1)] += 1


@njit(cache=True, nogil=True)
def distribute(
    keys: Any, indices: Any, shift: Any, cursors: Any, new_keys: Any, new_indices: Any
) -> None:
    """Write keys and their indices to the next place of their digit, from ``cursors`` on."""
    for i in range(len(keys)):
        digit = (keys[i] >> shift) & (_DIGITS - 1)
        place = cursors[digit]
        cursors[digit] = place + 1
        new_keys[place] = keys[i]
        new_indices[place] = indices[i]


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
