"""Ending what nobody holds any more, as when the cell of a notebook runs again."""

from __future__ import annotations

import logging
import queue
import threading
import weakref
from collections.abc import Callable

Action = Callable[[], object]

_LOG = logging.getLogger(__name__)


class Hold:
    """Something in use: when the last reference to this object goes, its action runs."""


class FinalizerQueue:
    """A thread for actions that finalizers may not take: calls of Spark and of servers.

    A finalizer may run in the midst of another such call, so it only puts the action on a queue.
    """

    def __init__(self) -> None:
        self._actions: queue.SimpleQueue[Action | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="distvec-spark-finalizers", daemon=True).start()

    def hold(self, action: Action) -> Hold:
        """An object whose end is the sign for ``action``, which must not refer to it."""
        hold = Hold()
        weakref.finalize(hold, self._actions.put, action).atexit = False
        return hold

    def close(self) -> None:
        """End the thread, after what is on the queue; returns at once."""
        self._actions.put(None)

    def _run(self) -> None:
        while (action := self._actions.get()) is not None:
            try:
                action()
            except Exception:  # noqa: BLE001 - Spark or a server is ending, and its things with it
                _LOG.debug("what was forgotten could not be ended", exc_info=True)
            del action  # or it would live until the next one comes
