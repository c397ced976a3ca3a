"""The thread that makes kernels while slower ones run, and how it gives way to these."""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from queue import SimpleQueue

PATIENCE_SECONDS = 0.5
"""So long in all the thread that makes kernels gives way to those that run: the first runs of a
process are not slowed down, and a loop has the fast ones early. With 2 s, six seconds of draws or
chains of 1e6 elements did without them for twice as long."""
QUIET_SECONDS = 0.1
"""It goes on when none has run for so long: where one new program was, there are often more."""
_SWITCH_SECONDS = 0.0001
"""Meanwhile it keeps the interpreter lock for no longer from a request that wants it."""
_WAIT_SECONDS = 0.0005
_TURN_SECONDS = 0.9
"""So long a kernel waits for a faster one that is being loaded, once patience has ended, and all
kernels twice as long. If loading takes longer, something is being compiled."""

_LOG = logging.getLogger(__name__)


class CompileThrottle:
    """Who runs first: kernels, as long as patience lasts, then the thread that makes faster ones.

    A kernel that calls NumPy's loops takes the interpreter lock again after each, hundreds of times
    a run, and a thread that imports numba, which takes 0.3 s, would hold it for 5 ms each time:
    12 ms became 230. Both at once take longer than one after the other.
    """

    def __init__(self, patience: float = PATIENCE_SECONDS) -> None:
        self._runs: deque[None] = deque()  # one for each: appending takes no lock
        self._patience = patience
        self._ended = -math.inf
        self._free = threading.Event()
        self._free.set()
        self._left = 2 * _TURN_SECONDS

    @contextmanager
    def taken(self) -> Iterator[None]:
        """A kernel that faster ones replace runs in the block."""
        if self._patience <= 0 and self._left > 0 and not self._free.is_set():
            began = time.perf_counter()
            self._free.wait(_TURN_SECONDS)
            self._left -= time.perf_counter() - began
        self._runs.append(None)
        try:
            yield
        finally:
            self._ended = time.perf_counter()
            self._runs.pop()

    @contextmanager
    def making(self) -> Iterator[None]:
        """Kernels are made in the block, by this process."""
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Another process makes them meanwhile, for which none waits."""
        was_free = self._free.is_set()
        self._free.set()
        try:
            yield
        finally:
            if not was_free:
                self._free.clear()

    def give(self, *_: object) -> None:
        """For ``sys.setprofile``, so called at each call and return: wait while kernels run."""
        while self._patience > 0 and (
            self._runs or time.perf_counter() - self._ended < QUIET_SECONDS
        ):
            time.sleep(_WAIT_SECONDS)
            self._patience -= _WAIT_SECONDS
        if self._patience <= 0:
            sys.setprofile(None)  # being called takes as long as the imports


_waits_for_no_compiler = True


def is_in_background() -> bool:
    """Whether a thread makes kernels while slower ones run."""
    return _waits_for_no_compiler


@contextmanager
def compiled_at_once() -> Iterator[None]:
    """Within this context kernels are compiled where they are first needed, and waited for."""
    global _waits_for_no_compiler
    before, _waits_for_no_compiler = _waits_for_no_compiler, False
    try:
        yield
    finally:
        _waits_for_no_compiler = before


def in_background(work: Callable[[], None]) -> None:
    """Have the thread that makes kernels do ``work``."""
    _queue().put(work)


@cache
def compile_throttle() -> CompileThrottle:
    """Of this process."""
    return CompileThrottle()


@cache
def _queue() -> SimpleQueue[Callable[[], None]]:
    """Work for the thread that makes kernels."""
    queue: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def work() -> None:
        sys.setprofile(compile_throttle().give)
        while True:
            task = queue.get()
            before = sys.getswitchinterval()
            sys.setswitchinterval(min(before, _SWITCH_SECONDS))
            try:
                with compile_throttle().making():
                    task()
            except Exception:  # noqa: BLE001 - the kernel that runs goes on without the next one
                _LOG.exception("a kernel could not be compiled; the slower one stays")
            finally:
                sys.setswitchinterval(before)

    threading.Thread(target=work, name="distvec-compile", daemon=True).start()
    return queue
