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

from collections.abc import Sequence
from fractions import Fraction
from math import factorial
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
    given = np.broadcast_arrays(*(np.asarray(word, dtype=np.uint64) for word in counter))
    k0, k1 = (np.asarray(word, dtype=np.uint64) & _LOW for word in key)
    shape = np.broadcast_shapes(given[0].shape, k0.shape, k1.shape)
    c0, c1, c2, c3, p0, p1 = made = [np.empty(shape, np.uint64) for _ in range(6)]
    for word, one in zip(made[:4], given, strict=True):
        np.bitwise_and(one, _LOW, out=word)
    for _ in range(ROUNDS):  # in place, as memory takes longer than the arithmetic
        np.multiply(c0, np.uint64(MULTIPLIERS[0]), out=p0)
        np.multiply(c2, np.uint64(MULTIPLIERS[1]), out=p1)
        np.right_shift(p1, _32, out=c0)
        np.right_shift(p0, _32, out=c2)
        c0 ^= c1
        c0 ^= k0
        c2 ^= c3
        c2 ^= k1
        np.bitwise_and(p1, _LOW, out=c1)
        np.bitwise_and(p0, _LOW, out=c3)
        k0 = (k0 + np.uint64(WEYL[0])) & _LOW
        k1 = (k1 + np.uint64(WEYL[1])) & _LOW
    return made[:4]


def uniform(key: Any, index: Any) -> npt.NDArray[np.float64]:
    """Uniform numbers in [0, 1), 53 random bits each, for int64 ``key`` and ``index``."""
    key = np.asarray(key).astype(np.int64).view(np.uint64)
    index = np.asarray(index).astype(np.int64).view(np.uint64)
    zero = np.uint64(0)
    w = words((index & _LOW, index >> _32, zero, zero), (key & _LOW, key >> _32))
    bits = (w[0] << np.uint64(21)) ^ (w[1] >> np.uint64(11))
    return bits.astype(np.float64) * TO_UNIT


ONE, MANTISSA = 0x3FF << 52, (1 << 52) - 1
ROOT_HALF = 0x3FE6A09E667F3BCD
"""The bits of 1, those of a mantissa, and the bits of the root of 1/2."""
LARGE, LARGE_AND_BIAS = 0x433 << 52, float((1 << 52) + 0x3FF)
"""The bits of 2**52; and that plus the bias of an exponent."""
LOGARITHM = tuple(-4 / (2 * k + 1) for k in range(10))
"""Of ``-2 log((1 + s) / (1 - s)) / s``, by powers of ``s**2``."""
LN_QUARTER = -1.3862943611198906
_TURN = 2 * Fraction(314159265358979323846264338327950288, 10**35)
SINE = tuple(float((-1) ** k * _TURN ** (2 * k + 1) / factorial(2 * k + 1)) for k in range(11))
"""Of ``sin(2 pi turn) / turn``, by powers of ``turn**2``, for up to a quarter of a turn."""


def normal(radius_key: Any, angle_key: Any, index: Any) -> npt.NDArray[np.float64]:
    """Numbers of the standard normal distribution, for int64 keys and ``index``.

    The cosine branch of Box and Muller, ``sqrt(-2 log(1 - u)) cos(2 pi v)`` of two uniform numbers,
    to some units of the last place. Nothing but arithmetic and roots: the bits are the same on
    every processor, where logarithms and cosines of C libraries differ.
    """
    shifted = (1.0 - uniform(radius_key, index)).view(np.int64) + (ONE - ROOT_HALF)
    exponent = (shifted >> 52) - 0x3FF
    above_one = ((shifted & MANTISSA) + ROOT_HALF).view(np.float64) - 1.0
    s = above_one / (above_one + 2.0)
    radius = np.sqrt(_polynomial(LOGARITHM, s * s) * s + exponent * LN_QUARTER)
    turn = np.abs(uniform(angle_key, index) - 0.5) - 0.25
    found: npt.NDArray[np.float64] = radius * (_polynomial(SINE, turn * turn) * turn)
    return found


def _polynomial(coefficients: Sequence[float], x: npt.NDArray[np.float64]) -> Any:
    """By the rule of Horner."""
    result = x * coefficients[-1] + coefficients[-2]
    for coefficient in coefficients[-3::-1]:
        result *= x
        result += coefficient
    return result


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
