"""Random numbers and permutations that depend on (key, index) alone: Philox4x32-10.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, whose
known-answer values the tests check. Being a pure function of the index, a vector of random numbers
has the same bits on any number of servers and is computed inside the pass that uses it.

A permutation is computed place by place: which index comes to a place, from (key, place). A Feistel
network is a permutation of the numbers of a given count of bits, whatever its round function; that
of a length below is had by walking along its cycle until a number is in range. Sources: Luby and
Rackoff, "How to construct pseudorandom permutations from pseudorandom functions", SIAM J. Comput.
17 (1988); Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002. The round
function is the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). A permutation takes no
memory and no message.
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


FEISTEL_ROUNDS = 6
MORE_ROUNDS, FEW_BITS = 24, 16
"""Of few bits more rounds are taken: then all permutations of five or six are equally frequent."""
FEISTEL_WEYL = 0x9E3779B97F4A7C15
FEISTEL_MIXERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
FEISTEL_SHIFTS = (30, 27, 31)


def permuted(key: Any, length: Any, place: Any) -> npt.NDArray[np.int64]:
    """The index at each int64 ``place`` of the permutation of ``0, ..., length - 1`` that ``key``
    names. Places that there are not stay as they are.
    """
    keys, lengths, places = np.broadcast_arrays(key, length, place)
    found: npt.NDArray[np.int64] = np.array(places, np.int64)
    inside = (found >= 0) & (found < lengths)
    if not inside.any():
        return found
    count = int(np.max(lengths, initial=0, where=inside))
    if (lengths[inside] != count).any():
        raise ValueError("permuted: one length for all places")
    bits = max(2, (count - 1).bit_length())
    halves = np.uint64(bits // 2), np.uint64(bits - bits // 2)
    rounds = MORE_ROUNDS if bits <= FEW_BITS else FEISTEL_ROUNDS
    todo = np.flatnonzero(inside)
    flat, flat_keys = found.reshape(-1), keys.reshape(-1).astype(np.int64).view(np.uint64)
    while len(todo):
        following = _feistel_network(flat_keys[todo], halves, rounds, flat[todo].view(np.uint64))
        flat[todo] = following.view(np.int64)
        todo = todo[flat[todo] >= count]
    return flat.reshape(found.shape)


def _feistel_network(
    key: Any, halves: tuple[np.uint64, np.uint64], rounds: int, value: Any
) -> npt.NDArray[np.uint64]:
    """One step along the cycle: all rounds of the network, on the bits of both halves."""
    one, (left, right) = np.uint64(1), halves
    high, low = value >> right, value & ((one << right) - one)
    for number in range(0, rounds, 2):
        high = high ^ (_feistel_round(low, key, number) & ((one << left) - one))
        low = low ^ (_feistel_round(high, key, number + 1) & ((one << right) - one))
    found: npt.NDArray[np.uint64] = (high << right) | low
    return found


def _feistel_round(half: Any, key: Any, number: int) -> Any:
    """The round function: 64 bits, of which any will do."""
    mixed = half + (key ^ np.uint64((number + 1) * FEISTEL_WEYL & (1 << 64) - 1))
    mixed = (mixed ^ (mixed >> np.uint64(FEISTEL_SHIFTS[0]))) * np.uint64(FEISTEL_MIXERS[0])
    mixed = (mixed ^ (mixed >> np.uint64(FEISTEL_SHIFTS[1]))) * np.uint64(FEISTEL_MIXERS[1])
    return mixed ^ (mixed >> np.uint64(FEISTEL_SHIFTS[2]))
