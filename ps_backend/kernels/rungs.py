"""The faster kernels that a sweep rises to; numba is not imported before one is wanted."""

from __future__ import annotations

import sys
import threading
from functools import cache, lru_cache

from ps_backend.kernels.compiled.source import source_of
from ps_backend.kernels.kernel import Kernel
from ps_backend.kernels.lowering.lower import for_numba
from ps_backend.kernels.lowering.split import split
from ps_backend.kernels.rising import Heat, Rung
from ps_backend.program.sweep import Sweep

_ENGINE = "ps_backend.kernels.compiled.numba_engine"


@cache
def shared_loops() -> threading.Event:
    """Set once this process has the loops that the mixed engine shares among all sweeps."""
    return threading.Event()


def mixed_rung(sweep: Sweep, at_once: bool) -> Rung:
    """By the loops that all sweeps share; only a hot one, or ``at_once``, has them loaded."""

    def make(is_hot: bool) -> Kernel | None:
        if not (at_once or is_hot or shared_loops().is_set()):
            return None
        from ps_backend.kernels.compiled.elsewhere import compile_elsewhere
        from ps_backend.kernels.compiled.machine_code import linear_loops, tile_loop
        from ps_backend.kernels.compiled.mixed_engine import MixedKernel

        compile_elsewhere()
        linear_loops()
        tile_loop()
        shared_loops().set()
        return MixedKernel(sweep)

    return make


def source_for(sweep: Sweep) -> str:
    """What is compiled for it, and for all others that differ in the number of vectors alone."""
    return source_of(split(for_numba(sweep)))


@lru_cache(maxsize=1024)
def heat_of(source: str) -> Heat:
    """Of all kernels of one source, in this process."""
    return Heat()


def loaded(sweep: Sweep) -> Kernel | None:
    """The compiled kernel, if this process has its machine code already.

    Nothing is imported, as a thread may be about it: whoever imports the same waits for its end.
    """
    if not hasattr(sys.modules.get(_ENGINE), "NumbaKernel"):
        return None
    from ps_backend.kernels.compiled.machine_code import is_any_loaded, is_loaded
    from ps_backend.kernels.compiled.numba_engine import NumbaKernel

    return NumbaKernel(sweep) if is_any_loaded() and is_loaded(source_for(sweep)) else None


def compiled_rung(sweep: Sweep, source: str) -> Rung:
    """By machine code of its ``source``: once it is hot, or where that is on disk."""

    def make(is_hot: bool) -> Kernel | None:
        from ps_backend.kernels.compiled.elsewhere import compile_elsewhere
        from ps_backend.kernels.compiled.machine_code import marker_of
        from ps_backend.kernels.compiled.numba_engine import NumbaKernel

        marker = marker_of(source)
        if not is_hot and (marker is None or not marker.exists()):
            return None
        compile_elsewhere(source)
        return NumbaKernel(sweep)

    return make
