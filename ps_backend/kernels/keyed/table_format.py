"""The layout of the hash table of one bucket, and how large it is made.

A table is an array of 64-bit entries, with linear probing. The whole key is in its entry, without
an array of keys: of the mixed key the first 10 bits are the bucket's; the other 54, times a small
number ``factor``, are 57 bits, of which the first ``bits + 3`` are the home place, one of ``factor
<< bits``, and the others the *remainder*. Mixing and multiplying can be undone, so remainder and
home are the key. An entry is, from its highest bit on:

- 7 bits: 1 + how far it is behind its home; 0 says that the place is free;
- ``54 - bits`` bits: the complement of the remainder;
- ``bits + 3`` bits: the slot of the key.

Entries are in the order of the mixed keys. So a search ends at the first entry that is no greater
than what is looked for there, whether it is found or not; to add a key is to move those behind it,
up to the next free place, by one; and a larger table is filled in one pass from its beginning to
its end. Behind the places that are homes there are some more, so that nothing goes round.

With factors 4 and 6 tables grow in steps of a half and a third. Sources: Amble and Knuth,
"Ordered hash tables" (1974); Cleary, "Compact hash tables using bidirectional linear probing"
(1984), for the remainder.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.numpy_loops import address_of
from ps_backend.program.keys import BUCKET_BITS, BUCKETS

REST = 64 - BUCKET_BITS
"""Bits of the mixed key that do not say which bucket."""
FACTOR_BITS = 3
FAR_BITS = 7
BEHIND = 64
"""Places at most behind those that are homes; not more than there are homes."""
CROWDED = BEHIND - 2
"""How far from home an entry may come before a larger table is made: fewer than one in ten million
does, at the loads below."""

ADDRESS, FACTOR, BITS, PLACES = range(4)
"""Columns of the directory, int64[BUCKETS, 4]: where the table lies, and its form."""

_FEWEST_BITS, _MOST_BITS = 1, 29
_SIZES = np.array(
    [
        (factor, bits, (factor << bits) + min(factor << bits, BEHIND))
        for bits in range(_FEWEST_BITS, _MOST_BITS + 1)
        for factor in (4, 6)
    ],
    np.int64,
)
_HOMES = _SIZES[:, 0] << _SIZES[:, 1]
_ALL_PLACES = np.ascontiguousarray(_SIZES[:, 2])

_FULL = 256
_LEAST_LOAD, _MORE_LOAD = 160, 32
_LOADS = _LEAST_LOAD + np.arange(BUCKETS) * 21 % _MORE_LOAD
"""How many of 256 homes of a bucket's table may have a key: 62 to 75 percent. Buckets differ, so
that not all of them grow at the same time."""

Sizes = npt.NDArray[np.int64]


def room_in(buckets: npt.NDArray[np.int64], sizes: Sizes) -> npt.NDArray[np.int64]:
    """How many keys tables of these sizes may have in these buckets."""
    return _HOMES[sizes] * _LOADS[buckets] // _FULL


def sizes_for(buckets: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> Sizes:
    """Which size, of those there are, holds so many keys in these buckets; -1 for none."""
    sizes = np.searchsorted(_HOMES, -(-counts * _FULL // _LOADS[buckets]))
    return np.where(counts == 0, -1, sizes)


def places_of(sizes: Sizes) -> npt.NDArray[np.int64]:
    """Entries of tables of these sizes."""
    return np.where(sizes < 0, 0, _ALL_PLACES[sizes])


def forms_of(sizes: Sizes) -> npt.NDArray[np.int64]:
    """Factor, bits and places of these sizes, as in the directory."""
    return _SIZES[sizes]


Directory = npt.NDArray[np.int64]


def empty_directory(table: npt.NDArray[np.uint64]) -> Directory:
    """Of buckets without keys, which have in common an empty table of the smallest size."""
    directory = np.empty((BUCKETS, 4), np.int64)
    directory[:, ADDRESS] = address_of(table)
    directory[:, FACTOR:] = _SIZES[0]
    return directory
