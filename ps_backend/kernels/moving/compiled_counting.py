"""The loops of ``counting``, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def count(numbers: Any, counts: Any) -> int:
    """Add to ``counts`` how often each number is among ``numbers``; how many are none of them.

    In turns into two tables, as a number that is there many times in a row has to wait for its
    own last count.
    """
    bins = np.uint64(len(counts))
    first, second = np.zeros(bins + 1, np.int64), np.zeros(bins + 1, np.int64)
    for k in range(0, len(numbers) - 1, 2):
        first[min(np.uint64(numbers[k]), bins)] += 1  # as unsigned, negative ones are too large
        second[min(np.uint64(numbers[k + 1]), bins)] += 1
    if len(numbers) % 2:
        first[min(np.uint64(numbers[-1]), bins)] += 1
    for number in range(len(counts)):
        counts[number] += first[number] + second[number]
    return int(first[bins] + second[bins])


@njit(cache=True, nogil=True)
def weigh(numbers: Any, weights: Any, sums: Any) -> int:
    """Add to ``sums`` the weights of each number, in order; how many are none of them."""
    beyond = 0
    for k in range(len(numbers)):
        number = numbers[k]
        if 0 <= number < len(sums):
            sums[number] += weights[k]
        else:
            beyond += 1
    return beyond


@njit(cache=True, nogil=True)
def histogram(
    values: Any, edges: Any, first: float, last: float, scale: float, counts: Any
) -> None:
    """Add to ``counts`` how many values are in each of the bins of one width.

    Those outside of ``first .. last``, and NaN, are in none. The product with ``scale``, bins by
    their common width, may be one bin off where a value is at an edge: the edges decide.
    """
    top = len(counts) - 1
    for value in values:
        if value >= first and value <= last:
            number = min(int((value - first) * scale), top)
            if value < edges[number]:
                number -= 1
            elif number != top and value >= edges[number + 1]:
                number += 1
            counts[number] += 1
