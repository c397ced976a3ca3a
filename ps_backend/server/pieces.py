"""Evenly spaced pieces of an array, and copies of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.threads import pool, thread_count

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
