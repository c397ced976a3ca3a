"""Work that goes on while its caller does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def in_background(work: Callable[[], Result]) -> Future[Result]:
    """What ``work`` returns, or raises, in a thread of its own, which does not keep Python alive.

    (Those of an executor would, and would outlive the session that they work for.)
    """
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised by who asks for the result
            future.set_exception(error)

    threading.Thread(target=run, name="distvec-prefetch", daemon=True).start()
    return future
