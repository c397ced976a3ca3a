"""Weights in a context: those that lazy frames will pull, and the models that they are of."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

from pyspark import SparkContext

from distvec.array.handle import Handle

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


class Fitted:
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
