"""Lists of slots that the client holds, looked at from a chunk: which entries concern it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Slots = npt.NDArray[np.int64]


class SlotList:
    """Slots in any order, of which some may be there more than once."""

    def __init__(self, slots: Slots) -> None:
        self._entries = np.argsort(slots, kind="stable")
        self._sorted = slots[self._entries]

    def within(self, first: int, length: int) -> tuple[Slots, Slots]:
        """The entries whose slots are in a chunk, and these slots from its start on.

        They are ordered by slot, those of one slot by entry.
        """
        low, high = np.searchsorted(self._sorted, (first, first + length))
        return self._entries[low:high], self._sorted[low:high] - first

    def next(self, first: int) -> int | None:
        """The first slot at ``first`` or behind it."""
        place = np.searchsorted(self._sorted, first)
        return int(self._sorted[place]) if place < len(self._sorted) else None


class Listed:
    """The slots of a list that are in a job: rows of them are to be copied."""

    def __init__(self, slots: SlotList, first: int, length: int) -> None:
        """``first`` slot and ``length`` of the job."""
        self._slots = slots
        self._wanted = np.sort(slots.within(first, length)[0])
        self.count = len(self._wanted)
        self.next = slots.next

    def copy(self, array: npt.NDArray[np.generic], first: int, values: np.ndarray) -> None:
        """Into ``array``, in the order of the list, what it wants of a chunk."""
        entries, slots = self._slots.within(first, len(values))
        array[np.searchsorted(self._wanted, entries)] = values[slots]
