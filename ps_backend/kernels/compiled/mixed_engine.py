"""The mixed engine: loops that all sweeps share, so that none needs a compilation of its own.

What there are inner loops for, NumPy's or of ``own_loops``, is run by them tile by tile in the
cache, reductions included (``loop_program``); linear combinations and inner products by the
compiled loops of ``linear``; what is left by NumPy's functions. The first kind and the others take
turns (``chunk_plan``), on chunks of whole blocks. Threads share the chunks out, and no bit depends
on who computes which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.compiled.chunk_plan import plan_of
from ps_backend.kernels.compiled.chunk_run import ChunkRun
from ps_backend.kernels.compiled.loop_program import REGISTER
from ps_backend.kernels.compiled.products import products_of, whole
from ps_backend.kernels.lowering.lower import for_loops
from ps_backend.kernels.lowering.work import work_of
from ps_backend.kernels.numpy_engine import (
    Partials,
    chunk_of,
    constants_of,
    joined,
    reduce_blocks,
)
from ps_backend.kernels.pause import Pause, no_pause
from ps_backend.kernels.threads import thread_count, threads_for, together
from ps_backend.program.sweep import Scalar, Sweep, partial_dtypes

_PIECE_WORK = 1 << 27
"""Elements times ``work_of`` that a thread does without a pause: some 50 ms."""

Array = npt.NDArray[np.generic]


class MixedKernel:
    """See ``kernels.Kernel`` for the call.

    What is compiled is compiled here, by running it once: a sweep must not fail when it has begun.
    """

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep = for_loops(sweep)
        self._dtypes = [np.dtype(value.dtype) for value in sweep.types]
        self._products = products_of(sweep)
        self._partials = [partial_dtypes(r, sweep.types[r.args[0]]) for r in sweep.reductions]
        self._constants = constants_of(sweep)
        self._plan = plan_of(sweep)
        self._work = work_of(sweep)

    def __call__(
        self,
        inputs: Sequence[Array],
        scalars: Sequence[Scalar],
        outputs: Sequence[Array],
        offset: int,
        length: int,
        block_size: int,
        pause: Pause = no_pause,
    ) -> list[Array]:
        """Run over one server's range; see ``kernels.Kernel``."""
        unit = block_size if self._sweep.reductions else 1
        chunk = chunk_of(block_size)
        if self._plan.is_one_program and len(self._plan.reduced) == len(self._sweep.reductions):
            # Tiles are all the cutting that it needs.
            chunk = max(1, _PIECE_WORK // (self._work * unit)) * unit
        constants = self._values(scalars)

        def run(low: int, high: int, pause: Pause = no_pause) -> Partials:
            part = ChunkRun(self._plan, self._dtypes, chunk, block_size, pause)
            partials: Partials = [[] for _ in self._partials]
            # NumPy warns of the special values that the client's user handles; a server has none.
            with np.errstate(all="ignore"):
                for first in range(low, high, chunk):
                    last = min(first + chunk, high)
                    values = constants | {k: a[first:last] for k, a in enumerate(inputs)}
                    written = [array[first:last] for array in outputs]
                    reduced = part.compute(values, written, offset + first, last - first)
                    for k, array in reduced.items():
                        partials[k].append((array,))
                    self._reduce(values, offset + first, last - first, block_size, partials)
                    # Last, as an output may lie where an input was.
                    for k, value in enumerate(self._sweep.outputs):
                        if self._plan.direct.get(value) != k:
                            written[k][:] = values[value]
                    part.forget(values)
            return partials

        most = max(1, _PIECE_WORK // (self._work * chunk)) * chunk  # elements of a thread
        if most * self._work > 2 * _PIECE_WORK:
            return joined(self._partials, [run(0, length, pause)])
        return joined(self._partials, self._shared_out(run, length, unit, most, pause))

    def working_bytes(self, length: int, block_size: int) -> int:
        """Bytes of the values that are alive at once, and of partial results."""
        chunk = min(length, chunk_of(block_size))
        threads = min(thread_count(), -(-length // chunk)) if length else 0
        partials = len(self._partials) * -(-length // block_size)
        registers = self._plan.registers * REGISTER
        return threads * (8 * self._plan.most_alive * chunk + registers) + 16 * partials

    def _shared_out(
        self, run: Callable[[int, int], Partials], length: int, unit: int, most: int, pause: Pause
    ) -> list[Partials]:
        """The results of all parts, in order: multiples of ``unit``, at most ``most`` at once."""
        threads = threads_for(length * self._work)
        found: list[Partials] = []
        for low in range(0, length, threads * most):
            if low:
                pause()
            high = min(low + threads * most, length)
            share = min(most, -(-(high - low) // (threads * unit)) * unit)
            lows = range(low, high, share)
            highs = [min(at + share, high) for at in lows]
            found += together(run, lows, highs)
        return found

    def _values(self, scalars: Sequence[Scalar]) -> dict[int, Any]:
        """The constants: what is given, and what is computed of that alone."""
        values: dict[int, Any] = {
            k: self._dtypes[k].type(value)
            for k, value in enumerate(scalars, len(self._sweep.inputs))
        }
        with np.errstate(all="ignore"):
            for value, args, function in self._constants:
                values[value] = function(*(values[arg] for arg in args))
        return values

    def _reduce(
        self,
        values: Mapping[int, Any],
        index: int,
        length: int,
        block_size: int,
        partials: Partials,
    ) -> None:
        products: dict[int, Array] = {}
        for group in self._products:
            products |= group.of(values, length, block_size)
        for k, reduction in enumerate(self._sweep.reductions):
            if k in self._plan.reduced:
                continue
            if k in products:
                partials[k].append((products[k],))
            else:
                operand = whole(values[reduction.args[0]], length)
                partials[k].append(reduce_blocks(reduction, operand, index, block_size))
