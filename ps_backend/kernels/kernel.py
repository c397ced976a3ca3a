"""What all engines make of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.pause import Pause, no_pause
from ps_backend.program.sweep import Scalar

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
