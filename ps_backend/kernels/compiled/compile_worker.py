"""Compilation by another process, so that no thread of this one waits for the interpreter lock.

``python -m ps_backend.kernels.compiled.compile_worker`` is that process. The source of a kernel
comes by the standard input; without one, the loops that all sweeps share are compiled. The machine
code goes to the cache folder, where other processes find it.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

import numpy as np

from ps_backend.kernels.background import compile_throttle
from ps_backend.kernels.compiled.machine_code import load, marker_of, tile_loop
from ps_backend.kernels.compiled.mixed_engine import numpy_step
from ps_backend.program.sweep import Combination, Link
from ps_backend.program.types import FLOATS, ValueType

_MOST_SAID = 2000


def compile_in_subprocess(source: str = "") -> None:
    """Have ``source`` compiled, or without one the loops that all sweeps share; waits for it.

    Does nothing where it was compiled before, or where no folder is safe to keep it in. Raises
    ``RuntimeError`` with what the compiler said.
    """
    marker = marker_of(source)
    if marker is None or marker.exists():
        return
    with compile_throttle().elsewhere(), marker.with_suffix(".subprocess").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the other servers of this machine want it, too
        if not marker.exists():
            _compile(source)


def _compile(source: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ps_backend.kernels.compiled.compile_worker"],
        input=source.encode(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        process_group=0,  # Ctrl-C in the terminal is for the parent alone
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace")[-_MOST_SAID:]
        raise RuntimeError(f"the compiler ended with {done.returncode}: {said}")


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
            numpy_step(1, Combination((Link("start", 0),), ValueType(dtype)))
    marker = marker_of(source)
    if marker is not None:
        marker.touch()


if __name__ == "__main__":
    main()
