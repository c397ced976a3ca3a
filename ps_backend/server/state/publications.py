"""The arrays of a session that have names, by which another driver finds them."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from ps_backend.errors import SessionFenced
from ps_backend.wire import ps_pb2 as pb


class Publications:
    """The lists of names that this server knows: the one that all servers have, and a newer one.

    A list has a number, and is published to all servers at once. Should its driver die meanwhile,
    some have the newest list and others the one before: the one that all of them have counts, so it
    is kept until the driver says that the next one has come everywhere. Thread-safe.
    """

    def __init__(self) -> None:
        self._lists: dict[int, pb.Publication] = {}
        self._over = False
        self._lock = threading.Lock()

    def publish(self, given: pb.Publication, settled: int) -> None:
        """Keep ``given``, and of all others only number ``settled``, which all servers have.

        Raises ``SessionFenced`` if another driver has taken them over.
        """
        with self._lock:
            if self._over:
                raise SessionFenced("another driver has taken over the session")
            before = self._lists.get(settled)
            self._lists = {given.number: given}
            if before is not None:
                self._lists[settled] = before

    def hand_over(self) -> Publications:
        """The same for another driver; here nothing is published any more."""
        heirs = Publications()
        with self._lock:
            self._over = True
            heirs._lists = dict(self._lists)
        return heirs

    def all(self) -> list[pb.Publication]:
        """Each list."""
        with self._lock:
            return list(self._lists.values())

    @property
    def buffers(self) -> Iterable[int]:
        """The ids of what has a name in one of the lists."""
        return {array.buffer for one in self.all() for array in one.arrays}
