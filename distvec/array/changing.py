"""Threads that change one array: each in its turn.

An array is a handle; to change it is to let it stand for another value. A thread that does so has
the array's ``turn`` from reading the old value to noting the new one. Readers need no turn: they
hold the old value by an array of their own, and what is held is not written over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from distvec.array.handle import Handle


@contextmanager
def turns_of(arrays: Iterable[Handle]) -> Iterator[None]:
    """The turns of several arrays, always taken in the same order."""
    with ExitStack() as held:
        for array in sorted(arrays, key=id):
            held.enter_context(array.turn)
        yield
