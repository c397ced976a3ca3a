"""The layout of the hash table of one bucket, and how large it is made.

A table is an array of 64-bit entries, with linear probing. Entries stand in the order of their
home places ("Robin Hood"): one that is further from home than another is never behind it, so a key
that is missing is known to be so after as few entries as one that is found.

The whole key is in the entry, without an array of keys. Of the mixed key the first 10 bits are the
bucket's; the other 54, times a small number ``factor``, are 57 bits, of which the first ``bits +
3`` are the home place, one of ``factor << bits``, and the rest is the *remainder*. As
mixing and multiplying can be undone, remainder and home are the key. An entry is, from its highest
bit on:

- 7 bits: 1 + how far the entry is from home; 0 says that the place is free;
- ``54 - bits`` bits: the remainder;
- ``bits + 3`` bits: the slot of the key.

With factors 4, 5, 6 and 7 tables grow in steps of 14 to 25 percent. Sources: Celis, "Robin Hood
hashing" (1986); Cleary, "Compact hash tables using bidirectional linear probing" (1984), for the
remainder.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.program.keys import BUCKET_BITS, BUCKETS

REST = 64 - BUCKET_BITS
"""Bits of the mixed key that do not say which bucket."""
FACTOR_BITS = 3
FARTHEST = 126
"""No entry can be further from home; a table where one comes near is made anew, larger."""
CROWDED = 100
"""So near: adding a key moves each entry by one place at most."""

ADDRESS, FACTOR, BITS, CAPACITY = range(4)
"""Columns of the directory, int64[BUCKETS, 4]: where the table lies, and its form."""

_FEWEST_BITS, _MOST_BITS = 1, 29
_SIZES = np.array(
    [
        (factor << bits, factor, bits)
        for bits in range(_FEWEST_BITS, _MOST_BITS + 1)
        for factor in (4, 5, 6, 7)
    ],
    np.int64,
)
_CAPACITIES = np.ascontiguousarray(_SIZES[:, 0])

_FULL = 256
_LEAST_LOAD, _MORE_LOAD = 192, 32
_LOADS = _LEAST_LOAD + np.arange(BUCKETS) * 21 % _MORE_LOAD
"""How many of 256 entries of a bucket's table may be in use: 75 to 87 percent. Buckets differ, so
that all of them do not grow at the same time."""


def room_in(bucket: int, capacity: int) -> int:
    """How many keys the table of a bucket may have."""
    return int(capacity * _LOADS[bucket] // _FULL)


def sizes_for(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Which size, of those there are, holds so many keys in each bucket; -1 for none."""
    needed = -(-counts * _FULL // _LOADS)
    sizes = np.searchsorted(_CAPACITIES, needed)
    return np.where(counts == 0, -1, sizes)


def capacities_of(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Entries of tables of these sizes."""
    return np.where(sizes < 0, 0, _CAPACITIES[sizes])


def form_of(size: int) -> tuple[int, int, int]:
    """Factor, bits and capacity of one size."""
    capacity, factor, bits = _SIZES[size].tolist()
    return factor, bits, capacity


def last_size() -> int:
    """The largest one."""
    return len(_SIZES) - 1


Directory = npt.NDArray[np.int64]


def empty_directory(table: npt.NDArray[Any]) -> Directory:
    """Of buckets without keys, which all have the table of the smallest size that is given."""
    directory = np.empty((BUCKETS, 4), np.int64)
    directory[:] = (table.__array_interface__["data"][0], *form_of(0))
    return directory
