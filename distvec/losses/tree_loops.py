"""Compiled loops over the rows of a node: their histogram, their split, and the leaves of rows.

A matrix is given as ``(data, indices, ends, width)``: CSR with a width of 0, or dense rows of
``width`` numbers without indices.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distvec.losses.compiled import njit
from distvec.losses.rows import Floats, Ints, Matrix


def elements(matrix: Matrix) -> tuple[Any, Any, Any, int]:
    """A matrix as the loops take it."""
    if isinstance(matrix, np.ndarray):
        nothing = np.zeros(0, np.int32)
        return np.ascontiguousarray(matrix).reshape(-1), nothing, nothing, matrix.shape[1]
    return matrix.data, matrix.indices, matrix.indptr, 0


@njit(cache=True, nogil=True)
def add_dense(rows: Any, bins: Any, firsts: Ints, slopes: Any, sums: Any) -> None:
    """Add slopes, curvatures and counts of rows to those of their bins; the last of all rows."""
    total = len(sums) - 1
    for row in rows:
        slope, curvature, count = slopes[row, 0], slopes[row, 1], slopes[row, 2]
        sums[total, 0] += slope
        sums[total, 1] += curvature
        sums[total, 2] += count
        for column in range(len(firsts)):
            place = firsts[column] + bins[row, column]
            sums[place, 0] += slope
            sums[place, 1] += curvature
            sums[place, 2] += count


@njit(cache=True, nogil=True)
def add_sparse(
    rows: Any, bins: Any, indices: Any, ends: Any, firsts: Ints, slopes: Any, sums: Any
) -> None:
    """The same of CSR rows; bins of zeros stay behind."""
    total = len(sums) - 1
    for row in rows:
        slope, curvature, count = slopes[row, 0], slopes[row, 1], slopes[row, 2]
        sums[total, 0] += slope
        sums[total, 1] += curvature
        sums[total, 2] += count
        for k in range(ends[row], ends[row + 1]):
            place = firsts[indices[k]] + bins[k]
            sums[place, 0] += slope
            sums[place, 1] += curvature
            sums[place, 2] += count


@njit(cache=True, nogil=True)
def _value(data: Any, indices: Any, ends: Any, width: int, row: int, column: int) -> float:
    """The number in a column; 0 in one that these rows lack."""
    if column < 0:
        return 0.0
    if width > 0:
        return float(data[row * width + column])
    low, high = ends[row], ends[row + 1]
    while low < high:
        middle = (low + high) // 2
        if indices[middle] < column:
            low = middle + 1
        else:
            high = middle
    if low < ends[row + 1] and indices[low] == column:
        return float(data[low])
    return 0.0


@njit(cache=True, nogil=True)
def _goes_left(
    x: float, threshold: float, missing_left: bool, is_categorical: bool, words: Any
) -> bool:
    if np.isnan(x):
        return missing_left
    if not is_categorical:
        return x <= threshold
    if x < 0.0 or x >= 256.0 or x != np.floor(x):
        return False
    category = int(x)
    return ((int(words[category // 32]) >> (category % 32)) & 1) == 1


@njit(cache=True, nogil=True)
def split_rows(
    rows: Any,
    other: Any,
    data: Any,
    indices: Any,
    ends: Any,
    width: int,
    column: int,
    threshold: float,
    missing_left: bool,
    is_categorical: bool,
    words: Any,
) -> int:
    """Put rows that go left before the others, both in their order; how many go left.

    ``other`` is memory for as many rows.
    """
    left = right = 0
    if width > 0 and column >= 0 and not is_categorical:
        for row in rows:
            x = data[row * width + column]
            goes_left = x <= threshold or (x != x and missing_left)
            rows[left] = row  # both are written: a branch would be guessed wrong half the time
            other[right] = row
            left += goes_left
            right += 1 - goes_left
    else:
        for row in rows:
            x = _value(data, indices, ends, width, row, column)
            goes_left = _goes_left(x, threshold, missing_left, is_categorical, words)
            rows[left] = row
            other[right] = row
            left += goes_left
            right += 1 - goes_left
    for k in range(right):
        rows[left + k] = other[k]
    return left


@njit(cache=True, nogil=True)
def find_leaves(
    data: Any,
    indices: Any,
    ends: Any,
    width: int,
    columns: Ints,
    thresholds: Floats,
    lefts: Ints,
    rights: Ints,
    missing_left: Any,
    categorical: Any,
    words: Floats,
    root: int,
    leaves: Ints,
) -> None:
    """The leaf of each row in the tree from ``root``; a node without a left one is a leaf."""
    for row in range(len(leaves)):
        node = root
        while lefts[node] >= 0:
            x = _value(data, indices, ends, width, row, columns[node])
            if _goes_left(x, thresholds[node], missing_left[node], categorical[node], words[node]):
                node = lefts[node]
            else:
                node = rights[node]
        leaves[row] = node
