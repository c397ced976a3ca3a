"""A loop (``clocks.py``) as a client sees it: what its owner and its ranks can ask for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ps_backend.client.selection import Indices, Selection, split
from ps_backend.client.server_link import Message
from ps_backend.client.topic import Send
from ps_backend.program.spaces import Space
from ps_backend.program.types import ArrayType
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.board import LONGEST_WAIT_SECONDS
from ps_backend.wire.chunks import byte_view
from ps_backend.wire.codec import encode_array
from ps_backend.wire.errors import Crowded, TooEarly

_CROWDED_PAUSE_SECONDS = 0.05


class Target(NamedTuple):
    """An array of a loop: a buffer that ticks change in place, and that programs must not read."""

    buffer: int
    type: ArrayType


class Change(NamedTuple):
    """What is added to an array: ``values[i]`` at ``indices[i]``, or all values."""

    indices: Indices | None
    values: npt.NDArray[np.generic]


class Pulled(NamedTuple):
    """Values, and how many of the rank's own ticks those of each server contain."""

    values: np.ndarray
    own: npt.NDArray[np.int64]
    indices: Indices | None
    clock: int


class Loop:
    """The loop ``name`` on all servers. Thread-safe. Methods send one message a server."""

    def __init__(
        self, name: str, servers: int, request: Callable[[], pb.Request], send: Send
    ) -> None:
        """``request`` makes an empty one of the session with so many ``servers``."""
        self.name, self.servers = name, servers
        self._request, self._send = request, send

    # --- for the owner ----------------------------------------------------------------------------

    def open(self, ranks: int, staleness: int | None) -> None:
        """Open it, with ``ranks`` at clock 0; ``staleness`` None: no bound."""
        self._to_all(lambda body: body.open_loop, ranks=ranks, staleness=staleness)

    def clocks(self) -> list[int]:
        """How many clocks each rank has ended on all servers.

        Raises ``LoopClosed`` if a server lost the loop.
        """
        replies = self._to_all(lambda body: body.read_clocks)
        return [min(clocks) for clocks in zip(*(one.clocks.clocks for one in replies), strict=True)]

    def exclude(self, rank: int, attempt: int) -> None:
        """Let nobody wait for the rank, unless another attempt has joined; it may come back."""
        self._to_all(lambda body: body.exclude_rank, rank=rank, attempt=attempt)

    def close(self) -> None:
        """End it: whoever waits, or comes later, gets ``LoopClosed``. Idempotent."""
        self._to_all(lambda body: body.close_loop)

    # --- for a rank -------------------------------------------------------------------------------

    def join(self, rank: int, attempt: int) -> int:
        """Speak for ``rank`` from now on; returns the clock at which it goes on.

        That is the first one which not all servers have. A rank that was out for a while goes on
        with the slowest of the others; this takes two messages a server. ``attempt``: 1 or more,
        larger than that of all who spoke for the rank before. Raises ``AttemptFenced``.
        """
        replies = self._to_all(lambda body: body.join_loop, rank=rank, attempt=attempt)
        clocks = [reply.clocks.clocks[0] for reply in replies]
        if not any(reply.clocks.out for reply in replies):
            return min(clocks)
        at = max(clocks)
        self._to_all(lambda body: body.join_loop, rank=rank, attempt=attempt, at=at)
        return at

    def tick(
        self,
        rank: int,
        attempt: int,
        clock: int,
        changes: Mapping[Target, Change],
        *,
        leave: bool = False,
    ) -> None:
        """The rank ended ``clock``, with these changes; counted once. Raises ``AttemptFenced``."""
        requests = [self._request() for _ in range(self.servers)]
        parts: list[tuple[list[memoryview], list[memoryview]]] = [([], []) for _ in requests]
        for request in requests:
            body = request.tick
            body.loop, body.rank, body.attempt, body.clock = self.name, rank, attempt, clock
            body.leave = leave
        for target, change in changes.items():
            for server, selection in self._selections(target.type.space, change.indices):
                addition = requests[server].tick.additions.add(array=encode_array(*target))
                indices, values = parts[server]
                values.append(byte_view(np.ascontiguousarray(change.values[selection])))
                if change.indices is None:
                    addition.dense = True
                else:
                    chosen = change.indices[selection]
                    addition.count = len(chosen)
                    indices.append(byte_view(chosen))
        messages = {
            server: Message(request, [*indices, *values])
            for server, (request, (indices, values)) in enumerate(zip(requests, parts, strict=True))
        }
        self._send(messages, recorded=False)

    def pull(
        self,
        rank: int,
        attempt: int,
        clock: int,
        target: Target,
        indices: Indices | None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Pulled | None:
        """The elements at ``indices`` (all without) for use in ``clock``; waits as the bound says.

        None once it ``is_over``, which is asked every ten seconds. One message to each server that
        holds some, one more each ten seconds. Raises ``AttemptFenced``, ``LoopClosed``.
        """
        while not is_over():
            try:
                return self.try_pull(rank, attempt, clock, target, indices)
            except TooEarly:
                continue
            except Crowded:
                time.sleep(_CROWDED_PAUSE_SECONDS)
        return None

    def try_pull(
        self,
        rank: int,
        attempt: int,
        clock: int,
        target: Target,
        indices: Indices | None,
        seconds: float = LONGEST_WAIT_SECONDS,
    ) -> Pulled:
        """As ``pull``, but ``TooEarly`` after so many ``seconds``, or ``Crowded``."""
        shape = target.type.shape if indices is None else (len(indices), *target.type.row)
        found = np.empty(shape, target.type.dtype)
        messages: dict[int, Message] = {}
        scattered: list[tuple[Selection, np.ndarray]] = []
        for server, selection in self._selections(target.type.space, indices):
            part = found[selection]
            if messages and not len(part):
                continue  # one is asked in any case: there is something to wait for
            request = self._request()
            body = request.pull
            body.loop, body.rank, body.attempt, body.clock = self.name, rank, attempt, clock
            body.seconds = seconds
            body.array.CopyFrom(encode_array(*target))
            body.dense, payload = indices is None, []
            if indices is not None:
                body.count, payload = len(part), [byte_view(indices[selection])]
            messages[server] = Message(request, payload, byte_view(part))
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

    def _to_all(
        self, choose: Callable[[pb.Request], object], **fields: int | None
    ) -> Sequence[pb.Reply]:
        """Send the body that ``choose`` picks, with these fields, to all; replies by server."""
        messages: dict[int, Message] = {}
        for server in range(self.servers):
            request = self._request()
            body = choose(request)
            setattr(body, "loop", self.name)  # noqa: B010 - each of these bodies has one
            for name, value in fields.items():
                if value is not None:
                    setattr(body, name, value)
            messages[server] = Message(request)
        replies = self._send(messages, recorded=False)
        return [replies[server] for server in range(self.servers)]
