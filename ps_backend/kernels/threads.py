"""The threads that kernels share their blocks out to."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache


def thread_count() -> int:
    """Threads a kernel may use: ``OMP_NUM_THREADS`` where set, else the cores of the machine."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    return int(setting) if setting.isdigit() and int(setting) > 0 else os.cpu_count() or 1


@cache
def pool() -> ThreadPoolExecutor:
    """The threads of this process."""
    return ThreadPoolExecutor(thread_count(), thread_name_prefix="distvec-kernel")
