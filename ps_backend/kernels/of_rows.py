"""Kernels over tables: of arrays whose rows are seen one after the other, as one vector.

What is elementwise, and what reduces all elements, does not care where a row ends. A block of the
space is a block of whole rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.kernel import Arrays, Kernel
from ps_backend.kernels.pause import Pause, no_pause
from ps_backend.program.sweep import Scalar


class OfRows:
    """``kernel`` of a flat sweep, over arrays with rows of ``width`` elements."""

    def __init__(self, kernel: Kernel, width: int) -> None:
        self._kernel, self._width = kernel, width

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
        """As of any kernel, where indices count elements; see ``kernels.Kernel``."""
        width = self._width
        return self._kernel(
            [array.reshape(-1) for array in inputs],
            scalars,
            [array.reshape(-1) for array in outputs],
            offset * width,
            length * width,
            block_size * width,
            pause,
        )

    def working_bytes(self, length: int, block_size: int) -> int:
        """As of any kernel."""
        return self._kernel.working_bytes(length * self._width, block_size * self._width)
