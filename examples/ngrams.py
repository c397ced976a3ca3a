"""Hash the character n-grams of many lines into a fixed number of features, with NumPy.

The text of all lines is one buffer of UTF-8 bytes. A polynomial rolling hash runs over the whole
buffer once per n-gram length; windows that would cross the end of a line are left out. There is no
Python loop over lines or characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

_BASE = np.uint64(0x100000001B3)  # FNV's prime; any odd number with well-mixed bits works
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads a hash over its high bits


class Rows(NamedTuple):
    """Sparse rows: row i holds ``indices[starts[i]:starts[i + 1]]``, sorted, and their values."""

    starts: Ints
    indices: npt.NDArray[np.int32]
    values: npt.NDArray[np.float64]


def hashed_ngrams(
    text: Bytes, offsets: Ints, lengths: Sequence[int] = (3, 4, 5), bits: int = 20
) -> Rows:
    """Count the n-grams of each line in 2**bits features, and scale each row to length one.

    ``text[offsets[i]:offsets[i + 1]]`` is line i, of any length. A line shorter than the smallest
    n-gram gives an empty row.
    """
    count = offsets.size - 1
    text = text[offsets[0] : offsets[-1]]
    starts = offsets - offsets[0]
    line = np.repeat(np.arange(count), np.diff(starts))
    left = starts[1:][line] - np.arange(text.size)  # bytes from here to the end of the line

    found = [np.empty(0, dtype=np.int64)]
    value = np.zeros(text.size, dtype=np.uint64)  # wraps around 2^64
    for length in range(1, max(lengths) + 1):
        value = value[: max(text.size - length + 1, 0)] * _BASE + text[length - 1 :]
        if length in lengths:
            whole = left[: value.size] >= length
            bucket = _bucket(value[whole] + np.uint64(length), bits)
            found.append(line[: value.size][whole] << bits | bucket)
    return _count(np.concatenate(found), count, bits)


def _bucket(value: npt.NDArray[np.uint64], bits: int) -> Ints:
    mixed = (value ^ (value >> np.uint64(31))) * _MIX
    return (mixed >> np.uint64(64 - bits)).astype(np.int64)


def _count(keys: Ints, rows: int, bits: int) -> Rows:
    """Build rows from one number (row, bucket) per n-gram."""
    keys, counts = np.unique(keys, return_counts=True)
    row, bucket = keys >> bits, keys & ((1 << bits) - 1)
    tally = counts.astype(np.float64)
    norm = np.sqrt(np.bincount(row, weights=tally * tally, minlength=rows))
    starts = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=rows))))
    return Rows(starts, bucket.astype(np.int32), tally / norm[row])
