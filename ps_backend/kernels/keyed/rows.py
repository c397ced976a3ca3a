"""The rows of one array of a keyed space: a block of memory for each bucket, rows in it by slot."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.kernel import in_parts
from ps_backend.kernels.keyed.index import KeyIndex, RangeIndex, kept_of
from ps_backend.kernels.numpy_loops import address_of
from ps_backend.program import initializers
from ps_backend.program.initializers import Constant, Fill, Normal
from ps_backend.program.keys import BUCKETS
from ps_backend.program.row_program import SCATTERS

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]

_AT_ONCE = 1 << 16
"""Rows whose initial values are made at a time: as float64, before they are rounded."""

_ADDED = frozenset(("float64", "float32", "int64", "uint64"))
"""Dtypes that a compiled loop adds."""
_JOINS = {"add": np.add, "min": np.minimum, "max": np.maximum}
_SPARE = 8
"""A block that grows has room for one slot in so many more than it needs."""
_MOST_SPARE = 4
"""A block from which rows went is made smaller if it has room for one in so many besides."""
_LINE = 64
"""Bytes that memory is read by. Where they begin a block, rows of so many are read in one go."""
_SHORT = 16
"""Rows of so few bytes lie in one line wherever a block begins: as NumPy has it."""
_SIGNED = 1 << 63


def initial_rows(rule: Fill, keys: Integers, row: tuple[int, ...], dtype: Any) -> Array:
    """The bits of ``program.initializers.evaluate``, by compiled loops: ``(n, *row)``, new."""
    columns = prod(row)
    if isinstance(rule, Constant) or not len(keys) or not columns:
        return initializers.evaluate(rule, keys, row, dtype)
    from ps_backend.kernels.keyed import compiled_rows

    seed = (rule.seed + _SIGNED) % (2 * _SIGNED) - _SIGNED
    is_normal = isinstance(rule, Normal)
    offset, scale = (
        (rule.mean, rule.scale) if isinstance(rule, Normal) else (rule.low, rule.high - rule.low)
    )
    numbers = np.empty((len(keys), columns))
    where = address_of(keys), len(keys), columns
    how = is_normal, float(offset), float(scale)
    compiled_rows.fill_random(*where, seed, *how, address_of(numbers))
    with np.errstate(all="ignore"):  # what is beyond the dtype becomes what NumPy makes of it
        return numbers.astype(dtype, copy=False).reshape(len(keys), *row)


class RowStore:
    """What an array of a keyed space has in its slots, those of a ``KeyIndex``.

    An array of dtype ``dtype`` with elements of shape ``row``; where nobody has written, values
    are those of the rule ``fill``. Blocks have room for an eighth more rows than there are.
    """

    def __init__(self, dtype: Any, row: tuple[int, ...], fill: Fill) -> None:
        self.dtype, self.row, self.fill = np.dtype(dtype), row, fill
        self.counts = np.zeros(BUCKETS, np.int64)
        """Rows of each bucket; the caller does not write to it."""
        self._size: int = prod(row) * self.dtype.itemsize
        self._spare = _LINE if self._size > _SHORT else 0
        """Bytes of each block, of which some are in front of its rows."""
        self._blocks: list[Array | None] = [None] * BUCKETS
        self._addresses = np.zeros(BUCKETS, np.int64)
        self._room = np.zeros(BUCKETS, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks."""
        rows, blocks = int(self._room.sum()), int(np.count_nonzero(self._room))
        return rows * self._size + blocks * self._spare

    @property
    def table(self) -> tuple[int, int]:
        """Where the addresses of the blocks are, and bytes of a row: what compiled loops ask."""
        return address_of(self._addresses), self._size

    def bytes_for(self, missing: Integers) -> int:
        """Bytes that ``grow`` takes at most for so many more rows of each bucket."""
        room = self._room_for(self.counts + missing)
        moved = self._room[room > self._room].max(initial=0)
        rows = int((room - self._room).sum() + moved)
        blocks = int(np.count_nonzero(room)) - int(np.count_nonzero(self._room))
        return rows * self._size + (blocks + 1) * self._spare

    def grow(self, index: KeyIndex | RangeIndex, old_counts: Integers) -> None:
        """Make room for the slots that were given since ``old_counts``, and initial values there.

        ``old_counts`` are how many keys buckets had before: ``self.counts``.
        """
        if not np.array_equal(old_counts, self.counts):
            raise ValueError("an array has other slots than its index had")
        counts = index.counts.copy()
        self._make_room(counts)
        if not self._size:
            self.counts = counts
            return
        if isinstance(self.fill, Constant):
            row = initial_rows(self.fill, np.zeros(1, np.int64), self.row, self.dtype)
            if row.view(np.uint8).any():  # else it is there: what no key has yet is zeros
                self._fill(self.counts, counts, row)
            self.counts = counts
            return
        keys, locations = index.added_since(old_counts)
        self.counts = counts
        for low in range(0, len(keys), _AT_ONCE):
            some = slice(low, low + _AT_ONCE)
            rows = initial_rows(self.fill, keys[some], self.row, self.dtype)
            self._run("replace", locations[some], rows)

    def gather(self, locations: Integers, keys: Integers, out: Array) -> None:
        """Write the row at each location into contiguous ``out``, of shape ``(n, *row)``.

        Where a location is -1, the initial value of its key, which inserting it would give.
        """
        if self._size and len(locations):
            self._run("gather", locations, out)
            absent = np.flatnonzero(locations < 0)
            if len(absent):
                out[absent] = initial_rows(self.fill, keys[absent], self.row, self.dtype)

    def scatter(self, locations: Integers, values: Array, op: str) -> None:
        """Join each of ``values``, of shape ``(n, *row)``, to the row at its location.

        ``op`` is one of ``SCATTERS``, and means what NumPy's function does. Locations are all
        different; at -1 nothing is done. Takes as much memory again as ``values``, but to replace,
        and to add numbers of 64 bits or of float32.
        """
        if op not in SCATTERS:
            raise ValueError(f"no scatter {op!r}, but {', '.join(SCATTERS)}")
        if not self._size or not len(locations):
            return
        values = np.ascontiguousarray(values, self.dtype)
        if op == "replace" or (op == "add" and self.dtype.name in _ADDED):
            self._run(op, locations, values)
            return
        there = np.empty_like(values)
        self._run("gather", locations, there)
        if (locations < 0).any():
            there[locations < 0] = values[locations < 0]  # any values
        self._run("replace", locations, _JOINS[op](there, values, out=there))

    def keep(self, mask: npt.NDArray[np.bool_], counts: Integers) -> None:
        """Forget the rows that ``mask``, in the order of buckets and slots, does not name.

        ``counts`` are the rows of each bucket before. The others keep their order.
        """
        if not np.array_equal(counts, self.counts) or len(mask) != counts.sum():
            raise ValueError(f"a mask of {len(mask)} for {self.counts.sum()} rows")
        starts = np.cumsum(counts) - counts
        if self._size and len(mask):
            self._move_kept(np.ascontiguousarray(mask), starts)
        left = kept_of(mask, counts)
        for bucket in np.flatnonzero(left < counts).tolist():
            count, room = int(left[bucket]), int(self._room[bucket])
            if room > count + count // _MOST_SPARE:
                room = _spacious(count)
                self._resize(bucket, room)
            block = self._blocks[bucket]
            if block is not None:
                behind = int(self._addresses[bucket]) - address_of(block) + count * self._size
                block[behind:] = 0  # as what no key has yet is zeros
        self.counts = left

    def _move_kept(self, mask: npt.NDArray[np.bool_], starts: Integers) -> None:
        from ps_backend.kernels.keyed import compiled_rows

        tables = [address_of(one) for one in (self._addresses, starts, self.counts)]

        move: Any = compiled_rows.keep

        def keep(low: int, high: int) -> None:
            move(*tables, low, high, self._size, address_of(mask))

        in_parts(keep, BUCKETS, len(mask) // BUCKETS * self._size // 8 + 1)

    def copy_to(self, out: Array) -> None:
        """Copy all rows into ``out``, of shape ``(len(index), *row)``, by bucket and slot."""
        low = 0
        for bucket in np.flatnonzero(self.counts).tolist():
            rows = self._rows(bucket)
            out[low : low + len(rows)] = rows
            low += len(rows)

    def copy_from(self, values: Array) -> None:
        """Replace all rows by ``values``, which are in the order of ``copy_to``."""
        low = 0
        for bucket in np.flatnonzero(self.counts).tolist():
            rows = self._rows(bucket)
            rows[...] = values[low : low + len(rows)]
            low += len(rows)

    def _run(self, op: str, locations: Integers, rows: Array) -> None:
        from ps_backend.kernels.keyed import compiled_rows

        where = address_of(self._addresses), address_of(locations), len(locations)
        numbers = (self.dtype.type(0),) if op == "add" else ()
        getattr(compiled_rows, op)(*where, self._size, address_of(rows), *numbers)

    def _fill(self, first: Integers, counts: Integers, row: Array) -> None:
        from ps_backend.kernels.keyed import compiled_rows

        tables = [address_of(one) for one in (self._addresses, first, counts, row)]
        fill: Any = compiled_rows.fill
        fill(*tables, BUCKETS, self._size)

    def _rows(self, bucket: int, count: int | None = None) -> Array:
        """The rows of a bucket, as an array that shares memory with its block."""
        count = int(self.counts[bucket]) if count is None else count
        block = self._blocks[bucket]
        if block is None or not count:
            return np.empty((count, *self.row), self.dtype)
        start = int(self._addresses[bucket]) - address_of(block)
        part = block[start : start + count * self._size]
        rows: Array = part.view(self.dtype).reshape(count, *self.row)
        return rows

    def _room_for(self, counts: Any) -> Any:
        """Slots that blocks have room for, when they have so many rows: never fewer than now."""
        return np.where(counts > self._room, _spacious(counts), self._room)

    def _make_room(self, counts: Integers) -> None:
        for bucket in np.flatnonzero(counts > self._room).tolist():
            self._resize(bucket, _spacious(int(counts[bucket])))

    def _resize(self, bucket: int, room: int) -> None:
        """Make the block of a bucket one of so many rows; those that fit stay, others are zeros."""
        size, old = room * self._size, self._blocks[bucket]
        kept = min(room, int(self._room[bucket])) * self._size
        before = 0 if old is None else int(self._addresses[bucket]) - address_of(old)
        if old is not None and kept < size:
            block = old
            block.resize(size + self._spare, refcheck=False)
        else:  # a smaller block moves: between those that stay, parts of pages would be free
            block = self._blocks[bucket] = np.zeros(size + self._spare if room else 0, np.uint8)
        address = address_of(block)
        start = -address % self._spare if self._spare else 0
        if old is not None and kept and (block is not old or start != before):
            block[start : start + kept] = old[before : before + kept]
            if block is old:
                block[start + kept : before + kept] = 0
        self._addresses[bucket] = address + start
        self._room[bucket] = room


def _spacious(count: Any) -> Any:
    return count + count // _SPARE
