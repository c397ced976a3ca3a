"""Random walks over a graph, also of the second order (DeepWalk, node2vec).

B. Perozzi, R. Al-Rfou, S. Skiena, "DeepWalk: online learning of social representations", 2014.
A. Grover, J. Leskovec, "node2vec: scalable feature learning for networks", 2016. A step of the
second order takes a neighbour by weight and rejects it at times, so no tables of pairs of edges are
kept: K. Yang et al., "KnightKing: a fast distributed graph random walk engine", 2019.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from distvec.losses.compiled import njit
from distvec.losses.row_hashes import mix
from distvec.losses.rows import Floats, Ints

Nodes = npt.NDArray[np.int32]


class Neighbours(NamedTuple):
    """The neighbours of nodes 0, 1, ..."""

    starts: Ints
    """Where those of a node start, and their number at the end."""
    nodes: Nodes
    """Ascending for each node."""
    sums: Floats
    """Running sums of the weights for each node; empty if all weights are the same."""

    @classmethod
    def of(cls, count: int, sources: Ints, targets: Ints, weights: Floats | None) -> Neighbours:
        """Of edges from sources to targets, in a graph of so many nodes. Repeated ones add up."""
        pairs, places = np.unique(sources * count + targets, return_inverse=True)
        starts = np.searchsorted(pairs, np.arange(count + 1) * count)
        each = np.bincount(places, weights, pairs.size)
        sums = np.zeros(0)
        if pairs.size and (each != each[0]).any():
            sums = np.cumsum(each)
            before = np.append(0.0, sums)[starts[:-1]]
            sums -= np.repeat(before, np.diff(starts))
        return cls(starts, (pairs % count).astype(np.int32), sums)

    def walks(
        self, first: Ints, length: int, *, back: float, away: float, seed: int, number: int
    ) -> Nodes:
        """A walk from each of some nodes: ``(nodes, length)``, -1 after a node without neighbours.

        A step back to the node before weighs ``back`` times as much as one to a neighbour of that
        node, a step to others ``away`` times. A walk depends on its first node, the seed, and its
        ``number`` among those of the node alone.
        """
        walks = np.full((first.size, length), -1, np.int32)
        entropy = np.random.SeedSequence([seed % 2**64, number]).generate_state(1, np.uint64)
        _walk(*self, first, walks, back, away, entropy[0])
        return walks


_mixed = njit(cache=True, nogil=True)(mix)


@njit(cache=True, nogil=True)
def _is_neighbour(starts: Ints, nodes: Nodes, node: int, other: int) -> bool:
    low, high = starts[node], starts[node + 1]
    while low < high:
        middle = (low + high) // 2
        if nodes[middle] < other:
            low = middle + 1
        else:
            high = middle
    return bool(low < starts[node + 1] and nodes[low] == other)


@njit(cache=True, nogil=True)
def _walk(
    starts: Ints,
    nodes: Nodes,
    sums: Floats,
    first: Ints,
    walks: Nodes,
    back: float,
    away: float,
    seed: Any,
) -> None:
    step, most = np.uint64(0x9E3779B97F4A7C15), max(back, away, 1.0)
    is_weighted, is_second = len(sums) > 0, back != 1.0 or away != 1.0
    for row in range(len(first)):
        node, before = first[row], -1
        state = _mixed(seed ^ (np.uint64(node + 1) * step))
        walks[row, 0] = node
        for place in range(1, walks.shape[1]):
            low, high = starts[node], starts[node + 1]
            if low == high:
                break
            chosen = node
            while True:
                state += step
                chance = (_mixed(state) >> np.uint64(11)) * 2.0**-53
                if is_weighted:
                    share = chance * sums[high - 1]
                    at = low + np.searchsorted(sums[low:high], share, side="right")
                else:
                    at = low + int(chance * (high - low))
                chosen = nodes[min(at, high - 1)]
                if before < 0 or not is_second:
                    break
                weight = away
                if chosen == before:
                    weight = back
                elif _is_neighbour(starts, nodes, before, chosen):
                    weight = 1.0
                state += step
                if (_mixed(state) >> np.uint64(11)) * 2.0**-53 * most < weight:
                    break
            before, node = node, chosen
            walks[row, place] = node
