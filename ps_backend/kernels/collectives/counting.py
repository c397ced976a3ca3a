"""Counts of what is in each of a few bins, of a chunk of an array at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.kernel import has_compiler

Array = npt.NDArray[Any]

COMPILED_FROM = 1 << 16
"""Elements from which compiled loops are used."""
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


def bin_numbers(values: Array, edges: Array, *, compiled: bool) -> Array:
    """Between which two edges each value is, the last one included; those outside are in bin -1."""
    bins, kind = len(edges) - 1, np.result_type(values, edges)
    exact = edges.astype(kind, copy=False)
    if compiled and kind.kind == "f":
        from ps_backend.kernels.collectives import compiled as loops

        numbers = np.empty(len(values), np.int64)
        wide, far = values.astype(np.float64, copy=False), exact.astype(np.float64)
        with np.errstate(all="ignore"):
            scale = bins / (far[-1] - far[0])
        loops.bin_numbers(wide, far, scale if np.isfinite(scale) else 0.0, numbers)
        return numbers
    numbers = np.searchsorted(exact, values.astype(kind, copy=False), side="right") - 1
    numbers[values == exact[-1]] = bins - 1
    numbers[numbers == bins] = -1
    return numbers
