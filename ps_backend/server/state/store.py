"""What one session has on one server: buffers, which never change, and shared arrays, which do.

They are kept apart, so that nothing takes the one for the other: programs, reads and commits find
buffers only, and what is written in place is found by the commands that mean it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.errors import BufferLost, InvalidProgram, OutOfBudget
from ps_backend.kernels.collectives.partition import extremes
from ps_backend.program.types import ArrayType
from ps_backend.server.state.files import Pins
from ps_backend.server.state.memory import Memory, MemoryBlock
from ps_backend.wire.protocol import COUNTER_BITS, GoneBefore


class LostBuffers:
    """The ids of buffers that were made before a server took the place of a lost one.

    Ids begin with the number of the client that made them, and each client counts up. A client that
    was there before says how far it had counted; what it makes from then on was never lost. One
    that says nothing has lost all that it had made. What is made here was not lost either: what a
    client was about to make, or what is brought back under its old id.
    """

    def __init__(self) -> None:
        self._newest: dict[int, int] = {}
        self._made: set[int] = set()

    def note(self, newest: int) -> None:
        """A client has come back, whose newest buffer has that id; 0: it never had one."""
        if newest:
            self._newest.setdefault(newest >> COUNTER_BITS, newest)

    def made(self, buffers: Iterable[int]) -> None:
        """They are made here now."""
        self._made.update(buffer for buffer in buffers if buffer in self)

    def __contains__(self, buffer: int) -> bool:
        newest = self._newest.get(buffer >> COUNTER_BITS)
        return (newest is None or buffer <= newest) and buffer not in self._made


Array = npt.NDArray[Any]


class Workspace:
    """Arrays by name, in memory that is counted; it is the client that frees all of them.

    Others fetch what is here when a phase begins, so what they fetch must not change in that phase.
    """

    def __init__(self, memory: Memory, kind: str, of: object = None) -> None:
        """``of``: types and parameters, which all phases of the collective have in common."""
        self.kind, self.phase, self.of = kind, -1, of
        """The collective, and the phase that ran last."""
        self._memory = memory
        self._arrays: dict[str, tuple[Array, MemoryBlock]] = {}

    def new(self, name: str, shape: int | Sequence[int], dtype: npt.DTypeLike) -> Array:
        """A fresh array, contents undefined; raises ``OutOfBudget``."""
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        kind = np.dtype(dtype)
        size = kind.itemsize * int(np.prod(extents, dtype=np.int64))
        (block,) = self._memory.allocate([size], f"a {self.kind}")
        array = block.array(kind, extents)
        self._arrays[name] = array, block
        return array

    def put(self, name: str, values: npt.ArrayLike) -> Array:
        """A copy of ``values``, of rank 1 or more."""
        given = np.atleast_1d(np.asarray(values))
        array = self.new(name, given.shape, given.dtype)
        np.copyto(array, given)
        return array

    def __getitem__(self, name: str) -> Array:
        return self.held(name)[0]

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def held(self, name: str) -> tuple[Array, MemoryBlock]:
        """An array and what holds its memory; ``InvalidProgram`` if no phase has left it."""
        found = self._arrays.get(name)
        if found is None:
            raise InvalidProgram(f"this server has no {name[:40]!r} of a {self.kind}")
        return found

    def drop(self, name: str) -> None:
        """Give its memory back; nobody will fetch it any more."""
        self._arrays.pop(name, None)


@dataclass(frozen=True)
class Part:
    """The part of an array that a server holds: the type, and ``low <= global index < high``."""

    type: ArrayType
    low: int
    high: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the part: rows first."""
        return (self.high - self.low, *self.type.row)

    @cached_property
    def block_size(self) -> int:
        """Slots per block of the space."""
        return self.type.space.block_size

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the whole part."""
        return (self.high - self.low) * self.type.width * self.type.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that came along: ``values[i]`` for the local ``indices[i]``, in order; None for all.

    ``type``: of the array that they are of.
    """

    type: ArrayType
    indices: npt.NDArray[np.int64] | None
    values: np.ndarray
    block: MemoryBlock

    def check_fits(self, target: ArrayType) -> None:
        """Raise ``ValueError`` unless it has the space and row of ``target``."""
        if self.type.space != target.space or self.type.row != target.row:
            raise ValueError(f"an update must be {target}, got {self.type}")

    def combine_into(self, target: np.ndarray, operation: np.ufunc) -> None:
        """Combine with ``target`` in place; duplicate indices count each, in the order given."""
        values = self.values.astype(target.dtype, copy=False)
        with np.errstate(all="ignore"):  # infinities and NaN are results like others here
            if self.indices is None:
                operation(target, values, out=target)
            else:
                operation.at(target, self.indices, values)


@dataclass(slots=True, eq=False)
class Buffer:
    """One server's part of a materialised array: never written again once it is in a store."""

    part: Part
    block: MemoryBlock
    array: np.ndarray
    _extremes: tuple[int, int] | None = None

    @classmethod
    def over(cls, part: Part, block: MemoryBlock) -> Buffer:
        """A buffer over ``block``, which has the size of ``part``."""
        return cls(part, block, block.array(part.type.dtype, part.shape))

    @property
    def extremes(self) -> tuple[int, int]:
        """The least and the greatest of at least one index: found once, as it never changes."""
        if self._extremes is None:
            self._extremes = extremes(self.array)
        return self._extremes

    def successor(self) -> Buffer:
        """Another buffer, of the same type, in this memory: what is here is written over."""
        return Buffer(self.part, self.block, self.array)

    def copy_into(self, target: Buffer) -> None:
        """Copy the values."""
        np.copyto(target.array, self.array)


@dataclass(slots=True, eq=False)
class SharedArray:
    """One server's part of an array that many add to in place, until it is over."""

    part: Part
    block: MemoryBlock
    array: np.ndarray
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_over: bool = False

    def add(self, given: Rows) -> None:
        """Add to it, one after the other; ``BufferLost`` if it is over."""
        with self._lock:
            if self._is_over:
                raise BufferLost("the shared array was closed: it has become a buffer")
            given.combine_into(self.array, np.add)

    def copy_into(self, target: Buffer) -> None:
        """Copy the values of one moment."""
        with self._lock:
            np.copyto(target.array, self.array)

    def end(self) -> Buffer:
        """The buffer that it becomes, in the same memory: nobody adds to it any more."""
        with self._lock:
            self._is_over = True
        return Buffer(self.part, self.block, self.array)


_NONE: Mapping[int, Buffer] = MappingProxyType({})


class Store:
    """Buffers and shared arrays by id. Thread-safe; a failed call changes nothing."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._buffers: dict[int, Buffer] = {}
        self._shared: dict[int, SharedArray] = {}
        self._workspaces: dict[int, Workspace] = {}
        self.pins: Pins[Buffer] = Pins()
        self.lost_buffers: LostBuffers | None = None
        """Those of a server that was lost, where this one took its place."""
        self._lock = threading.Lock()
        self._written: set[int] = set()
        self._unwritten = threading.Condition(self._lock)

    def __len__(self) -> int:
        return len(self._buffers) + len(self._shared) + len(self._workspaces)

    def get(self, number: int, part: Part, own: Mapping[int, Buffer] = _NONE) -> Buffer:
        """Buffer ``number``, from ``own`` or the store; the sender believes it to be of ``part``.

        Raises ``BufferLost`` if it is not there, ``InvalidProgram`` if it is something else.
        """
        buffer = own.get(number) or self._buffers.get(number)
        if buffer is None:
            if number in self._shared:
                raise InvalidProgram(
                    f"array {number} is shared and changes in place, so programs cannot read it; "
                    "read a snapshot of it instead"
                )
            raise self.lost(number)
        if buffer.part is not part and buffer.part != part:
            raise _other_type(number, buffer.part, part)
        return buffer

    def get_one_of(self, number: int, parts: Iterable[Part]) -> Buffer:
        """Buffer ``number``, which is of one of ``parts``; errors as of ``get``, of the first."""
        first, *others = parts
        buffer = self._buffers.get(number)
        return self.get(number, buffer.part if buffer and buffer.part in others else first)

    def shared(self, number: int, part: Part) -> SharedArray:
        """Shared array ``number``; errors as of ``get``."""
        array = self._shared.get(number)
        if array is None:
            if number in self._buffers:
                raise InvalidProgram(
                    f"buffer {number} is immutable; share it, which makes a copy that can be "
                    "changed"
                )
            raise self.lost(number)
        if array.part != part:
            raise _other_type(number, array.part, part)
        return array

    def workspace(self, number: int) -> Workspace:
        """That of a collective under way; ``BufferLost`` if it is not there."""
        found = self._workspaces.get(number)
        if found is None:
            raise self.lost(number, "the result of a collective in workspace")
        return found

    def new(self, parts: Iterable[Part], what: str) -> list[Buffer]:
        """Fresh buffers, contents undefined, not yet in the store; ``OutOfBudget`` and none.

        Where pinned buffers take the memory, it is waited for until they are written.
        """
        wanted = list(parts)
        sizes = [part.nbytes for part in wanted]
        while True:
            try:
                blocks = self.memory.allocate(sizes, what)
            except OutOfBudget:
                if sum(sizes) > self.memory.budget or not self.pins.wait():
                    raise
            else:
                break
        return [Buffer.over(part, block) for part, block in zip(wanted, blocks, strict=True)]

    def refuse_taken(self, numbers: Iterable[int]) -> None:
        """Raise ``InvalidProgram`` if one of the ids is in use."""
        for number in numbers:
            if number in self._buffers or number in self._shared or number in self._workspaces:
                raise InvalidProgram(f"buffer {number} exists already; buffers are written once")

    def give_up(self, numbers: Sequence[int]) -> None:
        """Let go the buffers whose memory is used for others: all, or ``BufferLost`` and none."""
        with self._lock:
            for number in numbers:
                if number not in self._buffers:
                    raise self.lost(number)
            for number in numbers:
                del self._buffers[number]

    def pin(self, name: str) -> Mapping[int, Buffer]:
        """Keep all buffers of now under ``name``, or those that are kept under it already.

        Waits for those that are being written over.
        """
        with self._unwritten:
            self._unwritten.wait_for(lambda: not self._written)
            return self.pins.keep(name, self._buffers)

    @contextmanager
    def writing(self, numbers: Iterable[int]) -> Iterator[set[int]]:
        """Gives those of ``numbers`` that may be written over in the block: no pinned ones."""
        with self._lock:
            mine = {number for number in numbers if number not in self.pins}
            self._written |= mine
        try:
            yield mine
        finally:
            with self._unwritten:
                self._written -= mine
                self._unwritten.notify_all()

    def fill(self, buffers: Mapping[int, Buffer]) -> None:
        """Publish those whose ids are not taken; the others are here already."""
        with self._lock:
            for number, buffer in buffers.items():
                self._buffers.setdefault(number, buffer)
            if self.lost_buffers is not None:
                self.lost_buffers.made(buffers)

    def put(
        self,
        buffers: dict[int, Buffer],
        *,
        instead_of: Iterable[int] = (),
        begun: Mapping[int, Workspace] = MappingProxyType({}),
    ) -> None:
        """Publish finished buffers under their ids; ``InvalidProgram`` if an id is taken.

        Those that they were made ``instead_of`` cease to exist. With them the workspaces of
        collectives whose first phase has ended.
        """
        with self._lock:
            self.refuse_taken((*buffers, *begun))
            self._buffers.update(buffers)
            self._workspaces.update(begun)
            if self.lost_buffers is not None:
                self.lost_buffers.made(buffers)
            for number in instead_of:
                self._buffers.pop(number, None)

    def share(self, buffers: Mapping[int, Buffer]) -> None:
        """Let fresh ``buffers`` be shared arrays under their ids; ``InvalidProgram`` if taken."""
        with self._lock:
            self.refuse_taken(buffers)
            for number, one in buffers.items():
                self._shared[number] = SharedArray(one.part, one.block, one.array)
            if self.lost_buffers is not None:
                self.lost_buffers.made(buffers)

    def end_shared(self, targets: Mapping[int, int]) -> None:
        """Let shared arrays, by their ids, become the buffers ``targets``, in the same memory.

        ``BufferLost`` if one is not there any more, ``InvalidProgram`` if an id is taken.
        """
        with self._lock:
            self.refuse_taken(targets.values())
            for number in targets:
                if number not in self._shared:
                    raise self.lost(number)
            for number, target in targets.items():
                self._buffers[target] = self._shared.pop(number).end()
            if self.lost_buffers is not None:
                self.lost_buffers.made(targets.values())

    def free(self, numbers: Iterable[int]) -> None:
        """Drop what has these ids; none here is no error, as a free may come twice."""
        with self._lock:
            for number in numbers:
                self._buffers.pop(number, None)
                self._shared.pop(number, None)
                self._workspaces.pop(number, None)

    def find(self, numbers: Iterable[int]) -> dict[int, Buffer]:
        """The buffers with these ids that are here."""
        with self._lock:
            return {number: self._buffers[number] for number in numbers if number in self._buffers}

    def keep_only(self, numbers: Set[int]) -> None:
        """Drop all buffers but those with these ids."""
        with self._lock:
            self._buffers = {
                number: buffer for number, buffer in self._buffers.items() if number in numbers
            }

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._buffers.clear()
            self._shared.clear()
            self._workspaces.clear()
        self.pins.clear()

    def lost(self, number: int, what: str = "buffer") -> BufferLost:
        """The error of who names something that is not here."""
        if self.lost_buffers is not None and number in self.lost_buffers:
            return GoneBefore(f"{what} {number} was lost with its server")
        return BufferLost(f"{what} {number} is not on this server: it was freed, or never created")


def _other_type(number: int, found: Part, believed: Part) -> InvalidProgram:
    return InvalidProgram(f"buffer {number} is {found.type}, not {believed.type}")
