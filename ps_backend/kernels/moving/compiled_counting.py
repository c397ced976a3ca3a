"""The loops of ``counting``, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def count(numbers: Any, counts: Any) -> int:
    """Add to ``counts`` how often each number is among ``numbers``; how many are none of them.

    Alternately into two tables, as a number that is there many times in a row has to wait for its
    own last count.
    """
    bins = len(counts)
    tables = np.zeros((2, bins + 1), np.int64)
    for k in range(len(numbers)):
        number = numbers[k]
        tables[k & 1, number if 0 <= number < bins else bins] += 1
    for number in range(bins):
        counts[number] += tables[0, number] + tables[1, number]
    return int(tables[0, bins] + tables[1, bins])


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
def histogram(values: Any, edges: Any, first: float, last: float, counts: Any) -> None:
    """Add to ``counts`` how many values are in each of the bins of one width.

    Those outside of ``first .. last``, and NaN, are in none. The quotient may be one bin off where
    a value is at an edge: the edges decide.
    """
    bins = len(counts)
    width = last - first
    tables = np.zeros((2, bins), np.int64)
    for k in range(len(values)):
        value = values[k]
        if value >= first and value <= last:
            number = int((value - first) / width * bins)
            if number == bins:
                number -= 1
            if value < edges[number]:
                number -= 1
            if value >= edges[number + 1] and number != bins - 1:
                number += 1
            tables[k & 1, number] += 1
    for number in range(bins):
        counts[number] += tables[0, number] + tables[1, number]
