"""The buffers of one session on one server."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np

from ps_backend.errors import BufferLost, InvalidProgram
from ps_backend.program.types import ArrayType
from ps_backend.server.state.memory import Block, Memory


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


@dataclass(slots=True, eq=False)
class Buffer:
    """One server's part of a materialised array.

    Never written again once it is in a store, unless it was made for tasks to share (``Update``).
    """

    part: Part
    block: Block
    array: np.ndarray

    @classmethod
    def over(cls, part: Part, block: Block) -> Buffer:
        """A buffer over ``block``, which has the size of ``part``."""
        return cls(part, block, block.array(part.type.dtype, part.shape))


_NONE: Mapping[int, Buffer] = MappingProxyType({})


class Store:
    """Buffers by id. Thread-safe; a failed call changes nothing."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.updating = threading.Lock()
        """Held by whoever adds to a buffer that others see."""
        self._buffers: dict[int, Buffer] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._buffers)

    def get(self, number: int, part: Part, own: Mapping[int, Buffer] = _NONE) -> Buffer:
        """Buffer ``number``, from ``own`` or the store; the sender believes it to be of ``part``.

        Raises ``BufferLost`` if it is not there, ``InvalidProgram`` if it is something else.
        """
        buffer = own.get(number) or self._buffers.get(number)
        if buffer is None:
            raise BufferLost(
                f"buffer {number} is not here: it was freed, or lost when a server was restarted"
            )
        if buffer.part is not part and buffer.part != part:
            raise InvalidProgram(f"buffer {number} is {buffer.part.type}, not {part.type}")
        return buffer

    def new(self, parts: Iterable[Part], what: str) -> list[Buffer]:
        """Fresh buffers, contents undefined, not yet in the store; ``OutOfBudget`` and none."""
        wanted = list(parts)
        blocks = self.memory.allocate([part.nbytes for part in wanted], what)
        return [Buffer.over(part, block) for part, block in zip(wanted, blocks, strict=True)]

    def refuse_taken(self, numbers: Iterable[int]) -> None:
        """Raise ``InvalidProgram`` if one of the ids is in use."""
        for number in numbers:
            if number in self._buffers:
                raise InvalidProgram(f"buffer {number} exists already; buffers are written once")

    def give_up(self, numbers: Sequence[int]) -> None:
        """Let go the buffers whose memory is used for others: all, or ``BufferLost`` and none."""
        with self._lock:
            for number in numbers:
                if number not in self._buffers:
                    raise BufferLost(f"buffer {number} was freed by another request meanwhile")
            for number in numbers:
                del self._buffers[number]

    def put(self, buffers: dict[int, Buffer], *, instead_of: Iterable[int] = ()) -> None:
        """Publish finished buffers under their ids; ``InvalidProgram`` if an id is taken.

        Those that they were made ``instead_of`` cease to exist.
        """
        with self._lock:
            self.refuse_taken(buffers)
            self._buffers.update(buffers)
            for number in instead_of:
                self._buffers.pop(number, None)

    def free(self, numbers: Iterable[int]) -> None:
        """Drop buffers; ids that are not here are no error, as a free may come twice."""
        with self._lock:
            for number in numbers:
                self._buffers.pop(number, None)

    def clear(self) -> None:
        """Drop all buffers."""
        with self._lock:
            self._buffers.clear()
