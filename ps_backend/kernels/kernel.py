"""The interface of all kernels, the threads they share, and tables seen as one vector."""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ps_backend.machine import usable_cores
from ps_backend.program.sweep import Scalar

Pause = Callable[[], None]
"""What a kernel calls between two pieces of its work. It may raise; then nobody needs the rest."""


def no_pause() -> None:
    """For a kernel that may run to its end."""


T = TypeVar("T")

_SHARED_WORK = 1 << 21
"""Additions for each thread from which work is shared out, half a millisecond: waking another
thread, and taking turns with it for the interpreter lock, takes some 150 us."""


_within = threading.local()


def thread_count() -> int:
    """Threads a kernel may use: ``OMP_NUM_THREADS`` where set, else the cores it may use.

    One within ``together``: the threads are at work.
    """
    if getattr(_within, "together", False):
        return 1
    setting = os.environ.get("OMP_NUM_THREADS", "")
    return int(setting) if setting.isdigit() and int(setting) > 0 else usable_cores()


def threads_for(work: int) -> int:
    """How many threads are worth waking for the work of so many additions."""
    wanted = work // _SHARED_WORK
    return 1 if wanted < 2 else min(thread_count(), wanted)


def together(run: Callable[..., T], *arguments: Iterable[Any]) -> list[T]:
    """The results of ``run`` on each tuple of arguments, by as many threads, this one among them.

    All have ended when it returns or raises.
    """
    first, *others = zip(*arguments, strict=True)
    if not others:
        return [run(*first)]
    running = [pool().submit(_beside_others, run, *one) for one in others]
    try:
        result = _beside_others(run, *first)
    finally:
        wait(running)
    return [result, *(one.result() for one in running)]


def _beside_others(run: Callable[..., T], *arguments: Any) -> T:
    _within.together = True
    try:
        return run(*arguments)
    finally:
        _within.together = False


def in_parts(run: Callable[[int, int], object], count: int, work: int) -> None:
    """``run(low, high)`` over parts of ``count`` items, each the work of so many additions.

    Not from within a thread of the pool.
    """
    threads = threads_for(count * work)
    cuts = [count * part // threads for part in range(threads + 1)]
    together(run, cuts[:-1], cuts[1:])


@cache
def pool() -> ThreadPoolExecutor:
    """The threads of this process."""
    return ThreadPoolExecutor(thread_count(), thread_name_prefix="distvec-kernel")


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
