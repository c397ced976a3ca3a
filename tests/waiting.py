"""How tests wait: for a condition, with a bound that says only that it never comes.

A busy machine makes everything slower, some things by seconds. A bound that a busy machine can
reach makes the test's verdict depend on its neighbours. So there are two lengths of time: one for
what must come, and one for what must not be waited for. Both are far from what any machine takes.
"""

from __future__ import annotations

import faulthandler
import os
import select
import sys
import threading
import time
from collections.abc import Callable

PATIENCE = 120.0
"""Seconds for what must come: more than any machine takes, less than pytest lets a test take."""

FOR_EVER = 3600.0
"""Seconds that no test may wait: pytest ends one that does, and shows where each thread was."""


def wait_for(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Until it holds. A failure shows where each thread is."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            faulthandler.dump_traceback(sys.__stderr__, all_threads=True)
            raise AssertionError(f"waited {seconds:g} s for a condition that does not hold")
        threading.Event().wait(0.005)


def join_all(*threads: threading.Thread) -> None:
    """Wait for threads to end."""
    for thread in threads:
        thread.join(PATIENCE)
        if thread.is_alive():
            faulthandler.dump_traceback(sys.__stderr__, all_threads=True)
            raise AssertionError(f"{thread.name} has not ended after {PATIENCE:g} s")


def has_ended(pid: int, seconds: float = PATIENCE) -> bool:
    """Does the process end within so many seconds? It need not be a child."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)
