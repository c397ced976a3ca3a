"""A loop (``clocks.py``) as a client sees it: what its owner and its ranks can ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ps_backend.client.arrays import Change, SharedArray
from ps_backend.client.mailbox import Send
from ps_backend.client.requests import Messages, Requests
from ps_backend.client.selection import Indices, Selection, split
from ps_backend.client.waiting import wait
from ps_backend.program.spaces import Space
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.chunks import byte_view
from ps_backend.wire.questions import LONGEST_WAIT_SECONDS


class Pulled(NamedTuple):
    """Values, and how many of the rank's own ticks those of each server contain."""

    values: np.ndarray
    own: npt.NDArray[np.int64]
    indices: Indices | None
    clock: int


class Loop:
    """The loop ``name`` on all servers. Thread-safe. Methods send one message a server."""

    def __init__(self, name: str, requests: Requests, send: Send) -> None:
        self.name, self.servers = name, requests.servers
        self._requests, self._send = requests, send

    # --- for the owner ----------------------------------------------------------------------------

    def open(self, ranks: int, staleness: int | None) -> None:
        """Open it, with ``ranks`` at clock 0; ``staleness`` None: no bound."""
        self._to_all("open_loop", ranks=ranks, staleness=staleness)

    def clocks(self) -> list[int]:
        """How many clocks each rank has ended on all servers.

        Raises ``LoopClosed`` if a server lost the loop.
        """
        replies = self._to_all("read_clocks")
        return [min(clocks) for clocks in zip(*(one.clocks.clocks for one in replies), strict=True)]

    def exclude(self, rank: int, attempt: int) -> None:
        """Let nobody wait for the rank, unless another attempt has joined; it may come back."""
        self._to_all("exclude_rank", rank=rank, attempt=attempt)

    def close(self) -> None:
        """End it: whoever waits, or comes later, gets ``LoopClosed``. Idempotent."""
        self._to_all("close_loop")

    # --- for a rank -------------------------------------------------------------------------------

    def join(self, rank: int, attempt: int) -> int:
        """Speak for ``rank`` from now on; returns the clock at which it goes on.

        That is the first one which not all servers have. A rank that was out for a while goes on
        with the slowest of the others; this takes two messages a server. ``attempt``: 1 or more,
        larger than that of all who spoke for the rank before. Raises ``AttemptFenced``.
        """
        replies = self._to_all("join_loop", rank=rank, attempt=attempt)
        clocks = [reply.clocks.clocks[0] for reply in replies]
        if not any(reply.clocks.out for reply in replies):
            return min(clocks)
        at = max(clocks)
        self._to_all("join_loop", rank=rank, attempt=attempt, at=at)
        return at

    def tick(
        self,
        rank: int,
        attempt: int,
        clock: int,
        changes: Mapping[SharedArray, Change],
        *,
        leave: bool = False,
    ) -> None:
        """The rank ended ``clock``, with these changes; counted once. Raises ``AttemptFenced``."""
        messages = self._requests.to_all(
            "tick", loop=self.name, rank=rank, attempt=attempt, clock=clock, leave=leave
        )
        parts: dict[int, tuple[list[memoryview], list[memoryview]]] = {
            server: ([], []) for server in messages
        }
        for target, change in changes.items():
            described = target.describe()
            shares = self._requests.shares(target.type.space, change.indices, change.values)
            for server, share in shares:
                share.describe(messages[server].request.tick.pushes.add(array=described))
                *where, values = share.payload
                parts[server][0].extend(where)
                parts[server][1].append(values)
        for server, message in messages.items():
            message.payload = [*parts[server][0], *parts[server][1]]
        self._send(messages, recorded=False)

    def pull(
        self,
        rank: int,
        attempt: int,
        clock: int,
        target: SharedArray,
        indices: Indices | None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Pulled | None:
        """The elements at ``indices`` (all without) for use in ``clock``; waits as the bound says.

        None once it ``is_over``, which is asked every ten seconds. One message to each server that
        holds some, one more each ten seconds. Raises ``AttemptFenced``, ``LoopClosed``.
        """
        return wait(
            lambda seconds: self.try_pull(rank, attempt, clock, target, indices, seconds),
            is_over=is_over,
        )

    def try_pull(
        self,
        rank: int,
        attempt: int,
        clock: int,
        target: SharedArray,
        indices: Indices | None,
        seconds: float = LONGEST_WAIT_SECONDS,
    ) -> Pulled:
        """As ``pull``, but ``TooEarly`` after so many ``seconds``, or ``Crowded``."""
        shape = target.type.shape if indices is None else (len(indices), *target.type.row)
        found = np.empty(shape, target.type.dtype)
        messages: Messages = {}
        scattered: list[tuple[Selection, np.ndarray]] = []
        for server, selection in self._selections(target.type.space, indices):
            part = found[selection]
            if messages and not len(part):
                continue  # one is asked in any case: there is something to wait for
            message = self._requests.message(
                "pull",
                loop=self.name,
                rank=rank,
                attempt=attempt,
                clock=clock,
                seconds=seconds,
                array=target.describe(),
                dense=indices is None,
                count=0 if indices is None else len(part),
            )
            if indices is not None:
                message.payload = [byte_view(indices[selection])]
            message.into = byte_view(part)
            messages[server] = message
            if not isinstance(selection, slice):
                scattered.append((selection, part))
        replies = self._send(messages, recorded=False)
        for selection, part in scattered:
            found[selection] = part
        own = np.full(self.servers, np.iinfo(np.int64).max)
        for server, reply in replies.items():
            own[server] = reply.clocks.clocks[0]
        return Pulled(found, own, indices, clock)

    def _selections(self, space: Space, indices: Indices | None) -> Iterable[tuple[int, Selection]]:
        """What each server that holds some of the space has of ``indices``, or of all."""
        if indices is not None:
            return split(indices, space, self.servers)
        ranges = ((k, space.range_of(k, self.servers)) for k in space.holders(self.servers))
        return ((k, slice(low, high)) for k, (low, high) in ranges)

    def _to_all(self, kind: str, **fields: int | None) -> Sequence[pb.Reply]:
        """Send a body of that kind with these fields to all; replies by server."""
        messages = self._requests.to_all(kind, loop=self.name, **fields)
        replies = self._send(messages, recorded=False)
        return [replies[server] for server in range(self.servers)]
