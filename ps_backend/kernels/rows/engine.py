"""A sweep by NumPy's functions, over chunks of rows that fit the cache.

The blocks of a run are shared out to threads, each of which walks its own ones from the first to
the last, in slices between which others may go first. A chunk is part of a block, or some whole
ones; what depends on more than one row is computed block by block, so that the bits of a block are
the same wherever the run begins and ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.kernel import Arrays
from ps_backend.kernels.lowering.lower import for_numpy
from ps_backend.kernels.pause import Pause, no_pause
from ps_backend.kernels.rows.instructions import recipe_of
from ps_backend.kernels.rows.reductions import reduction_of
from ps_backend.kernels.rows.walk import Job, Reducing, Walk
from ps_backend.kernels.threads import pool, thread_count
from ps_backend.program.partials import layout_of, partial_types
from ps_backend.program.sweep import Scalar, Sweep
from ps_backend.serial_blas import serial_blas

_CHUNK = 1 << 16
"""Elements of the widest value of a chunk: a few such arrays fit the cache of a core."""
_STREAMED = 1 << 18
"""The same where nothing is kept in between."""
_LEAST_ROWS = 512
"""Of a chunk, where matrices are multiplied: by fewer rows a matrix is read too often."""
_TRIANGLES = 4
"""Triangles that a chunk has rows for, where it is made one: else joining them costs as much."""
_SLICE_WORK = 1 << 24
"""Elements computed that a thread goes on for without a pause: some 50 ms."""
_ALONE = 1 << 16
"""Elements computed that are not worth a second thread."""
_ITEM_BYTES = 8
"""Of the widest dtype."""
_PRODUCTS = 8
"""Products that BLAS adds up in the time of one element of a step."""


class RowsKernel:
    """See ``kernels.Kernel`` for the call."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep = for_numpy(sweep)
        self._recipe = recipe = recipe_of(sweep)
        self._reducing = [
            Reducing(r, layout_of(r), partial_types(sweep, r), reduction_of(sweep, r))
            for r in sweep.reductions
        ]
        self._multiplies = any(
            one.row_op is not None and one.row_op.products for one in recipe.instructions
        ) or any(r.op in ("gram", "triangle") for r in sweep.reductions)
        self._least_rows = _LEAST_ROWS
        if any(r.op == "triangle" for r in sweep.reductions):
            self._least_rows = max(_LEAST_ROWS, _TRIANGLES * max(map(prod, sweep.rows)))
        streams = all(one.output is not None for one in recipe.instructions)
        self._chunk = _STREAMED if streams else _CHUNK
        self._width = max((prod(row) for row in sweep.rows), default=1)
        self._work = self._width * (len(recipe.instructions) + len(sweep.results) + 1)
        if self._multiplies:  # by a large matrix, or to one
            matrices = [*sweep.scalars, *(t for one in self._reducing for t in one.types)]
            self._work += max(prod(value.row) for value in matrices) // _PRODUCTS

    def __call__(
        self,
        inputs: Arrays,
        scalars: Sequence[Scalar],
        outputs: Arrays,
        offset: int,
        length: int,
        block_size: int,
        pause: Pause = no_pause,
    ) -> list[npt.NDArray[np.generic]]:
        """Run over one server's range; see ``kernels.Kernel``."""
        place = (offset, length, block_size, self.chunk_rows(block_size))
        with np.errstate(all="ignore"), serial_blas():
            job = Job(self._sweep, self._recipe, self._reducing, inputs, scalars, outputs, place)
            walks = self._walks(job)
            self._run(walks, max(1, _SLICE_WORK // (self._work * job.chunk)), pause)
            return job.partials(walks)

    def _walks(self, job: Job) -> list[Walk]:
        """One for each thread."""
        blocks = -(-job.length // job.block_size)
        threads = 1 if self._work * job.length <= _ALONE else min(thread_count(), blocks)
        cuts = [blocks * part // threads for part in range(threads + 1)]
        return [Walk(job, low, high) for low, high in pairwise(cuts)]

    def _run(self, walks: Sequence[Walk], chunks: int, pause: Pause) -> None:
        """To their ends, with a pause after so many chunks of each."""
        while left := [walk for walk in walks if not walk.is_over]:
            if len(left) == 1:
                left[0].advance(chunks)
            else:
                list(pool().map(Walk.advance, left, [chunks] * len(left)))
            pause()

    def chunk_rows(self, block_size: int) -> int:
        """Rows of a chunk: part of a block, or some whole ones."""
        rows = max(1, self._chunk // self._width)
        if self._multiplies:
            rows = max(rows, self._least_rows)
        if rows < block_size:
            return 1 << (rows.bit_length() - 1)
        return rows // block_size * block_size

    def working_bytes(self, length: int, block_size: int) -> int:
        """Bytes of scratch arrays, and of partial results, of all threads.

        And of what NumPy's functions take for themselves: as much as one value, at the most.
        """
        blocks = -(-length // block_size)
        threads = max(1, min(thread_count(), blocks))
        scratch = sum(value.row_bytes for value in self._recipe.scratch)
        scratch += _ITEM_BYTES * self._width
        total = threads * scratch * min(length, self.chunk_rows(block_size))
        for one in self._reducing:
            size = sum(value.row_bytes for value in one.types)
            match one.layout:
                case "tree":  # the nodes of the walks, and as arrays; a chunk's; what joins two
                    total += threads * size * (4 * blocks.bit_length() + 3)
                case "slots" | "listed":
                    total += size * length
                case _:
                    total += size * blocks
        return total
