"""Which slot a key has: hash tables, one for each bucket (see ``layout``).

A *location* is an int64, ``bucket << 32 | slot``; -1 says that a key is not there. The slots of a
bucket are counted from 0 in the order in which its keys were inserted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.compiled.tables import address_of
from ps_backend.kernels.keyed.layout import (
    CROWDED,
    capacities_of,
    empty_directory,
    form_of,
    last_size,
    room_in,
    sizes_for,
)
from ps_backend.program.keys import BUCKETS, bucket_of

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

SLOT_BITS = 32
MISSING = -1
_ENTRY = 8  # bytes
_SPARSEST = 64
"""Entries a key, from which on a table that is still too crowded is no accident."""


class KeyIndex:
    """The keys that one server holds of a keyed space, and their slots.

    8 bytes an entry, of which 68 to 87 percent are in use once a bucket has some keys: 9.2 to 11.8
    bytes a key. To grow, the table of one bucket at a time is made anew.
    """

    def __init__(self) -> None:
        self.counts = np.zeros(BUCKETS, np.int64)
        """Keys of each bucket; the caller does not write to it."""
        self._nothing = np.zeros(form_of(0)[2], np.uint64)
        self._tables: list[npt.NDArray[np.uint64]] = [self._nothing] * BUCKETS
        self._directory = empty_directory(self._nothing)
        self._sizes = np.full(BUCKETS, -1, np.int64)
        self._room = np.zeros(BUCKETS, np.int64)
        self._latest: tuple[Integers, Integers, Integers] | None = None

    def __len__(self) -> int:
        """Keys in all."""
        return int(self.counts.sum())

    @property
    def nbytes(self) -> int:
        """Bytes of the tables."""
        return int(capacities_of(self._sizes).sum()) * _ENTRY

    def find(self, keys: Integers) -> Integers:
        """The location of each of contiguous int64 ``keys``, -1 where it has none."""
        from ps_backend.kernels.keyed import compiled_index

        locations = np.empty(len(keys), np.int64)
        if len(keys):
            directory, out = address_of(self._directory), address_of(locations)
            compiled_index.find(address_of(keys), len(keys), directory, out)
        return locations

    def missing(self, keys: Integers, locations: Integers | None = None) -> Integers:
        """How many of ``keys``, all different, are not there: int64 for each bucket.

        ``locations``, if given, are what ``find`` has said of them, here and below.
        """
        found = self.find(keys) if locations is None else locations
        return np.bincount(bucket_of(keys[found < 0]), minlength=BUCKETS)

    def bytes_for(self, missing: Integers) -> int:
        """Bytes that ``insert`` takes at most, if it inserts so many keys into each bucket.

        The table that a larger one replaces, one at a time, is counted too.
        """
        sizes = np.maximum(sizes_for(self.counts + missing), self._sizes)
        old, new = capacities_of(self._sizes), capacities_of(sizes)
        return int((new - old).sum() + old[new > old].max(initial=0)) * _ENTRY

    def insert(self, keys: Integers, locations: Integers | None = None) -> tuple[Integers, Mask]:
        """The location of each key, and whether it is a new one: a key that is missing gets a slot.

        In each bucket new slots are given in the order of ``keys``. ``ValueError`` for keys that
        somebody chose to have the same hash, after which nothing is changed.
        """
        found = self.find(keys) if locations is None else locations.copy()
        fresh = np.zeros(len(keys), np.bool_)
        places = np.flatnonzero(found < 0)
        if not len(places):
            return found, fresh
        before = self.counts.copy()
        wanted = before + np.bincount(bucket_of(keys[places]), minlength=BUCKETS)
        self._latest = None
        try:
            self._make_room(wanted)
            self._give_slots(keys, places, found, fresh)
        except BaseException:
            self._forget_from(before)
            raise
        added = places[fresh[places]]
        self._latest = before, keys[added], found[added]
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

    def keep(self, mask: Mask) -> None:
        """Forget the keys that ``mask``, in the order of ``keys_in_order``, does not name.

        The others keep their order, and get the slots from 0 on.
        """
        if len(mask) != len(self):
            raise ValueError(f"a mask of {len(mask)} for {len(self)} keys")
        self._latest = None
        starts = np.cumsum(self.counts) - self.counts
        for bucket in np.flatnonzero(self.counts).tolist():
            low = starts[bucket]
            chosen = mask[low : low + self.counts[bucket]]
            if not chosen.all():
                self._renumber(bucket, chosen)

    def _keys_from(self, first: Integers) -> Integers:
        """The keys of slots from ``first`` on of each bucket, by bucket and slot."""
        from ps_backend.kernels.keyed import compiled_index

        many = self.counts - first
        starts = np.cumsum(many) - many
        keys = np.empty(int(many.sum()), np.int64)
        tables = [address_of(one) for one in (self._directory, first, starts, keys)]
        compiled_index.keys_from(tables[0], BUCKETS, *tables[1:])
        return keys

    def _give_slots(self, keys: Integers, places: Integers, found: Integers, fresh: Mask) -> None:
        from ps_backend.kernels.keyed import compiled_index

        keys_at, places_at, found_at, fresh_at = map(address_of, (keys, places, found, fresh))
        done = 0
        while done < len(places):
            tables = address_of(self._directory), address_of(self.counts)
            done = compiled_index.insert(
                keys_at, places_at, done, len(places), *tables, found_at, fresh_at
            )
            if done < len(places):
                crowded = int(found[places[done - 1]] >> SLOT_BITS)
                self._replace(crowded, self._sizes[crowded] + 1, None)

    def _make_room(self, counts: Integers) -> None:
        sizes = sizes_for(counts)
        for bucket in np.flatnonzero(counts > self._room).tolist():
            self._replace(bucket, sizes[bucket], None)

    def _renumber(self, bucket: int, chosen: Mask) -> None:
        """Keep the chosen keys of one bucket."""
        slots = np.where(chosen, np.cumsum(chosen) - 1, MISSING)
        kept = self.counts.copy()
        kept[bucket] = np.count_nonzero(chosen)
        self._replace(bucket, sizes_for(kept)[bucket], slots)
        self.counts[bucket] = kept[bucket]

    def _replace(self, bucket: int, size: int, slots: Integers | None) -> None:
        """Move a bucket into a table of a size, or of one in which no entry is far from home."""
        from ps_backend.kernels.keyed import compiled_index

        row = self._directory[bucket]
        if size < 0:
            self._tables[bucket] = self._nothing
            row[:] = (address_of(self._nothing), *form_of(0))
            self._sizes[bucket], self._room[bucket] = MISSING, 0
            return
        count = max(16, int(self.counts[bucket]))
        while True:
            form = form_of(size)
            table = np.zeros(form[2], np.uint64)
            new = np.array([address_of(table), *form], np.int64)
            renumbered = 0 if slots is None else address_of(slots)
            farthest = compiled_index.rebuild(address_of(row), address_of(new), renumbered)
            if farthest < CROWDED:
                break
            size += 1
            if size > last_size() or form_of(size)[2] > count * _SPARSEST:
                raise ValueError(
                    f"{count} keys of bucket {bucket} have hashes that begin alike: they were "
                    "chosen so; make keys of them by hash_tuples"
                )
        self._tables[bucket] = table
        row[:] = new
        self._sizes[bucket], self._room[bucket] = size, room_in(bucket, form[2])

    def _forget_from(self, counts: Integers) -> None:
        """Take back what was inserted since buckets had so many keys."""
        for bucket in np.flatnonzero(self.counts > counts).tolist():
            self._renumber(bucket, np.arange(self.counts[bucket]) < counts[bucket])
