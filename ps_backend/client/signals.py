"""Signals while a request, or a change that a request is part of, is under way.

Python calls a handler between any two steps of the main thread. One that uses the session must not
find an array half changed, or wait for a request that waits for it: so handlers wait.
"""

from __future__ import annotations

import threading
from _signal import default_int_handler, getsignal, signal  # type: ignore[import-not-found]
from collections.abc import Callable
from contextvars import ContextVar
from signal import SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2
from types import FrameType
from typing import Any, Self

from ps_backend.errors import ProgramCancelled

# Those of the module ``signal`` take 5 us each, to make enums.


_BREAKS_OFF = 3
"""So many presses break a block off."""

_HELD_BACK = tuple(map(int, (SIGINT, SIGTERM, SIGALRM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2)))
"""What programs handle themselves; a profiler's clock goes on."""

_LOOK_SECONDS = 0.05

_outermost: ContextVar[defer_signals | None] = ContextVar("ps_backend.client.signals", default=None)

Handler = Callable[[int, FrameType | None], Any]


class defer_signals:
    """Hold handlers of signals back until the block is done; a third Ctrl-C passes immediately.

    What takes long in it says how Ctrl-C can end it: see ``cancel_on_ctrl_c``. As in the system, a
    signal that comes several times meanwhile is handled once.

    Put it around all that must happen together: what a server does, and the note of it here. Inside
    another such block it does nothing: the outermost one decides when the signals pass.

    A KeyboardInterrupt in the middle of gRPC's own code can leave a lock of its channel taken for
    good, and the next request would wait for ever: a stress run of double presses met it, so it
    takes three. Only the main thread handles signals, so the others pass through; so do signals
    that are handled other than in Python.
    """

    _handlers: dict[int, Handler] | None = None
    """What handles each signal outside of the block, if this one is the outermost."""
    _end: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        if _outermost.get() or threading.current_thread() is not threading.main_thread():
            return self
        handlers: dict[int, Handler] = {}
        for number in _HELD_BACK:
            handler = getsignal(number)
            if callable(handler):
                handlers[number] = handler
        if not handlers:
            return self
        self._held: dict[int, FrameType | None] = {}
        self._presses = 0
        try:
            self._handlers = handlers
            for number in handlers:
                signal(number, self._hold)
            _outermost.set(self)
        except BaseException:  # by the handler of one that was not held back yet
            self._end_holding([*handlers.items()], handlers)
            raise
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        handlers = self._handlers
        if handlers is None:
            return
        _outermost.set(None)
        try:
            self._end_holding([*handlers.items()], handlers)
        except KeyboardInterrupt as pressed:
            if isinstance(error, ProgramCancelled):  # by the press: nothing of its own to tell
                raise pressed from None
            raise

    def check(self) -> None:
        """Let a Ctrl-C that is held pass now, if this block is the outermost one.

        For the places of a long block where everything that was done is noted. Only one that ends
        the block: a handler that returns might have changed what the rest of it builds upon.
        """
        handlers = self._handlers
        if handlers and handlers.get(SIGINT) is default_int_handler and SIGINT in self._held:
            handlers[SIGINT](SIGINT, self._held.pop(SIGINT))

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._held.setdefault(number, frame)
        if number != SIGINT:
            return
        self._presses += 1
        if self._end is not None:
            self._end()
        if self._presses >= _BREAKS_OFF and self._handlers is not None:
            self._handlers[number](number, frame)

    def _end_holding(self, left: list[tuple[int, Handler]], handlers: dict[int, Handler]) -> None:
        """Put back the handlers that are ``left``, and call those of signals that came."""
        self._handlers = None
        try:
            while left:
                signal(*left[-1])
                left.pop()
            while self._held:
                number = next(iter(self._held))
                handlers[number](number, self._held.pop(number))
        finally:  # also if one has raised
            if left or self._held:
                self._end_holding(left, handlers)


class hold_lock(defer_signals):
    """Hold a lock, and handlers back, until the block is done; not while another thread has it.

    A handler runs when the lock is free again, so it may wait for other threads that need it.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock

    def __enter__(self) -> Self:
        while True:
            super().__enter__()
            try:
                if self._lock.acquire(False) or self._lock.acquire(timeout=_LOOK_SECONDS):
                    return self
            except BaseException as error:
                super().__exit__(type(error), error, None)
                raise
            super().__exit__(None, None, None)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._lock.release()
        super().__exit__(kind, error, trace)


def hold_lock_if_handled(lock: threading.RLock) -> hold_lock | threading.RLock:
    """``hold_lock(lock)`` where the program has handlers of its own, else ``lock``, which takes
    less: for what Ctrl-C may end at any step, but what no handler may see half done."""
    for number in _HELD_BACK:
        handler = getsignal(number)
        if handler is not default_int_handler and callable(handler):
            return hold_lock(lock)
    return lock


class cancel_on_ctrl_c:
    """Call ``end`` when Ctrl-C is pressed in this block, which is part of an ``defer_signals`` one.

    Also if one is held already. ``end`` is called by the signal's handler: it must neither wait nor
    raise, and use no lock that the block may hold.
    """

    __slots__ = ("_before", "_end", "_outermost")

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end

    def __enter__(self) -> None:
        self._outermost = outermost = _outermost.get()
        if outermost is not None:
            self._before, outermost._end = outermost._end, self._end
            if outermost._presses:
                self._end()

    def __exit__(self, *_: object) -> None:
        if self._outermost is not None:
            self._outermost._end = self._before
