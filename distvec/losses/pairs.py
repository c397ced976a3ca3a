"""The pairs of rows of a group of which one has the higher label."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

PAIRS_AT_ONCE = 1 << 14
"""So many pairs go through a function of pairs, or those of one row: temporaries stay in cache."""


class PairBlock(NamedTuple):
    """Some pairs: all of ``higher``, row by row, with a range of rows each. Places are those of
    rows in the order of the groups' labels."""

    higher: slice
    """Which of the rows that are the higher one of some pair."""
    counts: Places
    """How many pairs each of these has."""
    starts: Places
    """Where the pairs of each begin."""
    lower: Places
    """The lower row of each pair."""


class Pairs(NamedTuple):
    """All pairs of a number of rows: groups lie together, in each the highest label comes first."""

    order: Places
    """The row at each place."""
    higher: Places
    """Places of the rows that are the higher one of some pair."""
    firsts: Places
    """For each of these, where the lower ones begin; they go to the end of the group."""
    counts: Places
    """For each of these, how many lower ones there are."""
    roots: Floats | None
    """The square root of each weight, in this order; None: all 1."""
    weight: float
    """The sum over pairs of the products of these roots."""

    def blocks(self) -> Iterator[PairBlock]:
        """All pairs, some at a time."""
        ends = np.cumsum(self.counts)
        start = done = 0
        while start < ends.size:
            enough = int(np.searchsorted(ends, done + PAIRS_AT_ONCE, side="right"))
            part = slice(start, max(start + 1, enough))
            counts = self.counts[part]
            starts = ends[part] - counts - done
            lower = np.repeat(self.firsts[part] - starts, counts)
            lower += np.arange(lower.size)
            yield PairBlock(part, counts, starts, lower)
            start, done = part.stop, int(ends[part.stop - 1])

    def differences(self, numbers: Floats, block: PairBlock) -> Floats:
        """Of each pair, that of the higher row minus that of the lower."""
        return np.repeat(numbers[self.higher[block.higher]], block.counts) - numbers[block.lower]

    def weights(self, block: PairBlock) -> Floats | None:
        """Of each pair; None: all 1."""
        if self.roots is None:
            return None
        roots = np.repeat(self.roots[self.higher[block.higher]], block.counts)
        roots *= self.roots[block.lower]
        return roots

    def add(self, numbers: Floats, block: PairBlock, sums: Floats) -> None:
        """Add a number of each pair to the higher row in ``sums``, and take it from the lower."""
        sums[self.higher[block.higher]] += np.add.reduceat(numbers, block.starts)
        low = int(block.lower.min())
        taken = np.bincount(block.lower - low, numbers)
        sums[low : low + taken.size] -= taken


def pairs_of(labels: Floats, groups: npt.NDArray[np.int64], weights: Floats | None) -> Pairs:
    """All pairs; sorts. ValueError unless the rows of each group lie together."""
    begins = np.flatnonzero(np.diff(groups, prepend=groups[:1] - 1))
    if np.unique(groups[begins]).size < begins.size:
        raise ValueError("the rows of a group must lie together: sort them by the group")
    sizes = np.diff(begins, append=labels.size)
    number = np.repeat(np.arange(begins.size), sizes)
    order = np.lexsort((-labels, number))
    sorted_labels, ends = labels[order], np.repeat(begins + sizes, sizes)
    new = np.ones(labels.size, bool)
    new[1:] = (np.diff(number) != 0) | (np.diff(sorted_labels) != 0.0)
    starts = np.append(np.flatnonzero(new), labels.size)
    firsts = np.repeat(starts[1:], np.diff(starts))
    higher = np.flatnonzero(firsts < ends)
    counts = (ends - firsts)[higher]
    found = Pairs(order, higher, firsts[higher], counts, None, float(counts.sum()))
    if weights is None:
        return found
    found = found._replace(roots=np.sqrt(weights[order]))
    weight = math.fsum(
        0.0 if some is None else some.sum() for some in map(found.weights, found.blocks())
    )
    return found._replace(weight=weight)
