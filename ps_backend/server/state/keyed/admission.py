"""Which keys are inserted into a space: those that have come often enough.

Of the keys of click logs most come once. Such keys cost a counter here, and no row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ps_backend.errors import InvalidProgram
from ps_backend.kernels.keyed.index import KeyIndex
from ps_backend.kernels.keyed.rows import RowStore
from ps_backend.program.initializers import Constant
from ps_backend.program.keys import are_different, mixed
from ps_backend.program.types import ValueType
from ps_backend.server.state.memory import Reservation

Keys = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Reserve = Callable[[int, str], Reservation]

_MOST = 255
"""A counter goes up to this."""
_ROWS = 4
"""Counters of a sketch for each key: a key that came once is taken for admitted if all of its own
are those of others, too."""


class Admission(Protocol):
    """Counts how often keys that are not in the space were to be changed."""

    def admit(self, keys: Keys, reserve: Reserve) -> Mask:
        """Count each of ``keys``, which are different, once more: which of them are inserted?

        ``reserve``: asked for room before anything is taken; ``OutOfBudget``.
        """

    @property
    def nbytes(self) -> int:
        """Bytes of the counters."""

    type: ValueType
    """Of a row of its counters, as they are kept in files."""

    def __len__(self) -> int:
        """So many rows they are."""

    def copy_to(self, out: npt.NDArray[Any]) -> None:
        """Copy the counters."""

    def copy_from(self, rows: npt.NDArray[Any]) -> None:
        """Begin with these counters, where nothing was counted yet."""


class ExactCounts:
    """Counts every key by itself, which costs some 20 bytes for each that waits."""

    type = ValueType("int64", (2,))
    """A key, and how often it came."""

    def __init__(self, needed: int) -> None:
        """``needed``: a key is admitted when it comes for this time."""
        self.needed = needed
        self._index = KeyIndex()
        self._counts = RowStore(np.dtype(np.uint8), (), Constant(0))
        self._admitted = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the keys that wait, and of their counters."""
        return self._index.nbytes + self._counts.nbytes

    def __len__(self) -> int:
        return len(self._index)

    def copy_to(self, out: npt.NDArray[Any]) -> None:
        """As of ``Admission``."""
        out[:, 0] = self._index.keys_in_order()
        counts = np.empty(len(self), np.uint8)
        self._counts.copy_to(counts)
        out[:, 1] = counts

    def copy_from(self, rows: npt.NDArray[Any]) -> None:
        """As of ``Admission``."""
        keys = np.ascontiguousarray(rows[:, 0])
        if not are_different(keys):
            raise InvalidProgram("a key that is not admitted yet is counted once")
        self._index.insert(keys)
        self._counts.grow(self._index, np.zeros_like(self._index.counts))
        self._counts.copy_from(rows[:, 1])
        self._admitted = int(np.count_nonzero(rows[:, 1] >= self.needed))

    def admit(self, keys: Keys, reserve: Reserve) -> Mask:
        """As of ``Admission``."""
        missing = self._index.missing(keys)
        needed = self._index.bytes_for(missing) + self._counts.bytes_for(missing)
        kept = reserve(needed, f"counting {len(keys)} keys")
        old = self._index.counts.copy()
        locations = self._index.find(keys)
        new = locations < 0
        locations[new], _ = self._index.insert(keys[new])
        self._counts.grow(self._index, old)
        found = np.empty(len(keys), np.uint8)
        self._counts.gather(locations, keys, found)
        before = found < self.needed
        np.minimum(found, _MOST - 1, out=found)
        found += 1
        self._counts.scatter(locations, found, "replace")
        admitted = found >= self.needed
        self._admitted += int(np.count_nonzero(admitted & before))
        if 2 * self._admitted > len(self._index):
            self._forget_admitted()
        del kept
        return admitted

    def _forget_admitted(self) -> None:
        """Drop the counters of keys that are in the space by now."""
        found = np.empty(len(self._index), np.uint8)
        self._counts.copy_to(found)
        waiting = found < self.needed
        self._counts.keep(waiting, self._index.counts.copy())
        self._index.keep(waiting)
        self._admitted = 0


class Sketch:
    """Counts in so many bytes, whatever the number of keys; takes some keys for others.

    A counting Bloom filter: a key has four counters, and came at most as often as the least of
    them says. So a key may be admitted early, never late.

    Source: L. Fan, P. Cao, J. Almeida, A. Broder, "Summary cache", SIGCOMM 1998; of its counters
    only the least ones go up ("conservative update": C. Estan, G. Varghese, SIGCOMM 2002).
    """

    type = ValueType("uint8")

    def __init__(self, needed: int, size: int) -> None:
        """``needed``: a key is admitted when it comes for this time; ``size``: in bytes."""
        self.needed = needed
        self._counters = np.zeros(size, np.uint8)

    @property
    def nbytes(self) -> int:
        """Bytes of the counters."""
        return self._counters.nbytes

    def __len__(self) -> int:
        return len(self._counters)

    def copy_to(self, out: npt.NDArray[Any]) -> None:
        """As of ``Admission``."""
        out[...] = self._counters

    def copy_from(self, rows: npt.NDArray[Any]) -> None:
        """As of ``Admission``."""
        if len(rows) != len(self):
            raise InvalidProgram(f"{len(rows)} bytes of counters for a sketch of {len(self)}")
        self._counters[...] = rows

    def admit(self, keys: Keys, reserve: Reserve) -> Mask:
        """As of ``Admission``."""
        counters, size = self._counters, np.uint64(len(self._counters))
        hashes = mixed(keys)
        step = mixed(hashes.view(np.int64)) | np.uint64(1)
        with np.errstate(over="ignore"):
            places = [(hashes + np.uint64(k) * step) % size for k in range(_ROWS)]
        least = np.minimum.reduce([counters[place] for place in places])
        count = np.minimum(least, _MOST - 1) + np.uint8(1)
        for place in places:
            np.maximum.at(counters, place, count)
        admitted: Mask = count >= self.needed
        return admitted
