"""The slot of each key: hash tables, one for each bucket, or none for the keys 0, 1, 2, ...

The tables are as ``table_format`` says.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.kernel import in_parts
from ps_backend.kernels.keyed.table_format import (
    ADDRESS,
    FACTOR,
    empty_directory,
    forms_of,
    places_of,
    room_in,
    sizes_for,
)
from ps_backend.kernels.numpy_loops import address_of
from ps_backend.program.keys import BUCKETS, Partition

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

SLOT_BITS = 32
MISSING = -1
_ENTRY = 8  # bytes
_SPARSEST = 64
"""Entries a key, from which on a table that is still too crowded is no accident."""
_TOGETHER = 64
"""Buckets whose tables are made anew in one go."""
_ALL = np.arange(BUCKETS)
_FIND_WORK = 100
"""Additions that take as long as to look up a key."""


def kept_of(mask: Mask, counts: Integers) -> Integers:
    """How many ``mask``, of so many slots of each bucket, names of each bucket."""
    left, held = np.zeros(BUCKETS, np.int64), np.flatnonzero(counts)
    if len(held):
        starts = np.cumsum(counts) - counts
        left[held] = np.add.reduceat(mask, starts[held], dtype=np.int64)
    return left


class KeyIndex:
    """The keys that one server holds of a keyed space, and their slots.

    8 bytes an entry, of which 42 to 75 percent are in use once a bucket has some hundreds of keys:
    14 bytes a key or so, 19 at most. To grow, the tables of ``_TOGETHER`` buckets at a time are
    made anew.
    """

    def __init__(self) -> None:
        self.counts = np.zeros(BUCKETS, np.int64)
        """Slots of each bucket that keys have, or had when they were removed; the caller does not
        write to it."""
        self.removed = 0
        """Slots whose key was removed. Keys are not in order until ``keep`` has left these out."""
        self._nothing = np.zeros(int(places_of(np.array(0))), np.uint64)
        self._tables: list[npt.NDArray[np.uint64]] = [self._nothing] * BUCKETS
        self._directory = empty_directory(self._nothing)
        self._sizes = np.full(BUCKETS, MISSING, np.int64)
        self._room = np.zeros(BUCKETS, np.int64)
        self._latest: tuple[Integers, Integers, Integers] | None = None

    def __len__(self) -> int:
        """Keys in all."""
        return int(self.counts.sum()) - self.removed

    @property
    def nbytes(self) -> int:
        """Bytes of the tables."""
        return int(places_of(self._sizes).sum()) * _ENTRY

    def find(self, keys: Integers) -> Integers:
        """The location of each of contiguous int64 ``keys``, -1 where it has none."""
        from ps_backend.kernels.keyed import compiled_index

        locations = np.empty(len(keys), np.int64)

        def find(low: int, high: int) -> None:
            some = address_of(keys[low:]), high - low, address_of(self._directory)
            compiled_index.find(*some, address_of(locations[low:]))

        in_parts(find, len(keys), _FIND_WORK)
        return locations

    def missing(self, keys: Integers, locations: Integers | None = None) -> Integers:
        """How many of ``keys``, all different, are not there: int64 for each bucket.

        ``locations``, if given, are what ``find`` has said of them, here and below.
        """
        from ps_backend.kernels.keyed import compiled_index

        found = self.find(keys) if locations is None else locations
        counts = np.zeros(BUCKETS, np.int64)
        where = address_of(found), address_of(counts)
        compiled_index.count_missing(address_of(keys), len(keys), *where)
        return counts

    def bytes_for(self, missing: Integers) -> int:
        """Bytes that ``insert`` takes at most, if it inserts so many keys into each bucket.

        The tables that larger ones replace, some at a time, are counted too.
        """
        old = places_of(self._sizes)
        new = places_of(self._sizes_for(self.counts + missing))
        replaced = np.sort(old[new > old])[-_TOGETHER:]
        return int((new - old).sum() + replaced.sum()) * _ENTRY

    def insert(
        self, keys: Integers, locations: Integers | None = None, missing: Integers | None = None
    ) -> tuple[Integers, Mask]:
        """The location of each key, and whether it is a new one: a key that is missing gets a slot.

        ``missing``, if given, is what the method of that name has said of them. In each bucket new
        slots are given in the order of ``keys``. ``ValueError`` for keys that
        somebody chose to have the same hash, after which nothing is changed.
        """
        found = self.find(keys) if locations is None else locations.copy()
        if missing is None:
            missing = self.missing(keys, found)
        fresh = np.zeros(len(keys), np.bool_)
        before = self.counts.copy()
        self._latest = None
        try:
            self._give_slots(keys, found, fresh, missing)
        except BaseException:
            self._forget_from(before)
            raise
        self._latest = before, keys[fresh], found[fresh]
        return found, fresh

    def added_since(self, counts: Integers) -> tuple[Integers, Integers]:
        """Keys and locations, in any order, of what was inserted since buckets had so many keys.

        Costs nothing for those of the last ``insert``, and else a way through all tables.
        """
        if self._latest is not None and np.array_equal(counts, self._latest[0]):
            return self._latest[1:]
        many = self.counts - counts
        slots = np.arange(many.sum()) + np.repeat(counts - (np.cumsum(many) - many), many)
        return self._keys_from(counts), np.repeat(np.arange(BUCKETS) << SLOT_BITS, many) | slots

    def keys_in_order(self) -> Integers:
        """All keys, by bucket and slot. A way through all tables."""
        return self._keys_from(np.zeros(BUCKETS, np.int64))

    def keys_between(self, low: int, high: int) -> Integers:
        """``keys_in_order()[low:high]``, by a way through the tables that have some of them."""
        ends = np.cumsum(self.counts)
        high = min(high, int(ends[-1]))
        if low >= high:
            return np.empty(0, np.int64)
        begin, last = (int(np.searchsorted(ends, place, "right")) for place in (low, high - 1))
        keys = self._keys_from(np.zeros(BUCKETS, np.int64), begin, last + 1)
        before = int(ends[begin] - self.counts[begin])
        return keys[low - before : high - before]

    def remove(self, keys: Integers) -> int:
        """Forget keys; how many were there. Slots stay as they are, of which some have no key."""
        from ps_backend.kernels.keyed import compiled_index

        removed: int = compiled_index.remove(
            address_of(keys), len(keys), address_of(self._directory)
        )
        self.removed += removed
        self._latest = None
        return removed

    def slots_in_use(self) -> Mask:
        """Of each slot, by bucket, whether a key has it. A way through all tables."""
        from ps_backend.kernels.keyed import compiled_index

        starts = np.cumsum(self.counts) - self.counts
        mask = np.zeros(int(self.counts.sum()), np.bool_)
        where = address_of(starts), address_of(mask)
        compiled_index.mark_slots(address_of(self._directory), BUCKETS, *where)
        return mask

    def keep(self, mask: Mask) -> None:
        """Forget the keys in slots that ``mask``, by bucket and slot, does not name.

        It names none of a removed key. The others keep their order, and get the slots from 0 on.
        """
        if len(mask) != self.counts.sum():
            raise ValueError(f"a mask of {len(mask)} for {self.counts.sum()} keys")
        self._latest, self.removed = None, 0
        self._keep(mask)

    def _keep(self, mask: Mask) -> None:
        """Renumber the slots that ``mask`` names, and forget the others."""
        counts, left = self.counts, kept_of(mask, self.counts)
        ends = np.cumsum(counts)
        for low in range(0, BUCKETS, _TOGETHER):
            some = slice(low, low + _TOGETHER)
            first = int(ends[low] - counts[low])
            chosen = mask[first : ends[some][-1]]
            before = np.repeat(np.cumsum(left[some]) - left[some], counts[some])
            slots = np.where(chosen, np.cumsum(chosen) - 1 - before, MISSING)
            addresses = address_of(slots) + _ENTRY * (ends - counts - first)
            buckets = low + np.flatnonzero(left[some] < counts[some])
            self._replace(buckets, sizes_for(buckets, left[buckets]), addresses[buckets])
        self.counts = left

    def _keys_from(self, first: Integers, begin: int = 0, end: int = BUCKETS) -> Integers:
        """The keys of slots from ``first`` on of the buckets of a range, by bucket and slot."""
        from ps_backend.kernels.keyed import compiled_index

        many = self.counts - first
        many[:begin] = many[end:] = 0
        starts = np.cumsum(many) - many
        keys = np.empty(int(many.sum()), np.int64)
        where = address_of(first), address_of(starts), address_of(keys)
        compiled_index.keys_from(address_of(self._directory), begin, end, *where)
        return keys

    def _give_slots(self, keys: Integers, found: Integers, fresh: Mask, missing: Integers) -> None:
        from ps_backend.kernels.keyed import compiled_index

        at, count = address_of(keys), len(keys)
        counts = self.counts + missing
        small = np.flatnonzero(counts > self._room)
        self._replace(small, self._sizes_for(counts)[small])
        tables = address_of(self._directory), address_of(self.counts)
        results = address_of(found), address_of(fresh)
        done = 0
        while done < count:
            done = compiled_index.insert(at, done, count, *tables, *results)
            if done < 0:
                done = -done
                crowded = found[done - 1 : done] >> SLOT_BITS
                self._replace(crowded, self._sizes[crowded] + 1)

    def _sizes_for(self, counts: Integers) -> Integers:
        return np.where(counts > self._room, sizes_for(_ALL, counts), self._sizes)

    def _replace(self, buckets: Integers, sizes: Integers, slots: Integers | None = None) -> None:
        """Move buckets into tables of these sizes, or of such as no entry is far from home in.

        ``slots``: for each bucket the address of new numbers of its slots.
        """
        low = 0
        while low < len(buckets):
            together = slice(low, low + _TOGETHER)
            renumbered = None if slots is None else slots[together]
            low += self._replace_some(buckets[together], sizes[together], renumbered)
            if low < min(together.stop, len(buckets)):
                self._check_no_malice(int(buckets[low]), int(sizes[low]))
                sizes[low] += 1

    def _replace_some(self, buckets: Integers, sizes: Integers, slots: Integers | None) -> int:
        """How many of them were moved, before one whose table would have to be larger."""
        from ps_backend.kernels.keyed import compiled_index

        empty = sizes < 0
        tables = [np.zeros(places, np.uint64) for places in places_of(sizes).tolist()]
        for k in np.flatnonzero(empty):
            tables[k] = self._nothing
        new = np.empty((len(buckets), self._directory.shape[1]), np.int64)
        new[:, ADDRESS] = [address_of(table) for table in tables]
        new[:, FACTOR:] = forms_of(np.maximum(sizes, 0))
        rows = address_of(self._directory) + buckets.astype(np.int64) * self._directory.strides[0]
        renumbered = 0 if slots is None else address_of(slots)
        where = address_of(rows), address_of(new)
        done: int = compiled_index.rebuild(*where, len(buckets), renumbered)
        moved = buckets[:done]
        for bucket, table in zip(moved.tolist(), tables, strict=False):
            self._tables[bucket] = table
        self._directory[moved] = new[:done]
        self._sizes[moved] = sizes[:done]
        self._room[moved] = np.where(empty, 0, room_in(buckets, sizes))[:done]
        return done

    def _check_no_malice(self, bucket: int, size: int) -> None:
        count = max(16, int(self.counts[bucket]))
        if places_of(np.array(size)) > count * _SPARSEST:
            raise ValueError(
                f"{count} keys of bucket {bucket} have hashes that begin alike: they were chosen "
                "so; make keys of them by hash_tuples"
            )

    def _forget_from(self, counts: Integers) -> None:
        """Take back what was inserted since buckets had so many keys."""
        starts = np.cumsum(self.counts) - self.counts
        slots = np.arange(self.counts.sum()) - np.repeat(starts, self.counts)
        self._keep(slots < np.repeat(counts, self.counts))


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
        raise ValueError("the keys of a range cannot be removed")
