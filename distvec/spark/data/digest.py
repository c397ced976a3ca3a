"""A number for each row that depends on nothing but what is in the row.

Spark promises the rows of a partition, not their order, and not always which partition they are in:
by these numbers rows get an order, and a partition that was computed again is known again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.spark.data.rows import SparseRows

Digests = npt.NDArray[np.uint64]

# Of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def row_digests(rows: SparseRows, *columns: npt.NDArray[Any]) -> Digests:
    """Shape ``(rows,)``: of each row's features in any order, and of its number in each column."""
    places = np.add(rows.indices, 1, dtype=np.int64).view(np.uint64)
    elements = places * _GOLDEN
    elements += _bits(rows.values)
    elements ^= elements >> np.uint64(32)
    elements *= _FIRST
    elements ^= elements >> np.uint64(29)
    found, filled = np.zeros(rows.lengths.size, np.uint64), rows.lengths > 0
    if filled.any():
        starts = np.cumsum(rows.lengths) - rows.lengths
        found[filled] = np.add.reduceat(elements, starts[filled])
    for column in columns:
        found = _mixed(found * _GOLDEN + _bits(column))
    return found


def _bits(values: npt.NDArray[Any]) -> Digests:
    """Of numbers of 8 bytes."""
    return np.ascontiguousarray(values).view(np.uint64)


def _mixed(numbers: Digests) -> Digests:
    """A bijection in which each bit of a number depends on all; overwrites its argument."""
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        numbers ^= numbers >> np.uint64(shift)
        numbers *= factor
    numbers ^= numbers >> np.uint64(31)
    return numbers
