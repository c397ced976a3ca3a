"""The slots of the keys 0, 1, 2, ..., which need no tables."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ps_backend.program.keys import BUCKETS, Partition

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_SLOT_BITS = 32
_MISSING = -1


class RangeIndex:
    """What ``KeyIndex`` is for any keys: the keys of a range that one server holds, all there.

    No key is ever inserted or removed, and all slots lie in the order of the keys.
    """

    nbytes = 0
    """Bytes that it takes."""

    def __init__(self, partition: Partition, server: int, servers: int) -> None:
        """``partition``: of a range; those of its keys that ``server`` of ``servers`` holds."""
        size = partition.bucket_size
        buckets = np.arange(BUCKETS)
        here = buckets * servers // BUCKETS == server
        self._size = size
        self.counts: Integers = np.clip(partition.length - buckets * size, 0, size) * here
        """Keys of each bucket."""
        self._here = here

    def __len__(self) -> int:
        """Keys in all."""
        return int(self.counts.sum())

    def find(self, keys: Integers) -> Integers:
        """The location of each of contiguous int64 ``keys``, -1 of one that another server has."""
        buckets = keys // self._size
        slots = keys - buckets * self._size
        inside = (keys >= 0) & (buckets < BUCKETS)
        buckets[~inside] = 0
        inside &= slots < self.counts[buckets]
        return np.where(inside, buckets << _SLOT_BITS | slots, _MISSING)

    def missing(self, keys: Integers, locations: Integers | None = None) -> Integers:
        """None."""
        return np.zeros(BUCKETS, np.int64)

    def bytes_for(self, missing: Integers) -> int:
        """Nothing."""
        return 0

    def insert(
        self, keys: Integers, locations: Integers | None = None, missing: Integers | None = None
    ) -> tuple[Integers, Mask]:
        """The locations of the keys. ``ValueError`` for keys that are none of this server."""
        found = self.find(keys)
        if np.any(found < 0):
            raise ValueError("keys beyond the range of the space, or of another server")
        return found, np.zeros(len(keys), np.bool_)

    def added_since(self, counts: Integers) -> tuple[Integers, Integers]:
        """All keys and locations, of an array that is new; or none."""
        if np.array_equal(counts, self.counts):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        keys = self.keys_in_order()
        return keys, self.find(keys)

    def keys_in_order(self) -> Integers:
        """All keys, ascending; made anew each time."""
        return self.keys_between(0, len(self))

    def keys_between(self, low: int, high: int) -> Integers:
        """``keys_in_order()[low:high]``."""
        held = np.flatnonzero(self.counts)
        first = int(held[0]) * self._size if len(held) else 0
        return np.arange(first + low, first + min(high, len(self)))

    def keep(self, mask: Mask) -> None:
        """Refused: a range has no gaps."""
        raise ValueError("the keys of a range stay; nothing can be removed")
