"""The interface of all kernels, and a kernel over tables whose rows it takes for one vector."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.threads import Pause, no_pause
from ps_backend.program.sweep import Scalar


@cache
def has_compiler() -> bool:
    """Whether numba is installed."""
    return importlib.util.find_spec("numba") is not None


Arrays = Sequence[npt.NDArray[np.generic]]


class Kernel(Protocol):
    """A compiled sweep."""

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
        """Run over the local range of one server, in one pass.

        ``inputs`` and ``outputs`` are C-contiguous arrays of the local ``length`` (with rows, if
        the sweep has such); an output that is computed may be the very array of an input of its
        dtype. ``offset`` is the global index of the first element, a multiple of ``block_size``.
        Returns the partial results of the reductions in order, each of shape ``(local blocks,)``;
        arg-reductions give two arrays, values and global indices. ``pause`` is called between
        pieces of work of some 50 ms; what it raises ends the run, with the outputs half written.
        """

    def working_bytes(self, length: int, block_size: int) -> int:
        """Bytes of memory that such a run takes, besides what it is given."""


class Flattened:
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
