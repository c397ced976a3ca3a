"""The chunks that one thread computes, and the memory that it uses again for each of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.compiled.chunk_plan import ChunkPlan
from ps_backend.kernels.compiled.loop_program import REGISTER, TILE, LoopProgram
from ps_backend.kernels.pause import Pause

_PIECE_WORK = 1 << 27
"""Elements times steps of a program between two pauses."""

Array = npt.NDArray[np.generic]


class ChunkRun:
    """Stages run on one chunk after the other; arrays go back to the ``spare`` ones when read."""

    def __init__(
        self,
        plan: ChunkPlan,
        dtypes: Sequence[np.dtype[Any]],
        chunk: int,
        block_size: int,
        pause: Pause,
    ) -> None:
        self._plan, self._dtypes, self._pause = plan, dtypes, pause
        self._chunk, self._block_size = chunk, block_size
        self._registers = np.empty(plan.registers * REGISTER, np.uint8)
        self._spare: dict[np.dtype[Any], list[Array]] = defaultdict(list)
        self._taken: dict[int, Array] = {}

    def compute(
        self, values: dict[int, Any], outputs: Sequence[Array], index: int, length: int
    ) -> dict[int, Array]:
        """Add what results are taken from to ``values``, of a chunk that begins at ``index``.

        Returns the partial results of those reductions that programs take along.
        """
        partials: dict[int, Array] = {}
        for stage in self._plan.stages:
            for value in stage.made:
                output = self._plan.direct.get(value)
                values[value] = self._array(value, length) if output is None else outputs[output]
            for filling in stage.fillings:
                self._pause()
                args = [values[arg] for arg in filling.args]
                filling.fill(values[filling.value], index, *args)
            if stage.program is not None:
                partials |= self._run(stage.program, values, index, length)
            for value in stage.ended:
                self._give_back(value)
        return partials

    def forget(self, values: dict[int, Any]) -> None:
        """The results have been taken; their arrays serve the next chunk."""
        values.clear()
        for value in [*self._taken]:
            self._give_back(value)

    def _run(
        self, program: LoopProgram, values: dict[int, Any], index: int, length: int
    ) -> dict[int, Array]:
        block, most = self._block_size, max(TILE, _PIECE_WORK // max(1, len(program.steps)))
        partials = {k: np.empty(-(-length // block), kind) for k, kind in program.partials.items()}
        bound = program.bind(values, self._registers, list(partials.values()), block, index)
        for low, high in _pieces(length, most, block if partials else length):
            self._pause()
            bound.run(low, high)
        for k in program.picks:
            if partials[k].dtype.kind == "f":
                partials[k] += 0.0  # of zeros of both signs, who is picked depends on the processor
        return partials

    def _array(self, value: int, length: int) -> Array:
        spare = self._spare[self._dtypes[value]]
        array = spare.pop() if spare else np.empty(min(self._chunk, length), self._dtypes[value])
        self._taken[value] = array
        return array[:length]

    def _give_back(self, value: int) -> None:
        self._spare[self._dtypes[value]].append(self._taken.pop(value))


def _pieces(length: int, most: int, block: int) -> Iterator[tuple[int, int]]:
    """Some blocks each, or some tiles of one block, if that has more than ``most`` elements."""
    whole = max(1, most // block) * block if block else 1
    within = most // TILE * TILE
    for low in range(0, length, whole):
        high = min(low + whole, length)
        for first in range(low, high, within):
            yield first, min(first + within, high)
