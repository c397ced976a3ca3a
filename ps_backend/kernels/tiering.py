"""Tiered compilation: kernels that start without a compiler and are replaced as they prove hot.

A run takes whichever engine there is; none waits for a compiler. A process of its own compiles,
one sweep at a time and at a lower priority, so that no request of this process waits for the
interpreter lock meanwhile; a thread loads the result, in between the runs. Only sweeps that have
the same bits on all engines are run so (``reproducible``).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.background import compile_throttle, in_background
from ps_backend.kernels.compiled.source import source_of
from ps_backend.kernels.kernel import Arrays, Kernel, Pause, no_pause
from ps_backend.kernels.lowering import for_numba, split
from ps_backend.program.sweep import Scalar, Sweep

HOT_SECONDS = 0.3
"""A kernel that has run for so long, in this process, is worth a compilation of its own."""
HOT_RUNS = 2
"""And so often."""

Tier = Callable[[bool], Kernel | None]
"""Makes a kernel. Told whether it may compile; None if it would have to, and may not."""


@dataclass(slots=True)
class HotCounter:
    """How often and how long kernels have run that one compilation would serve."""

    runs: int = 0
    seconds: float = 0.0

    @property
    def is_hot(self) -> bool:
        """Whether that is worth the compilation."""
        return self.runs >= HOT_RUNS and self.seconds >= HOT_SECONDS


@dataclass(slots=True)
class TierPlan:
    """The next tiers of a kernel, in order, and the counter that it shares with others."""

    tiers: list[Tier]
    counter: HotCounter = field(default_factory=HotCounter)


class TieredKernel:
    """The first of several kernels, then the next one as soon as that is there."""

    def __init__(self, first: Kernel, plan: Callable[[], TierPlan], at_once: bool) -> None:
        """``plan`` finds the others, and its tiers make them, all in a thread of their own.

        They are asked once it is hot, alone or with others that share its counter; and with
        ``at_once`` after the first run too, for what costs no compilation.
        """
        self._kernel, self._plan, self._at_once = first, plan, at_once
        self._made_plan: TierPlan | None = None
        self._counter = HotCounter()
        self._runs = 0
        self._is_waiting = False
        self._was_hot = False

    @property
    def kernel(self) -> Kernel:
        """What runs now."""
        return self._kernel

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
        """As of any kernel; see ``kernels.Kernel``."""
        kernel = self._kernel
        if self._made_plan is not None and not self._made_plan.tiers:
            return kernel(inputs, scalars, outputs, offset, length, block_size, pause)
        start = time.perf_counter()
        with compile_throttle().taken():
            partials = kernel(inputs, scalars, outputs, offset, length, block_size, pause)
        counter = self._counter
        counter.seconds += time.perf_counter() - start
        counter.runs += 1
        self._runs += 1
        is_due = self._runs == (1 if self._at_once else HOT_RUNS)  # what it shares is found then
        if not self._is_waiting and (is_due or (counter.is_hot and not self._was_hot)):
            self._is_waiting = True
            in_background(self._next_tiers)
        return partials

    def working_bytes(self, length: int, block_size: int) -> int:
        """As of any kernel."""
        return self._kernel.working_bytes(length, block_size)

    def _next_tiers(self) -> None:
        """Make all kernels that may be made now."""
        if self._made_plan is None:
            plan = self._plan()
            plan.counter.runs += self._counter.runs
            plan.counter.seconds += self._counter.seconds
            self._made_plan, self._counter = plan, plan.counter
        tiers, self._was_hot = self._made_plan.tiers, self._counter.is_hot
        while tiers and (self._at_once or self._was_hot):
            kernel = tiers[0](self._was_hot)
            if kernel is None:
                break
            self._kernel = kernel
            tiers.pop(0)
        self._is_waiting = False


_ENGINE = "ps_backend.kernels.compiled.numba_engine"


@cache
def shared_loops() -> threading.Event:
    """Set once this process has the loops that the mixed engine shares among all sweeps."""
    return threading.Event()


def shared_loops_tier(sweep: Sweep, at_once: bool) -> Tier:
    """By the loops that all sweeps share; only a hot one, or ``at_once``, has them loaded."""

    def make(is_hot: bool) -> Kernel | None:
        if not (at_once or is_hot or shared_loops().is_set()):
            return None
        from ps_backend.kernels.compiled.compile_worker import compile_in_subprocess
        from ps_backend.kernels.compiled.machine_code import linear_loops, tile_loop
        from ps_backend.kernels.compiled.mixed_engine import MixedKernel

        compile_in_subprocess()
        linear_loops()
        tile_loop()
        shared_loops().set()
        return MixedKernel(sweep)

    return make


def source_for(sweep: Sweep) -> str:
    """What is compiled for it, and for all others that differ in the number of vectors alone."""
    return source_of(split(for_numba(sweep)))


@lru_cache(maxsize=1024)
def hot_counter_of(source: str) -> HotCounter:
    """Of all kernels of one source, in this process."""
    return HotCounter()


def loaded(sweep: Sweep) -> Kernel | None:
    """The compiled kernel, if this process has its machine code already.

    Nothing is imported, as a thread may be about it: whoever imports the same waits for its end.
    """
    if not hasattr(sys.modules.get(_ENGINE), "NumbaKernel"):
        return None
    from ps_backend.kernels.compiled.machine_code import is_any_loaded, is_loaded
    from ps_backend.kernels.compiled.numba_engine import NumbaKernel

    return NumbaKernel(sweep) if is_any_loaded() and is_loaded(source_for(sweep)) else None


def compiled_tier(sweep: Sweep, source: str) -> Tier:
    """By machine code of its ``source``: once it is hot, or where that is on disk."""

    def make(is_hot: bool) -> Kernel | None:
        from ps_backend.kernels.compiled.compile_worker import compile_in_subprocess
        from ps_backend.kernels.compiled.machine_code import marker_of
        from ps_backend.kernels.compiled.numba_engine import NumbaKernel

        marker = marker_of(source)
        if not is_hot and (marker is None or not marker.exists()):
            return None
        compile_in_subprocess(source)
        return NumbaKernel(sweep)

    return make
