"""A partition's rows in the process of a task, and the coordinates that it pulls and pushes."""

from __future__ import annotations

import math
import os
from collections.abc import Hashable
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from distvec.losses.row_hashes import GOLDEN, Keys, mix, row_hashes, uniform
from distvec.losses.rows import Ints, Rows
from distvec.spark.data.blocks import Block, held_out_path, load, local_columns
from ps_backend.client import Change, Client, StoredArray
from ps_backend.program.spaces import Space
from ps_backend.program.types import ArrayType

_INDEX_BYTES = 8

Values = npt.NDArray[Any]


class CoordinateTransfer:
    """Pulls and contributions, and memory for whole arrays that the partitions of a process share.

    What ``pull`` and ``contribution`` return may be overwritten by the next call.
    """

    def __init__(self) -> None:
        self._values = self._sum = np.empty(0)
        self._filled: Ints | None = None
        """Where ``_sum`` may be other than zero."""
        self._source: object = None
        self._type: ArrayType

    def give_way(self) -> tuple[ArrayType, Values] | None:
        """Forget the values; returns their type and memory, for others to come there.

        None if not all values of an array were pulled.
        """
        if self._source is None:
            return None
        self._source = None
        return self._type, self._values

    def came(self, client: Client, buffer: int) -> None:
        """All values of ``buffer`` are in that memory now."""
        self._source = (client, buffer)

    def pull(
        self, client: Client, buffer: int, type: ArrayType, coordinates: Ints | None
    ) -> Values:
        """The rows of ``buffer`` at sorted ``coordinates``; None: all. One message a server.

        None if all values came for another partition before.
        """
        if coordinates is not None and not is_most(coordinates, type):
            return client.gather(buffer, type, coordinates)
        if (source := (client, buffer)) != self._source:
            self._source = None
            if (self._values.shape, self._values.dtype) != (type.shape, type.dtype):
                self._values = np.empty(type.shape, type.dtype)
            client.read(buffer, type, out=self._values)
            self._source, self._type = source, type
        if coordinates is None or coordinates.size == type.space.length:
            return self._values
        return self._values[coordinates]

    def contribution(
        self,
        type: ArrayType,
        coordinates: Ints | None,
        values: Values,
        *,
        are_sorted: bool = True,
    ) -> Change:
        """What to contribute to an array of ``type`` to add ``values`` at ``coordinates``; None:
        at all.
        """
        if coordinates is None:
            return Change(None, values)
        if not is_most(coordinates, type):
            return Change(coordinates, values)
        if are_sorted and coordinates.size == type.space.length:
            return Change(None, values)
        if (self._sum.shape, self._sum.dtype) != (type.shape, type.dtype):
            self._sum, self._filled = np.zeros(type.shape, type.dtype), coordinates
        if self._filled is not coordinates:  # of another partition
            self._sum.fill(0)
            self._filled = coordinates
        self._sum[coordinates] = values
        return Change(None, self._sum)


def is_most(coordinates: Ints, type: ArrayType) -> bool:
    """Are all values of the array fewer bytes than coordinates with theirs?"""
    row_bytes = type.nbytes // max(type.space.length, 1)
    return coordinates.size * (_INDEX_BYTES + row_bytes) >= type.nbytes


_MOST_SPACES = 8


class Part(NamedTuple):
    """Which of a partition's rows: part ``number`` of so many, in the order of the rows.

    That order is by a hash of each row (within a group, or a time), so a part is a random sample,
    and the parts of all partitions together are all rows.
    """

    number: int
    of: int


class Sample(NamedTuple):
    """Which of a partition's rows: each with the same probability, independent of others."""

    fraction: float
    seed: int


class Span(NamedTuple):
    """Which of a partition's rows: those with a place from ``begin`` to ``end``.

    Each row has a random place between any two whole numbers, by a hash of its features: spans that
    follow one another use it once an epoch, in whichever partition it is.
    """

    begin: float
    end: float
    seed: int

    def places(self, hashes: Keys) -> Ints:
        """The numbers of the rows with these hashes."""
        found = np.zeros(hashes.size, bool)
        salt = mix(np.array([self.seed % 2**64], np.uint64))
        for epoch in range(math.floor(self.begin), math.ceil(self.end)):
            of_epoch = mix((salt + np.uint64(epoch)) * GOLDEN)
            places = epoch + uniform(mix(hashes + of_epoch))
            found |= (self.begin <= places) & (places < self.end)
        return np.flatnonzero(found)


class HeldOut(NamedTuple):
    """Which of a partition's rows: those that do not train."""


class Partition:
    """The rows in the files of ``path``, mapped; BlockMissing if they are elsewhere."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._whole = Selection(path, load(path))
        self._parts: dict[Part, Selection] = {}

    def selection(self, part: RowSubset | None, partition: int) -> Selection:
        """All rows that train, a part of those of partition number ``partition``, or the others.

        Parts of one size are kept: they need memory for the places of their elements.
        """
        if part is None:
            return self._whole
        if isinstance(part, Sample):
            return self._whole.sample(part, partition)
        if isinstance(part, Span):
            return self._whole.span(part)
        if isinstance(part, HeldOut):
            return self._held_out
        if part not in self._parts:
            if any(known.of != part.of for known in self._parts):
                self._parts.clear()
            self._parts[part] = self._whole.part(part, partition)
        return self._parts[part]

    @cached_property
    def _held_out(self) -> Selection:
        return Selection(self.path, load(held_out_path(self.path)))


RowSubset = Part | Sample | Span | HeldOut


class Selection:
    """Rows, and the coordinates that they touch."""

    def __init__(self, path: str, block: Block, whole: Selection | None = None) -> None:
        self.rows = block.rows
        self._path = path
        self._columns = block.columns
        """Of the features; in a part, the places among those of the whole."""
        self._whole = whole
        self._coordinates: dict[tuple[StoredArray | None, Space, bool], Ints] = {}
        self._spread: tuple[Ints, Rows] | None = None
        self.prepared: tuple[Hashable, Any] | None = None
        """What a ``PhasedLoss`` made of these rows in its first phase, and of what; or what a
        ``StatefulLoss`` keeps."""

    def coordinates(
        self, client: Client, space: Space, *, intercept: bool, kept: StoredArray | None
    ) -> Ints:
        """Where the rows' columns are in ``space``, sorted; the intercept's last.

        ``kept`` has the global coordinates that the space consists of; None if it has all. One
        message a server, once.
        """
        key = (kept, space, intercept)
        if key not in self._coordinates:
            if len(self._coordinates) >= _MOST_SPACES:  # of other losses over these rows
                self._coordinates.clear()
            places = self._places(client, kept)
            last = space.length - 1
            self._coordinates[key] = np.append(places, last) if intercept else places
        return self._coordinates[key]

    def spread(self, coordinates: Ints, columns: int) -> Rows:
        """These rows over so many columns, of which theirs are ``coordinates``; the last is kept.

        They need the values of all columns, and give a gradient by all, but no values are picked
        from those and put among these.
        """
        if self._spread is None or self._spread[0] is not coordinates:
            self._spread = coordinates, self.rows.spread(coordinates[: self.rows.columns], columns)
        return self._spread[1]

    @property
    def features(self) -> Ints:
        """The global coordinates of the columns of all rows."""
        return self._columns

    def at_columns(self, table: Values) -> Values:
        """Of an array over all features and an intercept the rows for these columns."""
        if self._columns.size == len(table) - 1:
            return table
        found: Values = table[np.append(self._columns, len(table) - 1)]
        return found

    def part(self, part: Part, partition: int) -> Selection:
        """Some of these rows, over the columns that they touch."""
        return self._of(self.rows[_bounds(self.rows, part, partition)])

    def sample(self, sample: Sample, partition: int) -> Selection:
        """A copy of rows that are drawn, over the columns that they touch."""
        drawn = np.random.default_rng((sample.seed, partition)).random(len(self.rows))
        return self._of(self.rows.take(np.flatnonzero(drawn < sample.fraction)))

    def span(self, span: Span) -> Selection:
        """A copy of the rows of a span, over the columns that they touch."""
        return self._of(self.rows.take(span.places(self._hashes)))

    @cached_property
    def _hashes(self) -> Keys:
        return row_hashes(self.rows.matrix, self._columns)

    def _of(self, rows: Rows) -> Selection:
        if isinstance(rows.matrix, np.ndarray):
            columns: Ints = np.arange(rows.columns)
        else:
            columns, local = local_columns(rows.matrix.indices, rows.columns)
            shape = (len(rows), columns.size)
            parts = (rows.matrix.data, local.astype(rows.matrix.indptr.dtype), rows.matrix.indptr)
            rows = replace(rows, matrix=type(rows.matrix)(parts, shape=shape, copy=False))
        return Selection(self._path, Block(columns, rows), self)

    def _places(self, client: Client, kept: StoredArray | None) -> Ints:
        if self._whole is not None:
            return self._whole._places(client, kept)[self._columns]
        return self._columns if kept is None else self._ranks(client, kept)

    def _ranks(self, client: Client, kept: StoredArray) -> Ints:
        """The places of the columns among the coordinates ``kept``; a file for later processes."""
        path = os.path.join(self._path, f"places-{kept.buffer}.npy")
        if not os.path.exists(path):
            places = np.searchsorted(client.read(*kept), self._columns)
            draft = f"{path}.{os.getpid()}"
            with open(draft, "wb") as file:
                np.save(file, places)
            os.replace(draft, path)
        return np.asarray(np.load(path, mmap_mode="r"))


def _bounds(rows: Rows, part: Part, partition: int) -> slice:
    """The rows of a part; small partitions differ in the parts that go without.

    A group is whole in the part that has its first row.
    """
    shift = (partition * 0x9E3779B1) % part.of
    ends = [(len(rows) * (part.number + k) + shift) // part.of for k in (0, 1)]
    if rows.groups is not None:
        ends = [_group_start(rows.groups, end) for end in ends]
    return slice(*ends)


def _group_start(groups: Ints, row: int) -> int:
    """The first row from ``row`` on that begins a group."""
    if row in (0, groups.size):
        return row
    others = np.flatnonzero(groups[row:] != groups[row - 1])
    return row + int(others[0]) if others.size else groups.size
