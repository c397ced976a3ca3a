"""Threads that change one array: each in its turn, and nobody reads memory that is written over.

An array is a handle; to change it is to let it stand for another value. A thread that does so has
the array's ``turn`` from reading the old value to noting the new one. Readers need no turn: they
hold the old value, and what is held is not written over.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from distvec.array.handle import Handle
from distvec.graph.expr import Buffer
from distvec.runtime.donation import references


@contextmanager
def turns_of(arrays: Iterable[Handle]) -> Iterator[None]:
    """The turns of several arrays, always taken in the same order."""
    with ExitStack() as held:
        for array in sorted(arrays, key=id):
            held.enter_context(array.turn)
        yield


@contextmanager
def moving(x: Handle) -> Iterator[tuple[Buffer, bool]]:
    """The buffer of a vector that has its value, and whether nobody else holds it.

    If so its memory may be given away within the block, which ends with ``x.become``. Other threads
    that want the array wait so long; those that hold its old value keep it. Only in ``x.turn``.
    """
    lock = threading.Lock()
    with lock:
        x._moving = lock
        try:
            alone = references([x._node], 0) == 1 == references([x._node.value], 0)
            yield x._node.value, alone
        finally:
            x._moving = None
