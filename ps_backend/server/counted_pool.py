"""The threads of a server, with a count of the calls that wait for one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class CountedPool(ThreadPoolExecutor):
    """Knows how many calls it has. Thread-safe."""

    def __init__(self, threads: int, name: str) -> None:
        """``name``: of its threads."""
        super().__init__(threads, thread_name_prefix=name)
        self._most_threads, self._calls = threads, 0
        self._counting = threading.Lock()

    @property
    def queued(self) -> int:
        """How many calls there are beyond the threads; less than 0 if some threads are idle."""
        return self._calls - self._most_threads

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As that of executors."""
        self._count(1)
        try:
            future = super().submit(fn, *args, **kwargs)
        except RuntimeError:  # it was shut down
            self._count(-1)
            raise
        future.add_done_callback(lambda _: self._count(-1))
        return future

    def _count(self, more: int) -> None:
        with self._counting:
            self._calls += more
