"""The threads that kernels share their blocks out to, and the pauses in which others go first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import Any, TypeVar

Pause = Callable[[], None]
"""What a kernel calls between two pieces of its work. It may raise; then nobody needs the rest."""


def no_pause() -> None:
    """For a kernel that may run to its end."""


T = TypeVar("T")

_SHARED_WORK = 1 << 21
"""Additions for each thread from which work is shared out, half a millisecond: waking another
thread, and taking turns with it for the interpreter lock, takes some 150 us."""


def thread_count() -> int:
    """Threads a kernel may use: ``OMP_NUM_THREADS`` where set, else the cores of the machine."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    return int(setting) if setting.isdigit() and int(setting) > 0 else _cores()


@cache
def _cores() -> int:
    return os.cpu_count() or 1  # it asks the system, which takes as long as a small kernel


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
    running = [pool().submit(run, *one) for one in others]
    try:
        result = run(*first)
    finally:
        wait(running)
    return [result, *(one.result() for one in running)]


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
