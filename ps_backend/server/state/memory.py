"""The memory of one server: a budget, and blocks that are used again.

The first touch of fresh memory costs about as much as a pass over it, so a block that nobody holds
any more is kept for the next array of the same size, as far as the budget allows.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from ps_backend.errors import OutOfBudget

_SMALLEST_KEPT = 1 << 16
_MOST_KEPT = 64
_LINE = 64

BLOCK_OVERHEAD = 1024
"""Bytes that are counted for each block on top of its own: the Python objects of a buffer, or of a
contribution, take some 700."""


class Reservation:
    """Bytes that are counted, for as long as somebody holds this, but not handed out."""

    __slots__ = ("_home", "size")

    def __init__(self, size: int, home: deque[int]) -> None:
        self.size = size
        self._home = home

    def __del__(self) -> None:
        self._home.append(self.size)  # may run anywhere, so it must take no lock


def rounded(size: int) -> int:
    """A little more than ``size``, so that nearly equal sizes use each other's memory again."""
    if size < _SMALLEST_KEPT:
        return size
    step = 1 << size.bit_length() - 4
    return -(-size // step) * step


class MemoryBlock:
    """A piece of memory; when the last reference goes, it returns to where it came from.

    Whoever reads or writes it holds a reference to the ``MemoryBlock`` (not only to an array over
    it), so a buffer may be freed while a slow reader is still sending it.
    """

    __slots__ = ("_home", "bytes")

    def __init__(self, memory: npt.NDArray[np.uint8], home: deque[npt.NDArray[np.uint8]]) -> None:
        self.bytes = memory
        self._home = home

    def array(self, dtype: np.dtype, shape: Sequence[int]) -> np.ndarray:
        """The block, or its beginning, as an array of ``dtype`` and ``shape``; no copy."""
        return self.bytes[: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)

    def __del__(self) -> None:
        self._home.append(self.bytes)  # may run anywhere, so it must take no lock


def _allocate_aligned(size: int) -> npt.NDArray[np.uint8]:
    """``size`` bytes that begin at a cache line, as vector stores past the caches need it."""
    memory = np.empty(size + _LINE, np.uint8)
    start = -memory.ctypes.data % _LINE
    return memory[start : start + size]


class Memory:
    """Hands out blocks within a budget of bytes. Thread-safe."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.peak = 0
        self._used = 0
        self._kept: list[npt.NDArray[np.uint8]] = []
        self._kept_bytes = 0
        self._returned: deque[npt.NDArray[np.uint8]] = deque()
        self._released: deque[int] = deque()
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        """Bytes that somebody holds: in blocks, with what each costs besides, and reserved."""
        with self._lock:
            self._take_back()
            return self._used

    @property
    def kept(self) -> int:
        """Bytes kept for later use, on top of ``used`` and within the same budget."""
        with self._lock:
            self._take_back()
            return self._kept_bytes

    def allocate(
        self, sizes: Sequence[int], what: str, *, force: bool = False
    ) -> list[MemoryBlock]:
        """One block per size, contents undefined; all of them, or ``OutOfBudget`` and none.

        ``what`` names the request in the error. ``force`` is for small working memory whose refusal
        would leave servers in different states.
        """
        if not sizes:
            return []
        needed = sum(sizes) + BLOCK_OVERHEAD * len(sizes)
        with self._lock:
            self._take_back()
            if not force:
                self._refuse(needed, what)
            kept = [self._reuse(size) for size in sizes]
            self._shrink_to(self.budget - self._used - needed)
            found = [
                _allocate_aligned(size) if memory is None else memory
                for size, memory in zip(sizes, kept, strict=True)
            ]
            self._count(needed)
        return [MemoryBlock(memory, self._returned) for memory in found]

    def reserve(self, size: int, what: str, *, force: bool = False) -> Reservation:
        """Count ``size`` bytes that lie elsewhere. As ``allocate``."""
        with self._lock:
            self._take_back()
            if not force:
                self._refuse(size, what)
            self._shrink_to(self.budget - self._used - size)
            self._count(size)
        return Reservation(size, self._released)

    def _refuse(self, needed: int, what: str) -> None:
        if self._used + needed > self.budget:
            raise OutOfBudget(
                f"{what} needs {needed} bytes, but {self._used} of the allowed {self.budget} "
                f"are in use; free arrays, use more servers, or start them with more --memory"
            )

    def _count(self, size: int) -> None:
        self._used += size
        self.peak = max(self.peak, self._used)

    def forget_kept(self) -> None:
        """Give the blocks that nobody holds back to the system."""
        with self._lock:
            self._take_back()
            self._shrink_to(0)

    def _reuse(self, size: int) -> npt.NDArray[np.uint8] | None:
        for place in range(len(self._kept) - 1, -1, -1):  # newest first: likeliest in cache
            if self._kept[place].size == size:
                self._kept_bytes -= size
                return self._kept.pop(place)
        return None

    def _take_back(self) -> None:
        while self._released:
            self._used -= self._released.popleft()
        while self._returned:
            memory = self._returned.popleft()
            self._used -= memory.size + BLOCK_OVERHEAD
            if memory.size >= _SMALLEST_KEPT:
                self._kept.append(memory)
                self._kept_bytes += memory.size
        self._shrink_to(self.budget // 4)

    def _shrink_to(self, most: int) -> None:
        while self._kept and (self._kept_bytes > most or len(self._kept) > _MOST_KEPT):
            self._kept_bytes -= self._kept.pop(0).size
