"""Counts in a few bins: each server counts its part, the first one adds up and answers.

Weights are floats: they are added block by block, and blocks in their tree, so the bits do not
depend on the number of servers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.collectives import counting
from ps_backend.program.collectives import COUNT, HISTOGRAM
from ps_backend.program.summation_order import Tree, join_all, levels
from ps_backend.server.collectives.phase import Phase, PhaseFunction, RemoteRows

Array = npt.NDArray[Any]

_CHUNK = 1 << 22
"""Elements that are counted without a pause: some 10 ms."""


def _leave(
    count: Callable[[Phase, Array, Array], None],
    weigh: Callable[[Phase, Array, Array, int], Array],
    phase: Phase,
) -> None:
    values, *weights = phase.inputs
    ((_, made),) = phase.call.types.outputs
    bins = made.shape[0]
    if not weights:
        counts = phase.workspace.new("counts", (1, bins), np.int64)
        counts[:] = 0
        for low in range(0, len(values), _CHUNK):
            count(phase, values[low : low + _CHUNK], counts[0])
            phase.pause()
        return
    space = phase.call.types.inputs[0].space
    size, (first, _) = space.block_size, phase.range_of(space)
    tree: Tree[Array] = Tree(np.add, first // size)
    for low in range(0, len(values), size):
        some = slice(low, low + size)
        tree.append(weigh(phase, values[some], weights[0][some], bins))
        phase.pause()
    left = phase.workspace.new("counts", (len(tree.nodes), bins), np.float64)
    for node, (_, sums) in zip(left, tree.nodes, strict=True):
        node[:] = sums


def _count(phase: Phase, values: Array, counts: Array) -> None:
    length = phase.call.types.inputs[0].space.length
    counting.count(values, counts, compiled=counting.is_compiled(length))


def _weigh(phase: Phase, values: Array, weights: Array, bins: int) -> Array:
    compiled = counting.is_compiled(phase.call.types.inputs[0].space.length)
    return counting.weigh(values, weights, bins, compiled=compiled)


def _limits(phase: Phase) -> tuple[float, ...]:
    return tuple(phase.operands[1].astype(np.float64).tolist())


def _histogram(phase: Phase, values: Array, counts: Array) -> None:
    compiled = counting.is_compiled(phase.call.types.inputs[0].space.length)
    counting.histogram(values, phase.operands[0], _limits(phase), counts, compiled=compiled)


def _weighted_histogram(phase: Phase, values: Array, weights: Array, bins: int) -> Array:
    return counting.weighted_histogram(values, weights, phase.operands[0], _limits(phase))


def _add_up(phase: Phase) -> None:
    if phase.here != phase.servers[0]:
        return
    ((_, made),) = phase.call.types.outputs
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
    COUNT: (partial(_leave, _count, _weigh), _add_up),
    HISTOGRAM: (partial(_leave, _histogram, _weighted_histogram), _add_up),
}
"""By kind, the functions of the phases."""
