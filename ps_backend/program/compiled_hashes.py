"""XXH64 of many pieces of bytes, compiled: see ``key_hashes``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_0, _64 = np.uint64(0), np.uint64(64)
_1, _7, _12, _18 = np.uint64(1), np.uint64(7), np.uint64(12), np.uint64(18)
_11, _23, _27, _31 = np.uint64(11), np.uint64(23), np.uint64(27), np.uint64(31)
_8, _29, _32, _33 = np.uint64(8), np.uint64(29), np.uint64(32), np.uint64(33)

_compiled = njit(nogil=True, cache=True)


@_compiled
def xxh64(data: Any, lengths: Any, hashes: Any) -> None:
    """``hashes[k]``, uint64, of the next ``lengths[k]`` bytes of ``data``."""
    at = 0
    for k in range(len(lengths)):
        end = at + lengths[k]
        if lengths[k] >= 32:
            a, b, c, d = _P1 + _P2, _P2, _0, _0 - _P1
            while at + 32 <= end:
                a = _round(a, _read(data, at, 8))
                b = _round(b, _read(data, at + 8, 8))
                c = _round(c, _read(data, at + 16, 8))
                d = _round(d, _read(data, at + 24, 8))
                at += 32
            h = _left(a, _1) + _left(b, _7) + _left(c, _12) + _left(d, _18)
            for lane in (a, b, c, d):
                h = (h ^ _round(_0, lane)) * _P1 + _P4
        else:
            h = _P5
        h += np.uint64(lengths[k])
        while at + 8 <= end:
            h = _left(h ^ _round(_0, _read(data, at, 8)), _27) * _P1 + _P4
            at += 8
        if at + 4 <= end:
            h = _left(h ^ _read(data, at, 4) * _P1, _23) * _P2 + _P3
            at += 4
        while at < end:
            h = _left(h ^ np.uint64(data[at]) * _P5, _11) * _P1
            at += 1
        h = (h ^ (h >> _33)) * _P2
        h = (h ^ (h >> _29)) * _P3
        hashes[k] = h ^ (h >> _32)


@_compiled
def _round(lane: Any, word: Any) -> Any:
    return _left(lane + word * _P2, _31) * _P1


@_compiled
def _left(word: Any, bits: Any) -> Any:
    return (word << bits) | (word >> (_64 - bits))


@_compiled
def _read(data: Any, at: Any, size: Any) -> Any:
    """A little-endian word of so many bytes."""
    word = _0
    for k in range(size):
        word |= np.uint64(data[at + k]) << (np.uint64(k) * _8)
    return word
