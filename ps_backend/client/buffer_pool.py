"""Memory for results, which are let go of again: the next one comes into the same.

To fill fresh memory takes longer than what fills it: the system hands it out page by page. So what
an array leaves behind, when nobody holds it or a view of it any more, serves the next one.
"""

from __future__ import annotations

import threading
from collections import deque
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.numpy_loops import address_of

_LEAST, _MOST = 1 << 18, 1 << 26
"""Bytes of an array that memory is lent to, and that a thread keeps."""
_waiting: deque[npt.NDArray[np.uint8]] = deque(maxlen=2)
"""What came back. Appending and popping are one step each: arrays end in any thread, any time."""


class _Loan:
    """Memory that an array and its views hold; it comes back with the last one of them."""

    def __init__(self, memory: npt.NDArray[np.uint8], size: int) -> None:
        self._memory = memory
        self.__array_interface__ = {
            "version": 3,
            "shape": (size,),
            "typestr": "|u1",
            "data": (address_of(memory), False),
        }

    def __del__(self, waiting: deque[npt.NDArray[np.uint8]] = _waiting) -> None:
        waiting.append(self._memory)


def pooled(shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
    """An array with any values; of memory that was lent before, where there is some."""
    size = prod(shape) * np.dtype(dtype).itemsize
    if not _LEAST <= size <= _MOST:
        return np.empty(shape, dtype)
    try:
        memory = _waiting.pop()
    except IndexError:
        memory = fresh(size)
    if not size <= len(memory) <= 2 * size:
        memory = fresh(size)
    found: npt.NDArray[Any] = np.asarray(_Loan(memory, size)).view(dtype).reshape(shape)
    return found


def fresh(size: int) -> npt.NDArray[np.uint8]:
    """So many bytes that nobody had."""
    return np.empty(size, np.uint8)


class Scratch(threading.local):
    """Memory for what a thread receives and copies from at once: what it had serves again."""

    _bytes = np.empty(0, np.uint8)

    def take(self, size: int) -> npt.NDArray[np.uint8]:
        """So many bytes, until the next call."""
        if size > _MOST:
            return fresh(size)
        if size > self._bytes.size:
            self._bytes = fresh(size)
        return self._bytes[:size]
