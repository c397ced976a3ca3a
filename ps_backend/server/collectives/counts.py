"""Counts in a few bins: each server counts its part, the first one adds up and answers.

Weights are floats: they are added block by block, and blocks in their tree, so the bits do not
depend on the number of servers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.collectives import counting
from ps_backend.program.collectives import HISTOGRAM
from ps_backend.program.summation_order import Tree, join_all, levels
from ps_backend.server.collectives.phase import Phase, PhaseFunction, RemoteRows

Array = npt.NDArray[Any]

_CHUNK = 1 << 22
"""Elements that are counted without a pause: some 10 ms."""


def _leave(phase: Phase) -> None:
    """First phase: the counts of this server's part, or nodes of the tree of weights."""
    values, *weights = phase.inputs
    space, (bins,) = phase.call.types.inputs[0].space, phase.call.types.made.shape
    compiled = counting.is_compiled(space.length)
    edges, limits = phase.operands[0], tuple(phase.operands[1].astype(np.float64).tolist())
    if not weights:
        counts = phase.workspace.new("counts", (1, bins), np.int64)
        counts[:] = 0
        for low in range(0, len(values), _CHUNK):
            part = values[low : low + _CHUNK]
            counting.histogram(part, edges, limits, counts[0], compiled=compiled)
            phase.pause()
        return
    size, (first, _) = space.block_size, phase.range_of(space)
    tree: Tree[Array] = Tree(np.add, first // size)
    for low in range(0, len(values), size):
        some = slice(low, low + size)
        tree.append(counting.weighted_histogram(values[some], weights[0][some], edges, limits))
        phase.pause()
    left = phase.workspace.new("counts", (len(tree.nodes), bins), np.float64)
    for node, (_, sums) in zip(left, tree.nodes, strict=True):
        node[:] = sums


def _add_up(phase: Phase) -> None:
    if phase.here != phase.servers[0]:
        return
    made = phase.call.types.made
    space, is_weighted = phase.call.types.inputs[0].space, len(phase.inputs) > 1
    parts, pieces = [], []
    for server in phase.servers:
        low, high = phase.range_of(space, server)
        heights = [*levels(low // space.block_size, -(-high // space.block_size))]
        part = phase.scratch((len(heights) if is_weighted else 1, *made.shape), made.dtype)
        parts.append((part, heights))
        pieces.append(RemoteRows(server, "counts", 0, len(part), part))
    phase.fetch(pieces)
    tree: Tree[Array] = Tree(np.add, 0)
    for part, heights in parts:
        for node, height in zip(part, heights if is_weighted else (0,), strict=True):
            tree.append(node, height)
    found = [node for _, node in tree.nodes]
    phase.results[0] = join_all(np.add, found) if found else np.zeros(made.shape, made.dtype)


PHASES: dict[str, tuple[PhaseFunction, ...]] = {
    HISTOGRAM: (_leave, _add_up),
}
"""By kind, the functions of the phases."""
