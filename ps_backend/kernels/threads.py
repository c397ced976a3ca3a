"""The threads that kernels share their blocks out to."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import TracebackType

from threadpoolctl import ThreadpoolController


def thread_count() -> int:
    """Threads a kernel may use: ``OMP_NUM_THREADS`` where set, else the cores of the machine."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    return int(setting) if setting.isdigit() and int(setting) > 0 else os.cpu_count() or 1


@cache
def pool() -> ThreadPoolExecutor:
    """The threads of this process."""
    return ThreadPoolExecutor(thread_count(), thread_name_prefix="distvec-kernel")


class SerialBlas:
    """While somebody is inside, BLAS starts no threads: blocks are shared out to threads already.

    Its setting is one of the process, so the last one to leave restores what the first one found.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._blas = ThreadpoolController().select(user_api="blas")

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._limited = self._blas.limit(limits=1)
            self._inside += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._limited.restore_original_limits()


@cache
def serial_blas() -> SerialBlas:
    """That of this process."""
    return SerialBlas()
