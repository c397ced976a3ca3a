"""The numba engine: a sweep becomes one loop, compiled for this machine.

What needs no compilation of its own (``split``) is called from that loop, chunk by chunk, so every
vector is still read from memory once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.compiled.linear_tables import DotTable, LinkTable
from ps_backend.kernels.compiled.llvm_loops import LINE
from ps_backend.kernels.compiled.machine_code import load
from ps_backend.kernels.compiled.source import ordered_reductions, source_of
from ps_backend.kernels.kernel import Arrays, Pause, no_pause, thread_count, threads_for, together
from ps_backend.kernels.lowering import for_numba, split, work_of
from ps_backend.kernels.numpy_loops import loop_of
from ps_backend.program.summation_order import CHUNK
from ps_backend.program.sweep import COMBINE, Scalar, Sweep, partial_dtypes

_LEAST_STREAMED = 24 << 20
"""Bytes of an output that is stored past the caches: a smaller one is still there when it is read.
Of 1e6 doubles ``x + 1`` took 1.5 times as long past them, and of 3e7 it takes 0.7 times as long."""

_PIECE_WORK = 1 << 26
"""Elements times ``work_of`` that a thread does without a pause: some 50 ms."""


class NumbaKernel:
    """One compiled loop; blocks are shared out over the threads that this process may use."""

    def __init__(self, sweep: Sweep) -> None:
        sweep = for_numba(sweep)
        self._parts = parts = split(sweep)
        self.source = source_of(parts)
        self._function = load(self.source)
        self._scalar_types = [np.dtype(value.dtype).type for value in sweep.scalars]
        self._dots = DotTable(parts.dots)
        combinations = iter(parts.combinations)
        count = len(sweep.inputs)
        place = {None: -1} | {k: k for k in range(count)}
        place |= {count + k: k for k in range(len(sweep.scalars))}
        self._called = [
            LinkTable(next(combinations), place, value.dtype)
            if call.op == COMBINE
            else loop_of(call.op, (*(parts.rest.types[a].dtype for a in call.args), value.dtype))
            for call, value in zip(parts.calls, parts.rest.inputs[len(parts.inputs) :], strict=True)
        ]
        self._partials = [
            dtype
            for reduction in parts.rest.reductions
            for dtype in partial_dtypes(reduction, parts.rest.types[reduction.args[0]])
        ]
        columns = (self._dots.length, len(ordered_reductions(parts.rest)))
        self._columns = [count for count in columns if count]
        """Of each tree over the chunks of a block."""
        self._order = self._order_of_partials(sweep)
        self._work = work_of(sweep)

    def _order_of_partials(self, sweep: Sweep) -> list[tuple[bool, int]]:
        """For each partial result of the sweep whether it is an inner product, and which one."""
        dotted = dict(zip(self._parts.dotted, self._dots.rows, strict=True))
        order, others = [], 0
        for k, reduction in enumerate(sweep.reductions):
            if k in dotted:
                order.append((True, dotted[k]))
                continue
            for _ in partial_dtypes(reduction, sweep.types[reduction.args[0]]):
                order.append((False, others))
                others += 1
        return order

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
        blocks = -(-length // block_size)
        partials = [np.empty(blocks, dtype) for dtype in self._partials]
        products = np.empty((self._dots.length, blocks))
        addresses = _addresses(inputs)
        arguments = [
            _streams(addresses, outputs),
            *self._tables(np.array([*addresses, 0], np.int64), scalars, products),
            *(inputs[k] for k in self._parts.inputs),
            *(self._scalar_types[k](scalars[k]) for k in self._parts.scalars),
            *outputs,
            *partials,
        ]
        trees = self._trees(min(threads_for(length * self._work), blocks), block_size)
        self._run(trees, (blocks, block_size, offset, length), arguments, pause)
        return [products[k] if is_product else partials[k] for is_product, k in self._order]

    def working_bytes(self, length: int, block_size: int) -> int:
        """Bytes of partial results and trees; the scratch arrays fit the innermost cache."""
        blocks = -(-length // block_size)
        partials = blocks * (len(self._partials) + self._dots.length)
        levels = min(thread_count(), blocks) * _levels(block_size)
        return 8 * (partials + levels * sum(self._columns))

    def _trees(self, threads: int, block_size: int) -> list[Arrays]:
        """By thread the nodes of the block that it is at, a row a level."""
        shapes = [(_levels(block_size), count) for count in self._columns]
        return [[np.empty(shape) for shape in shapes] for _ in range(threads)]

    def _tables(
        self,
        addresses: npt.NDArray[np.int64],
        scalars: Sequence[Scalar],
        products: npt.NDArray[np.float64],
    ) -> Iterator[Any]:
        """The arguments that drive what is called; they hold ``addresses`` of the inputs."""
        parts = self._parts
        if parts.dots:
            yield from self._dots.arguments(addresses)
            yield products
        coefficients = np.array([*scalars, 1.0], np.float64)
        for called in self._called:
            if isinstance(called, LinkTable):
                yield from called.arguments(addresses, coefficients)
            else:
                yield called

    def _run(
        self,
        trees: Sequence[Arrays],
        place: tuple[int, int, int, int],
        arguments: Sequence[Any],
        pause: Pause,
    ) -> None:
        """Run over all blocks in pieces: of many blocks, or of parts of a few large ones.

        A part that is not a block's first goes on from the partial results and the tree of its
        thread, so that every bit is that of one run over the block. ``place``: blocks, slots of a
        block, first slot, slots.
        """
        blocks, block_size, offset, length = place
        most = max(CHUNK, _PIECE_WORK // self._work // CHUNK * CHUNK)  # elements of a thread
        together = max(1, len(trees)) * max(1, most // block_size)
        for first in range(0, blocks, together):
            last = min(first + together, blocks)
            for skip in range(0, block_size, most):
                if first or skip:
                    pause()
                until = min(skip + most, block_size)
                part = (block_size, skip, until, offset, length)
                self._share_out(first, last, trees, part, arguments)

    def _share_out(
        self,
        first: int,
        last: int,
        trees: Sequence[Arrays],
        part: tuple[int, ...],
        arguments: Sequence[Any],
    ) -> None:
        """Run blocks ``first`` to ``last``, a part for each thread, which has a tree of its own."""

        def run(low: int, high: int, tree: Arrays) -> None:
            self._function(low, high, *part, *tree, *arguments)

        threads = min(len(trees), last - first)
        cuts = [first + (last - first) * k // threads for k in range(threads + 1)]
        together(run, cuts[:-1], cuts[1:], trees[:threads])


def _levels(block_size: int) -> int:
    """Of the tree over the chunks of a block."""
    return (-(-block_size // CHUNK)).bit_length()


def _addresses(arrays: Arrays) -> list[int]:
    return [array.__array_interface__["data"][0] for array in arrays]


def _streams(read: Sequence[int], outputs: Arrays) -> bool:
    """Whether outputs are stored past the caches: not where they lie in memory just read.

    ``read``: the addresses of inputs.
    """
    if max((array.nbytes for array in outputs), default=0) < _LEAST_STREAMED:
        return False
    written = _addresses(outputs)
    return not {*read}.intersection(written) and all(address % LINE == 0 for address in written)
