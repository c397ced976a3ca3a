"""BLAS on one thread: where threads share the work out already, and where bits must not depend on
how many there are.
"""

from __future__ import annotations

import threading
from functools import cache
from types import TracebackType

from threadpoolctl import ThreadpoolController


class SerialBlas:
    """While somebody is inside, BLAS starts no threads.

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
