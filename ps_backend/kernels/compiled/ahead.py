"""Compile in a process of its own: ``python -m ps_backend.kernels.compiled.ahead``.

The source of a kernel comes by the standard input; without one, the loops that all sweeps share are
compiled. The machine code goes to the cache folder, where other processes find it.
"""

from __future__ import annotations

import os
import sys

import numpy as np

from ps_backend.kernels.compiled.chunk_steps import filling_of
from ps_backend.kernels.compiled.machine_code import load, marker_of, tile_loop
from ps_backend.program.sweep import Combination, Link
from ps_backend.program.types import FLOATS, ValueType

_NICENESS = 3
"""Half the share of a processor that a server gets. At 19 programs that keep all of them busy wait
for minutes, in the slower engine, for two seconds of compilation."""


def main() -> None:
    """Compile what is asked for, while servers compute."""
    os.nice(_NICENESS)
    source = sys.stdin.read()
    if source:
        load(source)
        return
    tile_loop()
    for dtype in FLOATS:
        if np.dtype(dtype).itemsize >= 4:
            filling_of(1, Combination((Link("start", 0),), ValueType(dtype)))
    marker = marker_of(source)
    if marker is not None:
        marker.touch()


if __name__ == "__main__":
    main()
