"""Counts of what is in each of a few bins, of a chunk of an array at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.kernel import has_compiler

Array = npt.NDArray[Any]

COMPILED_FROM = 1 << 16
"""Elements from which compiled loops are used."""
_SORTED = 1 << 16
"""Elements that are sorted at a time, as the edges are looked up in them: they fit the cache."""
_CELLS = 1 << 15
"""Bins of all blocks that NumPy counts at once."""


def is_compiled(count: int) -> bool:
    """Whether an array of this length is counted by compiled loops."""
    return count >= COMPILED_FROM and has_compiler()


def count(numbers: Array, counts: Array, *, compiled: bool) -> None:
    """Add to ``counts`` how often ``0 .. len(counts)-1`` is among ``numbers``."""
    if compiled:
        from ps_backend.kernels.collectives import compiled as loops

        loops.count(numbers, counts)
    else:
        counts += np.bincount(_inside(numbers, len(counts)), minlength=len(counts) + 1)[:-1]


def _inside(numbers: Array, bins: int) -> Array:
    """As int64; those that are not below ``bins`` become this number."""
    wide = numbers.astype(np.int64, copy=False)
    if len(wide) and (wide.min() < 0 or wide.max() >= bins):
        wide = np.where((wide >= 0) & (wide < bins), wide, bins)
    return wide


class Weights:
    """Sums of weights by number: in a block one after the other, and blocks in their tree."""

    def __init__(self, bins: int, block_size: int, *, compiled: bool) -> None:
        self._bins, self._size, self._compiled = bins, block_size, compiled
        self._spare = np.zeros((0, bins))  # all zero between two calls

    def add(self, numbers: Array, weights: Array, sums: Array) -> None:
        """Add the weights of a part of a block to ``sums``."""
        self._weigh(numbers, weights, 0, sums)

    def node(self, numbers: Array, weights: Array, level: int) -> Array:
        """The sums of ``2 ** level`` blocks, of which the last one may be short."""
        sums: Array = np.zeros(self._bins)
        self._weigh(numbers, weights, level, sums)
        return sums

    def _weigh(self, numbers: Array, weights: Array, level: int, sums: Array) -> None:
        if not self._compiled:
            sums += self._of_blocks(_inside(numbers, self._bins), weights, level)
            return
        from ps_backend.kernels.collectives import compiled as loops

        if level >= len(self._spare):
            self._spare = np.zeros((level + 1, self._bins))
        loops.weigh(numbers, weights, self._size, level, self._spare, sums)

    def _of_blocks(self, numbers: Array, weights: Array, level: int) -> Array:
        """The same by NumPy: as many blocks side by side as fit the cache."""
        half = self._size << level - 1 if level else 0
        if level and self._bins << level > _CELLS:
            left = self._of_blocks(numbers[:half], weights[:half], level - 1)
            left += self._of_blocks(numbers[half:], weights[half:], level - 1)
            return left
        width = self._bins + 1
        if level:
            block = np.arange(len(numbers)) // self._size
            numbers = numbers + block * width
        nodes = np.bincount(numbers, weights, width << level).reshape(1 << level, width)
        while len(nodes) > 1:
            nodes = nodes[::2] + nodes[1::2]
        return nodes[0, :-1]


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
