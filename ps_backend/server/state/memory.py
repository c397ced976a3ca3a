"""The memory of one server: a budget, and blocks that are used again.

The first touch of fresh memory costs about as much as a pass over it, so a block that nobody holds
any more is kept for the next array of the same size: for some seconds, as far as the budget allows.
Then the system gets it back, and with it the free pages within the heap, where rows of keyed spaces
and small arrays lie.
"""

from __future__ import annotations

import ctypes
import os
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from ctypes import addressof, c_char
from functools import cache
from operator import itemgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ps_backend.errors import OutOfBudget

_SMALLEST_KEPT = 1 << 16
_MOST_KEPT = 64
_KEPT_SECONDS = 3.0
_ARENA_MAX = -8  # of malloc.h
_LINE = 64
_STIR_BYTES, _STIR_PART = 8 << 20, 16
"""Changes of memory after which the heap is trimmed: so much, and a part of what is counted."""

BLOCK_OVERHEAD = 1024
"""Bytes that are counted for each block on top of its own: the Python objects of a buffer, or of a
contribution, take some 700."""


@cache
def _c_library() -> ctypes.CDLL | None:
    """That of this process."""
    with suppress(OSError, TypeError):
        return ctypes.CDLL(None)
    return None


def _trim_heap() -> None:
    """Give the free pages of the heap back to the system, if the C library can do so: glibc's."""
    with suppress(AttributeError):
        _c_library().malloc_trim(ctypes.c_size_t(0))  # type: ignore[union-attr]


def share_one_heap() -> None:
    """Let all threads of this process share a heap, which can be trimmed: not so others of glibc.

    To be called before there are threads.
    """
    with suppress(AttributeError):
        _c_library().mallopt(_ARENA_MAX, 1)  # type: ignore[union-attr]


def resident_bytes() -> int:
    """Memory that this process has, by Linux; else 0."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


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
        return np.ndarray(shape, dtype, self.bytes)

    def __del__(self) -> None:
        self._home.append(self.bytes)  # may run anywhere, so it must take no lock


def _allocate_aligned(size: int) -> npt.NDArray[np.uint8]:
    """``size`` bytes that begin at a cache line, as vector stores past the caches need it."""
    memory = np.empty(size + _LINE, np.uint8)
    start = -addressof(c_char.from_buffer(memory.data)) % _LINE  # ``memory.ctypes`` takes 2 us
    return memory[start : start + size]


class Memory:
    """Hands out blocks within a budget of bytes. Thread-safe."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.peak = 0
        self.refused = 0
        """How many requests were refused for want of memory."""
        self._used = 0
        self._kept: list[tuple[float, npt.NDArray[np.uint8]]] = []
        """Oldest first, with the moments since when."""
        self._kept_bytes = 0
        self._now = 0.0
        self._seen = 0, 0
        """Bytes resident and bytes counted, when these changed last."""
        self._stirred, self._trimmed = False, 0.0
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
            self.refused += 1
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

    def let_pass(self, seconds: float) -> None:
        """So much time has passed: what nobody has used for some seconds is the system's again."""
        with self._lock:
            self._take_back()
            self._now += seconds
            many = bisect_right(self._kept, self._now - _KEPT_SECONDS, key=itemgetter(0))
            old, self._kept = self._kept[:many], self._kept[many:]
            self._kept_bytes -= sum(memory.size for _, memory in old)
            counted = self._used + self._kept_bytes
        old.clear()  # which takes a while
        self._trim(counted)

    def _trim(self, counted: int) -> None:
        """Trim the heap where memory was taken or freed, and that is over, or goes on for long."""
        resident = resident_bytes()
        least = max(_STIR_BYTES, counted // _STIR_PART)
        before, self._seen = self._seen, (resident, counted)
        stirs = abs(resident - before[0]) > least or abs(counted - before[1]) > least
        if not stirs:
            self._seen = before
        self._stirred |= stirs
        pause = _KEPT_SECONDS * (2 if stirs else 1)
        if self._stirred and self._now >= self._trimmed + pause:
            _trim_heap()
            self._stirred, self._trimmed = False, self._now
            self._seen = resident_bytes(), counted

    def _reuse(self, size: int) -> npt.NDArray[np.uint8] | None:
        for place in range(len(self._kept) - 1, -1, -1):  # newest first: likeliest in cache
            if self._kept[place][1].size == size:
                self._kept_bytes -= size
                return self._kept.pop(place)[1]
        return None

    def _take_back(self) -> None:
        while self._released:
            self._used -= self._released.popleft()
        while self._returned:
            memory = self._returned.popleft()
            self._used -= memory.size + BLOCK_OVERHEAD
            if memory.size >= _SMALLEST_KEPT:
                self._kept.append((self._now, memory))
                self._kept_bytes += memory.size
        self._shrink_to(self.budget // 4)

    def _shrink_to(self, most: int) -> None:
        while self._kept and (self._kept_bytes > most or len(self._kept) > _MOST_KEPT):
            self._kept_bytes -= self._kept.pop(0)[1].size
