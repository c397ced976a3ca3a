"""What a server answered lately, so that a repeated request is not run again."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ps_backend.errors import StaleRequest
from ps_backend.server.state.memory import Memory, Reservation
from ps_backend.wire import ps_pb2 as pb

WINDOW = 256
"""Replies kept per client, if it never says which of them it has."""
_LEAST_WINDOW = 16
"""The same where memory is short."""
_REPLY_BYTES = 512
"""Counted for a reply besides its message."""
_FEW = 2
"""Small replies that every client has: they are counted with the client."""


class ReplyLog:
    """The replies to one client's latest state-changing requests, by number. Thread-safe."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._changed = threading.Condition()
        self._replies: dict[int, pb.Reply | None] = {}  # None: being run
        self._kept: dict[int, Reservation] = {}
        self._forgotten = 0  # nothing up to this number is run any more
        self.cancelled = 0
        """Programs up to this number are to end."""

    def __len__(self) -> int:
        return len(self._replies)

    def once(
        self, sequence: int, settled: int, run: Callable[[], tuple[pb.Reply, bool]]
    ) -> pb.Reply:
        """The reply to ``sequence``: from the record, else of ``run()``, which says if to keep it.

        A repeat of a request that is still running waits for it. ``settled``: the client has the
        replies to all smaller numbers. Raises ``StaleRequest`` for a number no longer on record.
        """
        with self._changed:
            self._forget_before(settled)
            while sequence in self._replies:
                reply = self._replies[sequence]
                if reply is not None:
                    return reply
                self._changed.wait()
            if sequence <= self._forgotten:
                raise StaleRequest(
                    f"request {sequence} was repeated after its reply had expired; read the "
                    "array before you repeat the operation"
                )
            self._replies[sequence] = None
        return self._run(sequence, run)

    def _run(self, sequence: int, run: Callable[[], tuple[pb.Reply, bool]]) -> pb.Reply:
        reply, keep = None, False
        try:
            reply, keep = run()
            return reply
        finally:
            with self._changed:
                if keep and reply is not None:
                    self._replies[sequence] = reply
                    size = reply.ByteSize()
                    if size > _REPLY_BYTES or len(self._replies) > _FEW:
                        size += _REPLY_BYTES
                        self._kept[sequence] = self._memory.reserve(size, "a reply", force=True)
                    self._limit()
                else:
                    del self._replies[sequence]
                self._changed.notify_all()

    def _forget_before(self, settled: int) -> None:
        self._drop([number for number in self._replies if number < settled])
        self._forgotten = max(self._forgotten, settled - 1)

    def _limit(self) -> None:
        if len(self._replies) <= _LEAST_WINDOW:
            return
        over = self._memory.used > self._memory.budget
        excess = len(self._replies) - (_LEAST_WINDOW if over else WINDOW)
        if excess > 0:
            done = [number for number, reply in self._replies.items() if reply is not None]
            self._drop(sorted(done)[:excess])

    def _drop(self, numbers: list[int]) -> None:
        for number in numbers:
            if self._replies[number] is not None:
                del self._replies[number]
                self._kept.pop(number, None)
                self._forgotten = max(self._forgotten, number)
