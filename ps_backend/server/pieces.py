"""Evenly spaced pieces of an array, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


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
