"""Ctrl-C while a request is under way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold a first Ctrl-C back until the block is done; a second one passes at once.

    A KeyboardInterrupt in the middle of gRPC's own code can leave a lock of its channel taken for
    good, and the next request would wait for ever. Only the main thread gets signals, so the
    others pass through; so does a program that handles SIGINT other than in Python.
    """
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return
    held: list[FrameType | None] = []

    def hold(number: int, frame: FrameType | None) -> None:
        held.append(frame)
        if len(held) > 1:
            previous(number, frame)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if held:
        previous(signal.SIGINT, held[0])
