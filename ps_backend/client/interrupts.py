"""Ctrl-C while a request, or a change that a request is part of, is under way."""

from __future__ import annotations

import threading

# Those of the module ``signal`` take 5 us each, to make enums.
from _signal import getsignal, signal  # type: ignore[import-not-found]
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from signal import SIGINT
from types import FrameType
from typing import Any, Self

from ps_backend.errors import ProgramCancelled

_BREAKS_OFF = 3
"""So many presses break a block off."""

_outermost: ContextVar[uninterrupted | None] = ContextVar(
    "ps_backend.client.interrupts", default=None
)


class uninterrupted:
    """Hold Ctrl-C back until the block is done; a third one passes at once.

    What takes long in it says how it can be ended: see ``ended_by_ctrl_c``.

    Put it around all that must happen together: what a server does, and the note of it here. Inside
    another such block it does nothing: the outermost one decides when the Ctrl-C passes.

    A KeyboardInterrupt in the middle of gRPC's own code can leave a lock of its channel taken for
    good, and the next request would wait for ever: a stress run of double presses met it, so it
    takes three. Only the main thread gets signals, so the others pass through; so does a program
    that handles SIGINT other than in Python.
    """

    _previous: Callable[[int, FrameType | None], Any] | None = None
    """What handles the signal outside of the block, if this one is the outermost."""
    _end: Callable[[], None] | None = None
    _held: Sequence[FrameType | None] = ()

    def __enter__(self) -> Self:
        if _outermost.get() or threading.current_thread() is not threading.main_thread():
            return self
        previous = getsignal(SIGINT)
        if callable(previous):
            self._previous = previous
            signal(SIGINT, self._hold)
            _outermost.set(self)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        previous = self._previous
        if previous is None:
            return
        _outermost.set(None)
        signal(SIGINT, previous)
        try:
            self.check()
        except KeyboardInterrupt as pressed:
            if isinstance(error, ProgramCancelled):  # by the press: nothing of its own to tell
                raise pressed from None
            raise

    def check(self) -> None:
        """Let a Ctrl-C that is held pass now, if this block is the outermost one.

        For the places of a long block where everything that was done is noted.
        """
        if self._held and self._previous is not None:
            frame = self._held[0]
            self._held = ()
            self._previous(SIGINT, frame)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._held = (*self._held, frame)
        if self._end is not None:
            self._end()
        if len(self._held) >= _BREAKS_OFF and self._previous is not None:
            self._previous(number, frame)


class ended_by_ctrl_c:
    """Call ``end`` when Ctrl-C is pressed in this block, which is part of an ``uninterrupted`` one.

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
            if outermost._held:
                self._end()

    def __exit__(self, *_: object) -> None:
        if self._outermost is not None:
            self._outermost._end = self._before
