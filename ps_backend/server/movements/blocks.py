"""The blocks of a server's part of an array, shared out to threads."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.threads import pool, thread_count
from ps_backend.program.spaces import Space
from ps_backend.server.movements.phase import Phase

Array = npt.NDArray[Any]

_ALONE = 1 << 16
"""Elements that are not worth a second thread."""
_SLICE = 1 << 22
"""Elements that a thread goes on for without a pause: some 10 ms."""


def as_table(x: Array) -> Array:
    """A server's part of a vector or a table as ``(rows, width)``."""
    return x.reshape(len(x), prod(x.shape[1:]))


def blocks_of(phase: Phase, space: Space, server: int | None = None) -> int:
    """Blocks of ``space`` that a server holds: this one, if none is named."""
    low, high = phase.range_of(space, server)
    return -(-(high - low) // space.block_size)


def each_block(
    phase: Phase, space: Space, scratch: tuple[tuple[int, ...], Any],
    work: Callable[[int, slice, Array], None],
) -> None:  # fmt: skip
    """Call ``work`` with each block of ``space`` on this server, in any order.

    It gets the number of the block here, the rows that it is in the server's parts, and memory of
    the shape and dtype ``scratch`` that no other thread has.
    """
    low, high = phase.range_of(space)
    blocks, size = blocks_of(phase, space), space.block_size
    width = max((type.width for type in phase.call.arrays if type.space == space), default=1)
    threads = 1 if (high - low) * width <= _ALONE else min(thread_count(), blocks)
    shape, dtype = scratch
    own = [phase.scratch(shape, dtype) for _ in range(threads)]
    per_slice = max(1, _SLICE // (size * width))

    def run(first: int, past: int, memory: Array) -> None:
        for block in range(first, past):
            work(block, slice(block * size, min((block + 1) * size, high - low)), memory)

    for first in range(0, blocks, per_slice * threads):
        past = min(first + per_slice * threads, blocks)
        cuts = np.linspace(first, past, threads + 1).astype(np.int64).tolist()
        if threads == 1:
            run(first, past, own[0])
        else:
            list(pool().map(run, cuts[:-1], cuts[1:], own))
        phase.pause()
