"""A copy of a keyed space at one moment, which is written to files while the space changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.errors import InvalidProgram
from ps_backend.program.types import ValueType
from ps_backend.server.state.keyed.space import KeyedSpace
from ps_backend.server.state.memory import Memory, MemoryBlock
from ps_backend.server.state.store import Part
from ps_backend.wire.keyed import SpaceCopy

_KEY = ValueType("int64")


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows in the order of buckets and slots."""

    type: ValueType
    block: MemoryBlock
    array: npt.NDArray[Any]

    def of(self, part: Part) -> npt.NDArray[Any]:
        """The rows, which the sender believes to be ``part`` of an array."""
        if (part.type.value, part.high - part.low) != (self.type, len(self.array)):
            raise InvalidProgram(f"{len(self.array)} rows of {self.type} were kept, not {part}")
        return self.array


@dataclass(frozen=True, slots=True)
class HeldSpace:
    """A keyed space as it was."""

    about: SpaceCopy
    rows: Mapping[int, HeldRows] = field(default_factory=dict)
    """By number: of each array, of the keys, and of the counters. None of what was not copied."""


def held(space: KeyedSpace, number: int, waiting: int, known: int, memory: Memory) -> HeldSpace:
    """Copy the space ``number``, all at one moment, unless ``known`` is its mark still.

    ``waiting``: the number of its counters. Others wait for the space meanwhile. ``OutOfBudget``.
    """
    with space.lock:
        count, counters = len(space.index), space.admission
        rows = 0 if counters is None else len(counters)
        about = SpaceCopy(space.state, space.mark, rows, tuple(space.arrays))
        if space.mark == known:
            return HeldSpace(about)
        types = {number: (_KEY, count)}
        types |= {array: (one.type, count) for array, one in space.arrays.items()}
        if counters is not None:
            types[waiting] = counters.type, rows
        sizes = [many * type.row_bytes for type, many in types.values()]
        blocks = memory.allocate(sizes, "the copy of a keyed space for a checkpoint")
        copies = {
            id: HeldRows(type, block, block.array(np.dtype(type.dtype), (many, *type.row)))
            for (id, (type, many)), block in zip(types.items(), blocks, strict=True)
        }
        copies[number].array[:] = space.index.keys_in_order()
        for array, one in space.arrays.items():
            one.store.copy_to(copies[array].array)
        if counters is not None:
            counters.copy_to(copies[waiting].array)
        return HeldSpace(about, copies)
