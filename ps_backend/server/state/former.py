"""Which buffers a server had that was lost, as the one in its place must say of them."""

from __future__ import annotations

from collections.abc import Iterable

from ps_backend.wire.protocol import COUNTER_BITS


class FormerBuffers:
    """The ids of buffers that were made before a server took the place of a lost one.

    Ids begin with the number of the client that made them, and each client counts up. A client that
    was there before says how far it had counted; what it makes from then on was never lost. One
    that says nothing has lost all that it had made. What is made here was not lost either: what a
    client was about to make, or what is brought back under its old id.
    """

    def __init__(self) -> None:
        self._newest: dict[int, int] = {}
        self._made: set[int] = set()

    def note(self, newest: int) -> None:
        """A client has come back, whose newest buffer has that id; 0: it never had one."""
        if newest:
            self._newest.setdefault(newest >> COUNTER_BITS, newest)

    def made(self, buffers: Iterable[int]) -> None:
        """They are made here now."""
        self._made.update(buffer for buffer in buffers if buffer in self)

    def __contains__(self, buffer: int) -> bool:
        newest = self._newest.get(buffer >> COUNTER_BITS)
        return (newest is None or buffer <= newest) and buffer not in self._made
