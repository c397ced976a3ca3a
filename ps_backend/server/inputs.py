"""The inputs of a sweep call: from this server's memory, or that of others.

A run of slots finds an input in place, as a slice of a buffer, or has it copied into scratch
memory, part by part from whoever holds it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.collectives.partition import (
    group_by_owner,
    scatter,
    take,
    verify_range,
)
from ps_backend.kernels.kernel import pool, thread_count
from ps_backend.program.types import ArrayType, ValueType, stored_type
from ps_backend.program.views import Span, View, in_place, spans
from ps_backend.server.peers import Asked, Neighbours, wait_for_all
from ps_backend.server.sessions import ServerSession
from ps_backend.server.state.memory import Memory, MemoryBlock
from ps_backend.server.state.store import Buffer, Part
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import encode_array
from ps_backend.wire.protocol import byte_view

Array = npt.NDArray[Any]

_LEAST_SHARED = 1 << 16
"""Elements from which a copy is shared out to threads."""


def pieces_of(flat: Array, start: int, step: int, count: int, width: int) -> Array:
    """The ``count`` pieces of ``width`` elements of ``flat``, C-contiguous, from ``start`` by
    ``step``; shape ``(count, width)``, or ``(count,)`` where they are single elements.

    ``ValueError`` if they are not all in it.
    """
    if count == 0:
        return flat[:0].reshape(0, width)
    if count == 1:
        return flat[start : start + width].reshape(1, width)
    size = flat.itemsize
    if width == 1:
        return np.ndarray((count,), flat.dtype, flat, start * size, (step * size,))
    return np.ndarray((count, width), flat.dtype, flat, start * size, (step * size, size))


def copy(target: Array, source: Array) -> None:
    """``np.copyto`` of arrays of one shape, by all the threads that a kernel may use."""
    threads = thread_count()
    if threads == 1 or target.size < _LEAST_SHARED:
        np.copyto(target, source)
        return
    axis = 0 if len(target) > 1 else -1
    parts = (np.array_split(array, threads, axis) for array in (target, source))
    list(pool().map(np.copyto, *parts))


Look = Callable[[], None]
Finish = Callable[[Look], None]
"""Waits for what is missing, and copies it where it belongs."""

_MOST_HELD = 1 << 20
"""Bytes that an input reads from one other server, up to which they are asked for at the start of
the program, with all others from there in one message."""


class Scratch:
    """Memory that runs of slots are copied into, one after the other: ``flat``, of ``block``."""

    def __init__(self, block: MemoryBlock, flat: Array) -> None:
        self.block, self.flat = block, flat
        self._clear = 0

    @classmethod
    def over(cls, block: MemoryBlock, dtype: np.dtype[Any]) -> Scratch:
        """All of ``block``."""
        return cls(block, block.bytes.view(dtype))

    def part(self, size: int) -> Array:
        """The first ``size`` elements, to be written."""
        self._clear = 0
        return self.flat[:size]

    def zeros(self, size: int, *, kept: bool) -> Array:
        """The same, all zeros; ``kept``: they will not be written."""
        if self._clear < size:
            self.flat[:size] = 0
        self._clear = max(size, self._clear) if kept else 0
        return self.flat[:size]


class Source(ABC):
    """One input of a sweep call on this server."""

    def __init__(self, value: ValueType) -> None:
        self.row, self.width = value.row, prod(value.row)
        self.dtype = np.dtype(value.dtype)
        self.row_bytes = self.width * self.dtype.itemsize
        self.streams = False
        """Whether much of it comes from other servers while the program runs."""

    @property
    @abstractmethod
    def extent(self) -> tuple[int, int]:
        """The slots, first and past the last, that are in place; none where they are equal."""

    @abstractmethod
    def take(self, low: int, high: int) -> Array:
        """What slots within ``extent`` read, flat: no copy."""

    @abstractmethod
    def begin(self, low: int, high: int, scratch: Scratch, neighbours: Neighbours) -> Finish:
        """Ask others for what the slots read. ``scratch`` has it when ``Finish`` returns."""


class Aligned(Source):
    """An input over the space of the sweep."""

    def __init__(self, value: ValueType, buffer: Buffer) -> None:
        super().__init__(value)
        self._flat = buffer.array.reshape(-1)
        self._low, self._high = buffer.part.low, buffer.part.high

    @property
    def extent(self) -> tuple[int, int]:
        """As of any source."""
        return self._low, self._high

    def take(self, low: int, high: int) -> Array:
        """As of any source."""
        return self._flat[(low - self._low) * self.width : (high - self._low) * self.width]

    def begin(self, low: int, high: int, scratch: Scratch, neighbours: Neighbours) -> Finish:
        """Never asked for."""
        raise TypeError("an aligned input is always in place")


@dataclass(frozen=True)
class _Home:
    """Where the buffer of a view lies."""

    type: ArrayType
    ranges: tuple[tuple[int, int, int], ...]
    here: int
    low: int
    high: int
    flat: Array
    """What is here."""

    @classmethod
    def of(cls, session: ServerSession, number: int, type: ArrayType) -> _Home:
        """Raises ``BufferLost``, ``InvalidProgram`` if it should be here and is not."""
        space = type.space
        parts = [(k, *space.range_of(k, session.servers)) for k in range(session.servers)]
        part = session.part_of(space, type.value.dtype, type.row)
        there = part.low < part.high
        flat = session.store.get(number, part).array if there else np.empty(0, type.dtype)
        held = tuple(one for one in parts if one[1] < one[2])
        return cls(type, held, session.index, part.low, part.high, flat.reshape(-1))


class ViewInput(Source):
    """An input that is read through a view without index."""

    def __init__(
        self, value: ValueType, view: View, number: int, session: ServerSession, here: Part
    ) -> None:
        """``here``: the part of the sweep."""
        super().__init__(value)
        self._view, self._number, self._memory = view, number, session.store.memory
        self._home = _Home.of(session, number, stored_type(view.space, value.dtype, view.row))
        self._held: dict[Span, tuple[Asked, Array]] = {}
        sizes: Counter[int] = Counter()
        for span in self._spans(here.low, here.high):
            if span.server != session.index:
                sizes[span.server] += span.size * self.dtype.itemsize
        self._few = {server for server, size in sizes.items() if size <= _MOST_HELD}
        self.streams = len(self._few) < len(sizes)

    @property
    def extent(self) -> tuple[int, int]:
        """As of any source."""
        home = self._home
        if home.low == home.high:
            return 0, 0
        low, high = in_place(self._view, self.row, home.low, home.high)
        return low, max(low, high)

    def take(self, low: int, high: int) -> Array:
        """As of any source."""
        (span,) = self._spans(low, high)
        return self._local(span).reshape(-1)

    @property
    def has_little(self) -> bool:
        """Whether there are servers that have little of it."""
        return bool(self._few)

    def little(self, low: int, high: int) -> Iterator[Span]:
        """What the slots read from these."""
        return (span for span in self._spans(low, high) if span.server in self._few)

    def hold(self, span: Span, asked: Asked, memory: npt.NDArray[np.uint8]) -> None:
        """What ``span`` names will be in ``memory``, which ``asked`` keeps."""
        self._held[span] = asked, memory.view(self.dtype)

    def describe(self, span: Span) -> pb.Pieces:
        """It, in a request to who has it."""
        return pb.Pieces(
            array=encode_array(self._number, self._home.type),
            start=span.start,
            step=span.step,
            count=span.count,
            width=span.width,
        )

    def begin(self, low: int, high: int, scratch: Scratch, neighbours: Neighbours) -> Finish:
        """As of any source."""
        size = (high - low) * self.width
        parts = list(self._spans(low, high))
        if self._view.spread and self._view.step == 1 and parts:
            flat = scratch.part(size)  # the parts adjoin
            flat[: min(span.first for span in parts)] = 0
            flat[max(span.first + span.size for span in parts) :] = 0
        elif self._view.spread:
            flat = scratch.zeros(size, kept=not parts)
        else:
            flat = scratch.part(size)
        ready: list[tuple[Array, Array]] = []
        later: list[tuple[Array, Array]] = []
        asked: list[Asked] = []
        for span in parts:
            target = pieces_of(flat, span.first, span.stride, span.count, span.width)
            if span.server == self._home.here:
                ready.append((target, self._local(span)))
            elif span in self._held:
                answer, found = self._held[span]
                asked.append(answer)
                later.append((target, found.reshape(target.shape)))
            else:
                into, block = target, scratch.block
                if not target.flags.c_contiguous:
                    (block,) = _working_memory(self._memory, [span.size * self.dtype.itemsize])
                    into = block.array(self.dtype, target.shape)
                    later.append((target, into))
                body = pb.Fetch(pieces=[self.describe(span)])
                asked.append(
                    neighbours.ask(span.server, "fetch", body, byte_view(into), keep=block)
                )

        def finish(look: Look) -> None:
            for target, source in ready:
                copy(target, source)
            wait_for_all(asked, look)
            for target, source in later:
                copy(target, source)

        return finish

    def _spans(self, low: int, high: int) -> Iterator[Span]:
        return spans(self._view, self.row, low, high, self._home.ranges)

    def _local(self, span: Span) -> Array:
        home = self._home
        start = span.start - home.low * home.type.width
        return pieces_of(home.flat, start, span.step, span.count, span.width)


_PIECE = 1 << 14
"""Indices of which it is asked whether one server has all that they name."""
_MOST_RUNS = 8
"""In more runs of such indices than these, each would have few for a message of its own."""


_INDEX_BYTES, _LEAST_SAVED, _MOST_FETCHED = 8, 2, 32 << 20
"""Of an index on its way; and an array of at most so many bytes is fetched as a whole if it takes
this part of the indices and what they name."""


class GatherInput(Source):
    """An input that is read at the slots that an array of indices names."""

    def __init__(
        self, value: ValueType, view: View, number: int, session: ServerSession, index: Buffer
    ) -> None:
        """Raises ``IndexError`` naming the first index that is out of range."""
        super().__init__(value)
        self._number, self._memory = number, session.store.memory
        self._home = _Home.of(session, number, stored_type(view.space, value.dtype, view.row))
        self._buffer, self._index = index, index.array
        self._low = index.part.low
        self._length = self._home.type.space.length
        ranges = self._home.ranges
        self._starts = np.array([low for _, low, _ in ranges[1:]], np.int64)
        verify_range(self._index, self._length, index.extremes if len(self._index) else None)
        self.streams = any(server != session.index for server, _, _ in ranges)
        size = self._home.type.nbytes
        named = len(self._index) * (_INDEX_BYTES + self.row_bytes)
        self._is_fetched = self.streams and size * _LEAST_SAVED <= named and size <= _MOST_FETCHED
        """Whether all that others have takes much less than the indices and what they name."""
        self._fetched: tuple[Array, list[Asked]] | None = None

    @property
    def extent(self) -> tuple[int, int]:
        """As of any source."""
        return 0, 0

    def take(self, low: int, high: int) -> Array:
        """Never asked for."""
        raise TypeError("an input with an index is never in place")

    def begin(self, low: int, high: int, scratch: Scratch, neighbours: Neighbours) -> Finish:
        """As of any source."""
        indices = self._index[low - self._low : high - self._low]
        rows = self._as_rows(scratch.part((high - low) * self.width))
        if self._is_fetched:
            self._fetched = self._fetched or self._fetch(neighbours)
            whole, parts = self._fetched

            def finish_local(look: Look) -> None:
                wait_for_all(parts, look)
                take(whole, 0, indices, rows, self._length)

            return finish_local
        keep = (scratch.block, self._buffer)
        finishes = [
            self._begin_run(owner, indices[some], rows[some], keep, neighbours)
            for owner, some in sorted(
                self._runs(indices), key=lambda run: run[0] != self._home.here
            )
        ]  # those from here first: the others are on their way meanwhile

        def finish(look: Look) -> None:
            for one in finishes:
                one(look)

        return finish

    def _fetch(self, neighbours: Neighbours) -> tuple[Array, list[Asked]]:
        """The whole array: its parts that others have are on their way."""
        home, width = self._home, self.width
        (block,) = _working_memory(self._memory, [home.type.nbytes])
        flat, asked = block.bytes.view(self.dtype), []
        for server, low, high in home.ranges:
            part = flat[low * width : high * width]
            if server == home.here:
                copy(part, home.flat)
                continue
            array = encode_array(self._number, home.type)
            piece = pb.Pieces(array=array, start=low * width, step=1, count=1, width=part.size)
            body = pb.Fetch(pieces=[piece])
            asked.append(neighbours.ask(server, "fetch", body, byte_view(part), keep=block))
        return self._as_rows(flat), asked

    def _runs(self, indices: Array) -> list[tuple[int | None, slice]]:
        """Consecutive indices by the server that has all that they name.

        None: several servers have some of it, or another one has it and indices are negative, which
        it is not told.
        """
        whole = slice(0, len(indices))
        if not self.streams:
            return [(self._home.here, whole)]
        runs: list[tuple[int | None, slice]] = []
        lows = np.arange(0, len(indices), _PIECE)
        # By one call for all: each hands the interpreter lock over to who else waits for it.
        least = np.minimum.reduceat(indices, lows).tolist()
        greatest = np.maximum.reduceat(indices, lows).tolist()
        for low, first, last in zip(lows.tolist(), least, greatest, strict=True):
            owner = self._owner_of(first, last)
            start = low
            if runs and runs[-1][0] == owner:
                start = runs.pop()[1].start
            runs.append((owner, slice(start, min(low + _PIECE, len(indices)))))
        return runs if len(runs) <= _MOST_RUNS else [(None, whole)]

    def _owner_of(self, least: int, greatest: int) -> int | None:
        shift = self._length if greatest < 0 else 0
        for server, begin, end in self._home.ranges:
            if begin <= least + shift and greatest + shift < end:
                return server if server == self._home.here or not shift else None
        return None

    def _begin_run(
        self,
        owner: int | None,
        indices: Array,
        rows: Array,
        keep: object,
        neighbours: Neighbours,
    ) -> Finish:
        here, low = self._as_rows(self._home.flat), self._home.low
        if owner == self._home.here:
            return lambda _: take(here, low, indices, rows, self._length)
        indices = indices.astype(np.int64, copy=False)
        if owner is not None:
            return self._ask(owner, indices, rows, keep, neighbours).wait
        count = len(indices)
        kept = _working_memory(self._memory, [4 * count, 8 * count, self.row_bytes * count])
        places, wanted = kept[0].bytes.view(np.int32), kept[1].bytes.view(np.int64)
        found = self._as_rows(kept[2].bytes.view(self.dtype))
        bounds = group_by_owner(indices, self._starts, self._length, places, wanted)
        local = slice(0, 0)
        asked: list[Asked] = []
        for range_, group in zip(self._home.ranges, map(slice, bounds, bounds[1:]), strict=True):
            if range_[0] == self._home.here:
                local = group
            elif group.start < group.stop:
                asked.append(self._ask(range_[0], wanted[group], found[group], kept, neighbours))

        def finish(look: Look) -> None:
            take(here, low, wanted[local], found[local])
            wait_for_all(asked, look)
            scatter(found, places, rows)  # twice written, but in the order that memory likes
            kept.clear()  # until here nobody else may have this memory

        return finish

    def _ask(
        self, server: int, indices: Array, into: Array, keep: object, neighbours: Neighbours
    ) -> Asked:
        """Ask another server for what the indices name."""
        array = encode_array(self._number, self._home.type)
        body = pb.Read(rows=pb.Rows(array=array, indices=len(indices)))
        payload = [byte_view(indices)]
        return neighbours.ask(server, "read", body, byte_view(into), payload=payload, keep=keep)

    def _as_rows(self, flat: Array) -> Array:
        return flat if self.width == 1 else flat.reshape(-1, self.width)


def _working_memory(memory: Memory, sizes: list[int]) -> list[MemoryBlock]:
    """Small memory for a while, which must not fail on one of several servers."""
    return memory.allocate(sizes, "reading from another server", force=True)
