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

_RUN = 1 << 20
"""Elements of the blocks that are computed by one call: enough that calling costs nothing."""
_ALONE = 1 << 16
"""Elements that are not worth a second thread."""
_SLICE = 1 << 22
"""Elements that a thread goes on for without a pause: some 10 ms."""


def blocks_of(phase: Phase, space: Space, server: int | None = None) -> int:
    """Blocks of ``space`` that a server holds: this one, if none is named."""
    low, high = phase.range_of(space, server)
    return -(-(high - low) // space.block_size)


class Run:
    """Consecutive blocks of one length on this server."""

    def __init__(self, first: int, past: int, size: int, rows: slice) -> None:
        self.blocks = slice(first, past)
        """Their numbers on this server."""
        self.rows = rows
        """Their rows on this server."""
        self._size = size

    def of(self, x: Array) -> Array:
        """Their elements in a server's part of an array, as ``(blocks, rows, width)``."""
        return x[self.rows].reshape(-1, self._size, prod(x.shape[1:]))


def each_run(phase: Phase, space: Space, width: int, work: Callable[[Run], None]) -> None:
    """Call ``work`` with all the blocks of ``space`` on this server, some at once, in any order.

    ``width``: elements of a row, by which it is judged how many.
    """
    low, high = phase.range_of(space)
    size, length = space.block_size, high - low
    whole, rest = divmod(length, size)
    threads = 1 if length * width <= _ALONE else min(thread_count(), whole + 1)
    together = max(1, min(_RUN // (size * width), -(-whole // threads)))
    runs = [
        Run(first, min(first + together, whole), size, _rows(first, together, whole, size))
        for first in range(0, whole, together)
    ]
    if rest:
        runs.append(Run(whole, whole + 1, rest, slice(whole * size, length)))
    at_once = threads * max(1, _SLICE // (together * size * width))
    for first in range(0, len(runs), at_once):
        some = runs[first : first + at_once]
        if threads == 1:
            for run in some:
                work(run)
        else:
            list(pool().map(_without_warnings(work), some))
        phase.pause()


def _without_warnings(work: Callable[[Run], None]) -> Callable[[Run], None]:
    """``work`` for threads of the pool, which do not know what their caller says of warnings."""

    def quiet(run: Run) -> None:
        with np.errstate(all="ignore"):
            work(run)

    return quiet


def _rows(first: int, together: int, whole: int, size: int) -> slice:
    return slice(first * size, min(first + together, whole) * size)
