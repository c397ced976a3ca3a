"""Random permutations computed place by place: which index comes to a place, from (key, place).

A Feistel network is a permutation of the numbers of a given count of bits, whatever its round
function; that of a length below is had by walking along its cycle until a number is in range.
Sources: Luby and Rackoff, "How to construct pseudorandom permutations from pseudorandom functions",
SIAM J. Comput. 17 (1988); Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002.
The round function is the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).

Being a function of the place alone, a permutation has the same values on any number of servers,
takes no memory and no message, and is computed inside the pass that uses it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

ROUNDS = 6
MORE_ROUNDS, FEW_BITS = 24, 16
"""Of few bits more rounds are taken: then all permutations of five or six are equally frequent."""
WEYL = 0x9E3779B97F4A7C15
MIXERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
SHIFTS = (30, 27, 31)


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
    rounds = MORE_ROUNDS if bits <= FEW_BITS else ROUNDS
    todo = np.flatnonzero(inside)
    flat, flat_keys = found.reshape(-1), keys.reshape(-1).astype(np.int64).view(np.uint64)
    while len(todo):
        following = _once(flat_keys[todo], halves, rounds, flat[todo].view(np.uint64))
        flat[todo] = following.view(np.int64)
        todo = todo[flat[todo] >= count]
    return flat.reshape(found.shape)


def _once(
    key: Any, halves: tuple[np.uint64, np.uint64], rounds: int, value: Any
) -> npt.NDArray[np.uint64]:
    """One step along the cycle: all rounds of the network, on the bits of both halves."""
    one, (left, right) = np.uint64(1), halves
    high, low = value >> right, value & ((one << right) - one)
    for number in range(0, rounds, 2):
        high = high ^ (_mixed(low, key, number) & ((one << left) - one))
        low = low ^ (_mixed(high, key, number + 1) & ((one << right) - one))
    found: npt.NDArray[np.uint64] = (high << right) | low
    return found


def _mixed(half: Any, key: Any, number: int) -> Any:
    """The round function: 64 bits, of which any will do."""
    mixed = half + (key ^ np.uint64((number + 1) * WEYL & (1 << 64) - 1))
    mixed = (mixed ^ (mixed >> np.uint64(SHIFTS[0]))) * np.uint64(MIXERS[0])
    mixed = (mixed ^ (mixed >> np.uint64(SHIFTS[1]))) * np.uint64(MIXERS[1])
    return mixed ^ (mixed >> np.uint64(SHIFTS[2]))
