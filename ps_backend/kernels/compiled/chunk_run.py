"""The chunks that one thread computes, and the memory that it uses again for each of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.compiled.chunk_plan import ChunkPlan
from ps_backend.kernels.compiled.loop_program import REGISTER, LoopProgram
from ps_backend.kernels.pause import Pause

_PIECE_WORK = 1 << 27
"""Elements times steps of a program between two pauses."""

Array = npt.NDArray[np.generic]


class ChunkRun:
    """Stages run on one chunk after the other; arrays go back to the ``spare`` ones when read."""

    def __init__(
        self, plan: ChunkPlan, dtypes: Sequence[np.dtype[Any]], chunk: int, pause: Pause
    ) -> None:
        self._plan, self._dtypes, self._chunk, self._pause = plan, dtypes, chunk, pause
        self._registers = np.empty(plan.registers * REGISTER, np.uint8)
        self._spare: dict[np.dtype[Any], list[Array]] = defaultdict(list)
        self._taken: dict[int, Array] = {}

    def compute(
        self, values: dict[int, Any], outputs: Sequence[Array], index: int, length: int
    ) -> None:
        """Add what results are taken from to ``values``, of a chunk that begins at ``index``."""
        for stage in self._plan.stages:
            for value in stage.made:
                output = self._plan.direct.get(value)
                values[value] = self._array(value, length) if output is None else outputs[output]
            for filling in stage.fillings:
                self._pause()
                args = [values[arg] for arg in filling.args]
                filling.fill(values[filling.value], index, *args)
            if stage.program is not None:
                self._run(stage.program, values, length)
            for value in stage.ended:
                self._give_back(value)

    def forget(self, values: dict[int, Any]) -> None:
        """The results have been taken; their arrays serve the next chunk."""
        values.clear()
        for value in [*self._taken]:
            self._give_back(value)

    def _run(self, program: LoopProgram, values: dict[int, Any], length: int) -> None:
        bound = program.bind(values, self._registers)
        most = max(1, _PIECE_WORK // len(program.steps))
        for low in range(0, length, most):
            self._pause()
            bound.run(low, min(low + most, length))

    def _array(self, value: int, length: int) -> Array:
        spare = self._spare[self._dtypes[value]]
        array = spare.pop() if spare else np.empty(min(self._chunk, length), self._dtypes[value])
        self._taken[value] = array
        return array[:length]

    def _give_back(self, value: int) -> None:
        self._spare[self._dtypes[value]].append(self._taken.pop(value))
