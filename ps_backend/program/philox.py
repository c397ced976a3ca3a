"""Random numbers that depend on (key, index) alone: Philox4x32-10.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, whose
known-answer values the tests check. Being a pure function of the index, a vector of random numbers
has the same bits on any number of servers and is computed inside the pass that uses it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
TO_UNIT = 2.0**-53

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def words(counter: Any, key: Any) -> list[npt.NDArray[np.uint64]]:
    """Four 32-bit words (as uint64) for four counter words and two key words, all broadcast."""
    c0, c1, c2, c3 = (np.asarray(word, dtype=np.uint64) & _LOW for word in counter)
    k0, k1 = (np.asarray(word, dtype=np.uint64) & _LOW for word in key)
    for _ in range(ROUNDS):
        p0 = np.uint64(MULTIPLIERS[0]) * c0
        p1 = np.uint64(MULTIPLIERS[1]) * c2
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ k0, p1 & _LOW, (p0 >> _32) ^ c3 ^ k1, p0 & _LOW
        k0 = (k0 + np.uint64(WEYL[0])) & _LOW
        k1 = (k1 + np.uint64(WEYL[1])) & _LOW
    return [c0, c1, c2, c3]


def uniform(key: Any, index: Any) -> npt.NDArray[np.float64]:
    """Uniform numbers in [0, 1), 53 random bits each, for int64 ``key`` and ``index``."""
    key = np.asarray(key).astype(np.int64).view(np.uint64)
    index = np.asarray(index).astype(np.int64).view(np.uint64)
    zero = np.uint64(0)
    w = words((index & _LOW, index >> _32, zero, zero), (key & _LOW, key >> _32))
    bits = (w[0] << np.uint64(21)) ^ (w[1] >> np.uint64(11))
    return bits.astype(np.float64) * TO_UNIT
