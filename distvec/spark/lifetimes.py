"""What ends with its last user: tasks and files of objectives, weights that lazy frames pull."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

from pyspark import SparkContext

from distvec.array.core.handle import Handle

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


_MANY = 16
"""With so many, and twice as many as at the last time, the JVM is asked which are still there."""


class HeldByPlans:
    """Arrays that tasks of lazy frames will pull, for as long as Spark has a plan that asks them.

    A frame made of a scored one is another object in Python, and so is a view; what all their plans
    share is the JVM's function object. The arrays go with it.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[Any, list[Handle]]] = {}
        self._numbers = itertools.count()
        self._many = _MANY

    def hold(self, context: SparkContext, function: Any, arrays: list[Handle]) -> None:
        """Keep ``arrays`` until the JVM has collected ``function``, its object."""
        jvm: Any = context._jvm
        self.free()
        if len(self._held) >= self._many:
            jvm.System.gc()
            self.free()
            self._many = max(_MANY, 2 * len(self._held))
        self._held[next(self._numbers)] = jvm.java.lang.ref.WeakReference(function), arrays

    def free(self) -> None:
        """Give up the arrays of plans that are gone."""
        for number, (reference, _) in list(self._held.items()):
            if reference.get() is None:
                self._held.pop(number, None)

    def __len__(self) -> int:
        return len(self._held)


class FittedModels:
    """The models of arrays that objectives have seen, while those are there; by identity.

    The last objective counts.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Handle], Callable[[Any], Any]]] = {}

    def add(self, array: Handle, make: Callable[[Any], Any]) -> None:
        """``make(parameters)`` is the model; it must not refer to ``array``."""
        number, known = id(array), self._known
        known[number] = weakref.ref(array, lambda _: known.pop(number, None)), make

    def get(self, array: Handle) -> Callable[[Any], Any] | None:
        """The function that makes a model of it; None if no objective has seen it."""
        found = self._known.get(id(array))
        return found[1] if found is not None and found[0]() is array else None
