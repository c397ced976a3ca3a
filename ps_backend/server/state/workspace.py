"""What the phases of one movement leave on a server, for each other and for other servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.errors import InvalidProgram
from ps_backend.server.state.memory import Memory, MemoryBlock

Array = npt.NDArray[Any]


class Workspace:
    """Arrays by name, in memory that is counted; it is the client that frees all of them.

    Others fetch what is here when a phase begins, so what they fetch must not change in that phase.
    """

    def __init__(self, memory: Memory, kind: str, of: object = None) -> None:
        """``of``: types and parameters, which all phases of the movement have in common."""
        self.kind, self.phase, self.of = kind, -1, of
        """The movement, and the phase that ran last."""
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
            raise InvalidProgram(f"a {self.kind} has left no {name[:40]!r} on this server")
        return found

    def drop(self, name: str) -> None:
        """Give its memory back; nobody will fetch it any more."""
        self._arrays.pop(name, None)
