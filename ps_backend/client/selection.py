"""Which server holds which of a list of indices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ps_backend.program.spaces import Space

Indices = npt.NDArray[np.int64]
Selection = slice | npt.NDArray[np.bool_]
"""Picks a server's entries out of a list, keeping their order."""


def check_indices(indices: npt.ArrayLike, length: int) -> Indices:
    """``indices`` as contiguous int64 of shape ``(k,)``.

    Raises ``TypeError`` unless they are integers, ``ValueError`` unless they are one list,
    ``IndexError`` if one is outside ``0 .. length-1``.
    """
    array = np.asarray(indices)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"indices must be integers, got {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"indices must have one dimension, got shape {array.shape}")
    result = np.ascontiguousarray(array, dtype=np.int64)
    if result.size and not (result.min() >= 0 and result.max() < length):
        bad = result[(result < 0) | (result >= length)][0]
        raise IndexError(f"index {bad} is out of range for length {length}")
    return result


def split(indices: Indices, space: Space, servers: int) -> Iterator[tuple[int, Selection]]:
    """``(server, selection)`` for each server that holds some of the space, even if it has none.

    In the order of the slots. Sorted indices are cut into slices, others are picked by a mask;
    either keeps the order.
    """
    holders = space.holders(servers)
    if len(holders) == 1:
        yield holders[0], slice(0, len(indices))
        return
    ranges = [space.range_of(server, servers) for server in holders]
    if bool(np.all(indices[1:] >= indices[:-1])):
        cuts = [*np.searchsorted(indices, [low for low, _ in ranges]).tolist(), len(indices)]
        for server, first, last in zip(holders, cuts, cuts[1:], strict=False):
            yield server, slice(first, last)
    else:
        for server, (low, high) in zip(holders, ranges, strict=True):
            yield server, (indices >= low) & (indices < high)
