"""Compilation by another process, so that no thread of this one waits for the interpreter lock."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

from ps_backend.kernels.compiled.machine_code import marker_of

_MOST_SAID = 2000


def compile_elsewhere(source: str = "") -> None:
    """Have ``source`` compiled, or without one the loops that all sweeps share; waits for it.

    Does nothing where it was compiled before, or where no folder is safe to keep it in. Raises
    ``RuntimeError`` with what the compiler said.
    """
    marker = marker_of(source)
    if marker is None or marker.exists():
        return
    with marker.with_suffix(".elsewhere").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the other servers of this machine want it, too
        if not marker.exists():
            _compile(source)


def _compile(source: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ps_backend.kernels.compiled.ahead"],
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
