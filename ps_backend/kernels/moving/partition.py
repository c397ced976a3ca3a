"""Indices grouped by the server that holds what they name, and what is copied at them.

By NumPy's functions for few; by loops compiled once for more, where numba is installed.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

COMPILED_FROM = 1 << 16
"""Indices from which compiled loops are used: NumPy takes a millisecond for fewer."""
_PLAIN = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
"""By their size what elements are copied as, whatever they mean: few loops are compiled then."""


def _is_worth_compiling(count: int) -> bool:
    return count >= COMPILED_FROM and importlib.util.find_spec("numba") is not None


def verify_range(indices: npt.NDArray[np.int64], length: int) -> None:
    """``IndexError`` naming the first index that is not one of ``-length .. length-1``."""
    if not len(indices):
        return
    if _is_worth_compiling(len(indices)):
        from ps_backend.kernels.moving import compiled_partition

        least, greatest = compiled_partition.extremes(indices)
    else:
        least, greatest = indices.min(), indices.max()
    if least < -length or greatest >= length:
        bad = indices[(indices < -length) | (indices >= length)][0]
        raise IndexError(f"index {bad} is out of range for length {length}")


def by_owner(
    indices: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    length: int,
    places: npt.NDArray[np.int32],
    wanted: npt.NDArray[np.int64],
) -> list[int]:
    """Group the indices of ``0 .. length-1`` (or negative ones) by what they lie in.

    ``starts`` tells where each range begins but the first. Written are ``wanted``, the indices from
    0, and ``places``, where each stood: those of the first range first, all in their order. Returns
    where the group of each range begins, and where the last one ends.
    """
    below = np.zeros(len(starts), np.int64)
    if _is_worth_compiling(len(indices)):
        from ps_backend.kernels.moving import compiled_partition

        compiled_partition.count_below(indices, starts, length, below)
        cursors = np.array([0, *below], np.int64)
        compiled_partition.distribute(indices, starts, length, cursors, places, wanted)
    else:
        positive = np.where(indices < 0, indices + length, indices)
        owners = np.searchsorted(starts, positive, side="right").astype(np.uint16)
        places[:] = np.argsort(owners, kind="stable")
        np.take(positive, places, out=wanted)
        below[:] = np.searchsorted(owners[places], np.arange(1, len(starts) + 1))
    return [0, *below.tolist(), len(indices)]


def scatter(values: Array, places: Array, out: Array) -> None:
    """``out[places] = values``, elements or rows."""
    if values.ndim > 1 or not _is_worth_compiling(len(values)):
        out[places] = values
        return
    from ps_backend.kernels.moving import compiled_partition

    compiled_partition.scatter(_plain(values), places, _plain(out))


def _plain(array: Array) -> Array:
    return array.view(_PLAIN[array.itemsize])
