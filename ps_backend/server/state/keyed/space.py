"""One server's part of keyed spaces: keys, rows of arrays, and snapshots of these for files."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.errors import BufferLost, InvalidProgram, LayoutChanged, OutOfBudget
from ps_backend.kernels.keyed.index import KeyIndex, RangeIndex
from ps_backend.kernels.keyed.rows import RowStore
from ps_backend.program.keys import BUCKETS, HASHED, Partition, are_different, bucket_of
from ps_backend.program.types import ValueType
from ps_backend.server.state.files import Pins
from ps_backend.server.state.keyed.admission import Admission
from ps_backend.server.state.memory import Memory, MemoryBlock, Reservation
from ps_backend.server.state.store import Part, Store
from ps_backend.wire.keyed import SpaceCopy, SpaceState

Keys = npt.NDArray[np.int64]
Locations = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
ByBucket = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

_LEAST_USED = 8
"""Slots of removed keys are left out when they are more than one to so many keys: so a removed key
costs the same however many there are."""
_MARK_BITS = 62
_SPACE_BYTES = 1 << 16
"""Counted for a space besides its keys and rows."""


@dataclass(slots=True)
class Counts:
    """What has happened to the keys of a space."""

    evicted: int = 0
    refused: int = 0
    waiting: int = 0


@dataclass(slots=True, eq=False)
class KeyedRows:
    """One array of a keyed space."""

    type: ValueType
    store: RowStore
    is_freed: bool = False
    """It does not grow with the space any more."""

    def gather(self, locations: Locations, keys: Keys, rows: Array | None = None) -> Array:
        """The row at each location, in ``rows`` if they are given: see ``RowStore.gather``."""
        if rows is None:
            rows = np.empty((len(keys), *self.type.row), self.type.dtype)
        self.store.gather(locations, keys, rows)
        return rows


@dataclass(slots=True, eq=False)
class KeyList:
    """Different keys in ascending order, and where they were found. One that stays is a view."""

    keys: Keys
    locations: Locations | None = None
    removals: int = -1
    """Of the space by then: locations have changed since if it is another one now."""
    version: int = -1
    """Of the space by then: what was missing may have come since."""
    room: Reservation | None = None
    """For keys and locations."""


class KeyedSpace:
    """Keys and rows. What is public takes ``lock``, or says that its caller holds it."""

    def __init__(
        self,
        memory: Memory,
        *,
        most_bytes: int,
        admission: Admission | None = None,
        partition: Partition = HASHED,
        index: KeyIndex | RangeIndex | None = None,
    ) -> None:
        """``most_bytes``: 0 for what the budget of the server allows.

        ``admission``: who decides which keys are inserted; None for all. ``partition``: how keys
        are shared out; ``index``: of those of a range.
        """
        self.lock = threading.RLock()
        self.index = KeyIndex() if index is None else index
        self.partition = partition
        self.arrays: dict[int, KeyedRows] = {}
        self.views: dict[int, KeyList] = {}
        self.version = 0
        """One more with each insertion or removal of keys."""
        self.mark = 1 + secrets.randbits(_MARK_BITS)
        """Of its content: another one after each change, and in each space."""
        self.removals = 0
        """One more whenever locations change."""
        self.counts = Counts()
        self.most_bytes = most_bytes
        self.admission = admission
        self._memory = memory
        self._kept = memory.reserve(_SPACE_BYTES, "a keyed space")

    @property
    def nbytes(self) -> int:
        """Bytes of keys and rows, with the room that they have to grow."""
        rows = sum(array.store.nbytes for array in self.arrays.values())
        waiting = 0 if self.admission is None else self.admission.nbytes
        return self.index.nbytes + rows + waiting

    @property
    def state(self) -> SpaceState:
        """What there is, and what has happened to its keys. The caller holds the lock."""
        counts = self.counts
        return SpaceState(
            len(self.index), self.version, self.nbytes,
            counts.evicted, counts.refused, counts.waiting,
        )  # fmt: skip

    def become(self, other: KeyedSpace) -> int:
        """Have the keys and rows of ``other``, which nobody else knows; the mark from then on.

        Arrays that it has as well stay the same ones, as rounds may hold them; others are freed.
        """
        with self.lock:
            if self.partition != other.partition:
                raise InvalidProgram("the partition of a keyed space cannot be changed")
            arrays = {}
            for number, array in self.arrays.items():
                theirs = other.arrays.get(number)
                if theirs is None or theirs.type != array.type:
                    array.is_freed = True
                else:
                    array.store, arrays[number] = theirs.store, array
            self.arrays = {number: arrays.get(number, one) for number, one in other.arrays.items()}
            self.index, self.admission, self.counts = other.index, other.admission, other.counts
            self.version += 1
            self.removals += 1
            self.mark += 1
            self._settle(None)
            return self.mark

    def add_array(self, number: int, array: KeyedRows) -> None:
        """Add an array; all keys that are there have its initial values. Again: nothing."""
        with self.lock:
            if number in self.arrays:
                return
            self.leave_out()
            counts = self.index.counts
            kept = self._reserve(
                array.store.bytes_for(counts), f"an array of {len(self.index)} keys"
            )
            array.store.grow(self.index, np.zeros_like(counts))
            self.arrays[number] = array
            self.mark += 1
            self._settle(kept)

    def rows_of(self, numbers: Iterable[int]) -> list[KeyedRows]:
        """Arrays by number; ``BufferLost`` if one is not there."""
        found = []
        for number in numbers:
            if number not in self.arrays:
                raise BufferLost(
                    f"array {number} of the keyed space does not exist on this server: it was "
                    "freed, or created after the checkpoint that was restored; create it again"
                )
            found.append(self.arrays[number])
        return found

    def free(self, numbers: Iterable[int]) -> None:
        """Drop arrays and views with these numbers, where they are."""
        with self.lock:
            before = len(self.arrays)
            for number in numbers:
                if number in self.arrays:
                    self.arrays.pop(number).is_freed = True
                self.views.pop(number, None)
            if len(self.arrays) < before:
                self.mark += 1
                self._settle(None)

    # --- keys -------------------------------------------------------------------------------------

    def locate(self, keys: KeyList) -> Locations:
        """Where the keys are now, -1 for those that are not here. The caller holds the lock."""
        if keys.locations is None or keys.removals != self.removals:
            keys.locations = self.index.find(keys.keys)
            keys.removals = self.removals
        elif keys.version != self.version:  # others may have inserted what was missing
            missing = np.flatnonzero(keys.locations < 0)
            keys.locations[missing] = self.index.find(keys.keys[missing])
        keys.version = self.version
        return keys.locations

    def insert(self, keys: Keys, locations: Locations, ahead: Reservation | None = None) -> None:
        """Give slots to the ``keys`` whose ``locations`` are -1, as far as they are admitted.

        Fills in their locations. ``ahead``: room that was reserved for them. The caller holds the
        lock, and is about to write to these rows. ``OutOfBudget``, and nothing changed, where it
        would take too much memory.
        """
        self.mark += 1
        missing = np.flatnonzero(locations < 0)
        if not len(missing):
            return
        fresh = keys[missing]
        if self.admission is not None:
            admitted = self.admission.admit(fresh, self._reserve if ahead is None else self._take)
            self.counts.waiting += int(len(fresh) - np.count_nonzero(admitted))
            missing, fresh = missing[admitted], fresh[admitted]
            if not len(missing):
                return
        many = self.index.missing(fresh, locations[missing])
        kept = self.reserve_for(many) if ahead is None else None
        locations[missing] = self._give_slots(fresh, many)
        self._settle(kept)

    def adopt(self, keys: Keys) -> None:
        """Insert keys in the order of a layout. The caller holds the lock.

        ``InvalidProgram`` where there are keys already, or these are in no such order.
        """
        if isinstance(self.index, RangeIndex):
            if len(keys) != len(self.index) or np.any(keys != self.index.keys_in_order()):
                raise InvalidProgram("these are not the keys of the range")
            return
        if len(self.index):
            raise InvalidProgram(f"the space has {len(self.index)} keys already")
        buckets = bucket_of(keys)
        if np.any(buckets[1:] < buckets[:-1]) or not are_different(keys):
            raise InvalidProgram("the keys must be unique and in the order of their buckets")
        many = np.bincount(buckets, minlength=BUCKETS)
        kept = self.reserve_for(many)
        self._give_slots(keys, many)
        self._settle(kept)

    def _give_slots(self, fresh: Keys, many: ByBucket) -> Locations:
        """Insert keys that are not here, so many of each bucket, with their initial values."""
        before = self.index.counts.copy()
        locations, _ = self.index.insert(fresh, np.full(len(fresh), -1), many)
        for array in self.arrays.values():
            array.store.grow(self.index, before)
        self.version += 1
        self.mark += 1
        return locations

    def reserve_for(self, missing: ByBucket) -> Reservation:
        """Room for so many keys of each bucket that are not here, as ``index.missing`` counts them.

        ``OutOfBudget``, and counted, where there is none.
        """
        count = int(missing.sum())
        if not count:
            return self._take(0, "no keys")
        needed = self.index.bytes_for(missing)
        needed += sum(array.store.bytes_for(missing) for array in self.arrays.values())
        try:
            return self._reserve(needed, f"inserting {count} keys")
        except OutOfBudget:
            self.counts.refused += count
            self.mark += 1
            raise

    def keep(self, mask: Mask) -> None:
        """Remove the keys where ``mask``, in the order of the layout, is false.

        The caller holds the lock, and has looked at ``check_version``.
        """
        removed = int(len(mask) - np.count_nonzero(mask))
        if removed:
            self._note_removal(removed)
            self._keep_slots(mask)

    def remove(self, keys: Keys) -> None:
        """Remove those of ``keys`` that are here. The caller holds the lock.

        ``InvalidProgram`` for those of a range.
        """
        if isinstance(self.index, RangeIndex):
            raise InvalidProgram("the keys of a range cannot be removed")
        removed = self.index.remove(keys)
        if not removed:
            return
        self._note_removal(removed)
        if self.index.removed * _LEAST_USED > len(self.index):
            self.leave_out()

    def _note_removal(self, count: int) -> None:
        self.counts.evicted += count
        self.version += 1
        self.removals += 1
        self.mark += 1

    def leave_out(self) -> None:
        """Have no slots whose key was removed: a way through all. The caller holds the lock.

        Locations change, and the layout does not: what is there keeps its order.
        """
        if isinstance(self.index, KeyIndex) and self.index.removed:
            self._keep_slots(self.index.slots_in_use())

    def _keep_slots(self, mask: Mask) -> None:
        """Keep the rows, and keys if there are some still, of slots that ``mask`` names."""
        counts = self.index.counts.copy()
        for array in self.arrays.values():
            array.store.keep(mask, counts)
        self.index.keep(mask)
        self.removals += 1
        self._settle(None)

    def check_version(self, version: int) -> None:
        """Raise ``LayoutChanged`` unless this is the ``version``; from then on the slots are those
        of the layout. The caller holds the lock."""
        if version != self.version:
            raise LayoutChanged(
                "keys were inserted or removed meanwhile: the layout has version "
                f"{self.version}, not {version}; read the arrays again"
            )
        self.leave_out()

    # --- memory -----------------------------------------------------------------------------------

    def _reserve(self, needed: int, what: str) -> Reservation:
        if self.most_bytes and self.nbytes + needed > self.most_bytes:
            raise OutOfBudget(
                f"{what} needs up to {needed} bytes more, but {self.nbytes} of the "
                f"{self.most_bytes} bytes that the keyed space may use on a server are in use; "
                "evict keys, or allow more: ps.keys(most_bytes=)"
            )
        return self._memory.reserve(needed, what)

    def _take(self, needed: int, what: str) -> Reservation:
        """Room that is there, as more was reserved."""
        return self._memory.reserve(needed, what, force=True)

    def _settle(self, ahead: Reservation | None) -> None:
        """Count what is held now, instead of what was reserved ``ahead``."""
        del ahead, self._kept
        self._kept = self._memory.reserve(_SPACE_BYTES + self.nbytes, "a keyed space", force=True)


def refuse_freed(arrays: Sequence[KeyedRows]) -> None:
    """Raise ``BufferLost`` if one is freed. The caller holds the lock of their space."""
    if any(array.is_freed for array in arrays):
        raise BufferLost("an array of the keyed space was freed before the rows were changed")


_KEY = ValueType("int64")


@dataclass(frozen=True, slots=True)
class SnapshotRows:
    """Rows in the order of buckets and slots."""

    type: ValueType
    block: MemoryBlock
    array: Array

    def of(self, part: Part) -> Array:
        """The rows, which the sender believes to be ``part`` of an array."""
        if (part.type.value, part.high - part.low) != (self.type, len(self.array)):
            raise InvalidProgram(f"{len(self.array)} rows of {self.type} were kept, not {part}")
        return self.array


@dataclass(frozen=True, slots=True)
class SpaceSnapshot:
    """A keyed space as it was."""

    about: SpaceCopy
    rows: Mapping[int, SnapshotRows] = field(default_factory=dict)
    """By number: of each array, of the keys, and of the counters. None of what was not copied."""


def take_snapshot(
    space: KeyedSpace, number: int, waiting: int, known: int, memory: Memory
) -> SpaceSnapshot:
    """Copy the space ``number``, all at one moment, unless ``known`` is its mark still.

    ``waiting``: the number of its counters. Others wait for the space meanwhile. ``OutOfBudget``.
    """
    with space.lock:
        count, counters = len(space.index), space.admission
        rows = 0 if counters is None else len(counters)
        about = SpaceCopy(space.state, space.mark, rows, tuple(space.arrays))
        if space.mark == known:
            return SpaceSnapshot(about)
        space.leave_out()
        types = {number: (_KEY, count)}
        types |= {array: (one.type, count) for array, one in space.arrays.items()}
        if counters is not None:
            if waiting in types:
                raise InvalidProgram(f"{waiting} names rows of the space, not its counters")
            types[waiting] = counters.type, rows
        sizes = [many * type.row_bytes for type, many in types.values()]
        blocks = memory.allocate(sizes, "the copy of a keyed space for a checkpoint")
        copies = {
            id: SnapshotRows(type, block, block.array(np.dtype(type.dtype), (many, *type.row)))
            for (id, (type, many)), block in zip(types.items(), blocks, strict=True)
        }
        copies[number].array[:] = space.index.keys_in_order()
        for array, one in space.arrays.items():
            one.store.copy_to(copies[array].array)
        if counters is not None:
            counters.copy_to(copies[waiting].array)
        return SpaceSnapshot(about, copies)


class KeyedSpaces:
    """Keyed spaces by number. Thread-safe."""

    def __init__(self, store: Store) -> None:
        """``store``: of the session, which knows what was lost with a server before this one."""
        self._store = store
        self.by_number: dict[int, KeyedSpace] = {}
        """Those that are here."""
        self.pins: Pins[SpaceSnapshot] = Pins()
        """Copies of spaces, by the names under which they are kept."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.by_number)

    def get(self, number: int) -> KeyedSpace:
        """Space ``number``; ``BufferLost`` if it is not there."""
        found = self.by_number.get(number)
        if found is None:
            raise self._store.lost(number, "keyed space")
        return found

    def add(self, number: int, space: KeyedSpace) -> None:
        """Add ``space``, unless there is one of that number."""
        with self._lock:
            self.by_number.setdefault(number, space)

    def free(self, numbers: Iterable[int]) -> None:
        """Drop spaces, arrays and views with these numbers, where they are."""
        wanted = list(numbers)
        with self._lock:
            for number in wanted:
                self.by_number.pop(number, None)
            spaces = list(self.by_number.values())
        for space in spaces:
            space.free(wanted)

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self.by_number.clear()
        self.pins.clear()
