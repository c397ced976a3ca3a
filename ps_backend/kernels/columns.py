"""Sweeps that read columns of tables, ``A[:, j] @ r``: as sweeps over copies of the columns.

A sweep over vectors has engines that one over whole rows lacks, and all columns of a table share
its kernel. Each column is copied, part by part, so that it lies in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.kernel import Arrays, Kernel, Pause, in_parts, no_pause
from ps_backend.program.sweep import Combination, Scalar, Step, Sweep

_CHUNK = 1 << 20
"""Slots of a part, in whole blocks."""
_TILE = 1 << 13
"""Slots that are copied at a time: their rows stay in the cache for the next column."""
_COPY_WORK = 8
"""Additions that take as long as copying an element of a column, which has a cache line alone."""

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class ColumnSweep:
    """A sweep over vectors, and by input of it that of the whole one, and which column of that."""

    vectors: Sweep
    sources: tuple[tuple[int, int | None], ...]


@lru_cache(maxsize=1024)
def columns_of(sweep: Sweep) -> ColumnSweep | None:
    """``sweep`` over columns, if it reads nothing else of tables."""
    tables = {k for k, value in enumerate(sweep.inputs) if value.row}
    row_steps = list(sweep.row_steps)
    if not row_steps or any(one.op != "column" for one in row_steps) or sweep.takes_rows:
        return None
    first = len(sweep.inputs) + len(sweep.scalars)
    others = [step.args for step in sweep.steps if step.op != "column"]
    read = {*sweep.outputs}.union(*others, *(r.args for r in sweep.reductions))
    if read & tables or any(one.args[0] not in tables for one in row_steps):
        return None
    sources: dict[tuple[int, int | None], int] = {}
    for k in range(len(sweep.inputs)):
        if k not in tables:
            sources[k, None] = len(sources)
    for one in row_steps:
        sources.setdefault((one.args[0], one.params[0]), len(sources))
    number = {k: at for (k, column), at in sources.items() if column is None}
    number |= {k: k - len(sweep.inputs) + len(sources) for k in range(len(sweep.inputs), first)}
    steps: list[Step | Combination] = []
    for value, step in enumerate(sweep.steps, first):
        if isinstance(step, Step) and step.op == "column":
            number[value] = sources[step.args[0], step.params[0]]
        else:
            number[value] = len(sources) + len(sweep.scalars) + len(steps)
            steps.append(step.renumbered(number))
    vectors = Sweep(
        tuple(sweep.inputs[k].flat for k, _ in sources),
        sweep.scalars,
        tuple(steps),
        tuple(number[value] for value in sweep.outputs),
        tuple(r.renumbered(number) for r in sweep.reductions),
    )
    return ColumnSweep(vectors, tuple(sources))


class ColumnKernel:
    """See ``kernels.Kernel`` for the call."""

    def __init__(self, parts: ColumnSweep, kernel: Kernel) -> None:
        """``kernel`` is one of the sweep over vectors."""
        self._parts, self._kernel = parts, kernel

    def __call__(
        self,
        inputs: Arrays,
        scalars: Sequence[Scalar],
        outputs: Arrays,
        offset: int,
        length: int,
        block_size: int,
        pause: Pause = no_pause,
    ) -> list[Array]:
        """Run over one server's range; see ``kernels.Kernel``."""
        chunk = self._chunk(length, block_size)
        taken = [
            (at, inputs[k][:, column])
            for at, (k, column) in enumerate(self._parts.sources)
            if column is not None
        ]
        copies = [np.empty(chunk, column.dtype) for _, column in taken]
        partials = []
        for low in range(0, max(length, 1), max(chunk, 1)):
            high = min(low + chunk, length)
            given = [inputs[k][low:high] for k, _ in self._parts.sources]
            for (at, _), copy in zip(taken, copies, strict=True):
                given[at] = copy[: high - low]
            _copy([(column[low:high], given[at]) for at, column in taken])
            written = [array[low:high] for array in outputs]
            partials.append(
                self._kernel(given, scalars, written, offset + low, high - low, block_size, pause)
            )
        return [np.concatenate(parts) for parts in zip(*partials, strict=True)]

    def working_bytes(self, length: int, block_size: int) -> int:
        """As of any kernel."""
        part = self._chunk(length, block_size)
        copies = sum(
            value.row_bytes
            for value, (_, column) in zip(
                self._parts.vectors.inputs, self._parts.sources, strict=True
            )
            if column is not None
        )
        return part * copies + self._kernel.working_bytes(part, block_size)

    def _chunk(self, length: int, block_size: int) -> int:
        """Slots of a part: some whole blocks, or all where a result is not one for each block."""
        if self._parts.vectors.leaves_rows:
            return length
        return min(length, max(1, _CHUNK // block_size) * block_size)


def _copy(pairs: Sequence[tuple[Array, Array]]) -> None:
    """The first of each pair to the second, few slots at a time: columns share cache lines."""

    def run(low: int, high: int) -> None:
        for first in range(low, high, _TILE):
            part = slice(first, min(first + _TILE, high))
            for column, copy in pairs:
                copy[part] = column[part]

    in_parts(run, len(pairs[0][1]), _COPY_WORK * len(pairs))
