"""Counts of what is in each of a few bins, of a chunk of an array at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.kernel import has_compiler

Array = npt.NDArray[Any]

COMPILED_FROM = 1 << 17
"""Elements from which compiled loops are used."""
_SORTED = 1 << 16
"""Elements that are sorted at a time, as the edges are looked up in them: they fit the cache."""


def is_compiled(count: int) -> bool:
    """Whether an array of this length is counted by compiled loops."""
    return count >= COMPILED_FROM and has_compiler()


def count(numbers: Array, counts: Array, *, compiled: bool) -> None:
    """Add to ``counts`` how often ``0 .. len(counts)-1`` is among ``numbers``.

    ``IndexError`` if they are not all among these.
    """
    if compiled:
        from ps_backend.kernels.collectives import compiled as loops

        beyond = loops.count(numbers, counts)
    else:
        inside = numbers[(numbers >= 0) & (numbers < len(counts))].astype(np.int64)
        beyond = len(numbers) - len(inside)
        counts += np.bincount(inside, minlength=len(counts))
    if beyond:
        raise IndexError(
            f"{beyond} numbers are out of range: the counted ones are 0 to {len(counts) - 1}"
        )


def weigh(numbers: Array, weights: Array, bins: int, *, compiled: bool) -> Array:
    """The sum of the weights, float64, of each number, added in their order."""
    if compiled:
        from ps_backend.kernels.collectives import compiled as loops

        sums: Array = np.zeros(bins)
        beyond = loops.weigh(numbers, weights, sums)
    else:
        sums = np.bincount(numbers.astype(np.int64), weights, bins)
        beyond = len(sums) - bins
    if beyond:
        raise IndexError(f"{beyond} numbers are out of range: the counted ones are 0 to {bins - 1}")
    return sums


def histogram(
    values: Array, edges: Array, limits: tuple[float, ...], counts: Array, *, compiled: bool
) -> None:
    """Add to ``counts`` how many values are between two edges, the last one included.

    ``limits``: where bins of one width begin and end; else nothing.
    """
    if not limits:
        for low in range(0, len(values), _SORTED):
            counts += np.diff(_places(np.sort(values[low : low + _SORTED]), edges))
        return
    wide, exact = values.astype(np.float64, copy=False), edges.astype(np.float64)
    first, last = limits
    scale = len(counts) / (last - first)
    if compiled and np.isfinite(scale):
        from ps_backend.kernels.collectives import compiled as loops

        loops.histogram(wide, exact, first, last, scale, counts)
        return
    kept = wide[(wide >= limits[0]) & (wide <= limits[1])]
    counts += np.bincount(_numbers(kept, exact, *limits), minlength=len(counts))


def weighted_histogram(
    values: Array, weights: Array, edges: Array, limits: tuple[float, ...]
) -> Array:
    """The sum of the weights, float64, of what is between two edges, the last one included."""
    heavy = weights.astype(np.float64, copy=False)
    if not limits:
        order = np.argsort(values, kind="stable")
        running = np.concatenate(([0.0], np.cumsum(heavy[order])))
        return np.diff(running[_places(values[order], edges)])
    wide, exact = values.astype(np.float64, copy=False), edges.astype(np.float64)
    inside = (wide >= limits[0]) & (wide <= limits[1])
    return np.bincount(_numbers(wide[inside], exact, *limits), heavy[inside], len(edges) - 1)


def _places(ascending: Array, edges: Array) -> Array:
    """How many elements are before each edge, those equal to the last one included there."""
    before = np.searchsorted(ascending, edges[:-1], "left")
    return np.append(before, np.searchsorted(ascending, edges[-1:], "right"))


def _numbers(values: Array, edges: Array, first: float, last: float) -> Array:
    """The bin of one width that each value within them is in; the edges decide."""
    bins = len(edges) - 1
    found = ((values - first) / (last - first) * bins).astype(np.int64)
    found[found == bins] -= 1
    found[values < edges[found]] -= 1
    found[(values >= edges[found + 1]) & (found != bins - 1)] += 1
    return found
