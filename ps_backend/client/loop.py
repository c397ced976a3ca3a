"""A loop as a client sees it: its owner, and its ranks that pull, push and end their clocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ps_backend.client.barriers import Barrier, long_poll
from ps_backend.client.requests import Change, Indices, SharedArray, empty_rows, split
from ps_backend.program.spaces import Space
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import LONGEST_WAIT_SECONDS


class Pulled(NamedTuple):
    """Values, and how many of the rank's own ticks those of each server contain."""

    values: np.ndarray
    own: npt.NDArray[np.int64]
    indices: Indices | None
    clock: int


class Loop(Barrier):
    """The loop ``name`` on all servers. Thread-safe. Methods send one message a server."""

    _kind = "loop"

    # --- for the owner ----------------------------------------------------------------------------

    def open(self, ranks: int, staleness: int | None) -> None:
        """Open it, with ``ranks`` at clock 0; ``staleness`` None: no bound."""
        self._join(ranks=ranks, staleness=staleness)

    def clocks(self) -> list[int]:
        """How many clocks each rank has ended on all servers.

        Raises ``LoopClosed`` if a server lost the loop.
        """
        replies = self._join()
        return [min(clocks) for clocks in zip(*(one.clocks.clocks for one in replies), strict=True)]

    def exclude(self, rank: int, attempt: int) -> None:
        """Let nobody wait for the rank, unless another attempt has joined; it may come back."""
        self._join(member=rank, attempt=attempt, exclude=True)

    # --- for a rank -------------------------------------------------------------------------------

    def join(self, rank: int, attempt: int) -> int:
        """Speak for ``rank`` from now on; returns the clock at which it goes on.

        That is the first one which not all servers have. A rank that was out for a while goes on
        with the slowest of the others; this takes two messages a server. ``attempt``: 1 or more,
        larger than that of all who spoke for the rank before. Raises ``AttemptFenced``.
        """
        replies = self._join(member=rank, attempt=attempt)
        clocks = [reply.clocks.clocks[0] for reply in replies]
        if not any(reply.clocks.out for reply in replies):
            return min(clocks)
        at = max(clocks)
        self._join(member=rank, attempt=attempt, at=at)
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
        messages = self._to_all("contribute", member=rank, attempt=attempt, turn=clock, leave=leave)
        parts: dict[int, tuple[list[memoryview], list[memoryview]]] = {
            server: ([], []) for server in messages
        }
        for target, change in changes.items():
            shares = self._requests.filled(*target, change.indices, change.values)
            for server, share in shares:
                share.describe(messages[server].request.contribute.rows.add())
                *where, values = share.payload
                parts[server][0].extend(where)
                parts[server][1].append(values)
        for server, message in messages.items():
            message.payload = [*parts[server][0], *parts[server][1]]
        self._send(messages, recorded=True)

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
        return long_poll(
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
        found = empty_rows(target.type, indices)
        messages, scattered = self._requests.read(
            target.number,
            target.type,
            indices,
            found,
            "wait",
            least=1,  # there is something to wait for in any case
            barrier=self._called,
            member=rank,
            attempt=attempt,
            turn=clock,
            seconds=seconds,
        )
        replies = self._send(messages, recorded=False)
        for selection, part in scattered:
            found[selection] = part
        own = np.full(self.servers, np.iinfo(np.int64).max)
        for server, reply in replies.items():
            own[server] = reply.clocks.clocks[0]
        return Pulled(found, own, indices, clock)

    def _join(self, **fields: int | None) -> list[pb.Reply]:
        """Send what concerns who takes part; replies by server."""
        replies = self._send(self._to_all("join", **fields), recorded=False)
        return [replies[server] for server in range(self.servers)]


class LoopRank:
    """A rank of ``loop``. Pushes are merged here, and leave at the end of the clock.

    One thread works with it; ``ask`` may be called in others.
    """

    def __init__(self, loop: Loop, rank: int, attempt: int) -> None:
        """Join the loop. Raises ``AttemptFenced``, ``LoopClosed``; see ``Loop.join`` for cost."""
        self.rank = rank
        self.now = loop.join(rank, attempt)
        """How many clocks the rank has ended, which is the number of the one it is in."""
        self._loop, self.attempt = loop, attempt
        self._pending: dict[SharedArray, list[Change]] = {}
        self._ticked: dict[SharedArray, Change] = {}  # in the clock before

    def pull(self, target: SharedArray, indices: Indices | None = None) -> np.ndarray:
        """The elements at ``indices`` (shape ``(k,)``, any order), or all, as of now.

        They lack no tick that the bound promises, and no push of this rank. Waits for the others.
        One message to each server that holds some.
        """
        pulled = self.ask(target, indices, self.now)
        if pulled is None:
            raise RuntimeError(
                f"the pull of clock {self.now} was cancelled although the loop continues"
            )
        return self.receive(target, pulled)

    def ask(
        self,
        target: SharedArray,
        indices: Indices | None,
        clock: int,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Pulled | None:
        """Pull for use in ``clock``, now or the next one; None if it ``is_over`` meanwhile."""
        return self._loop.pull(self.rank, self.attempt, clock, target, indices, is_over)

    def receive(self, target: SharedArray, pulled: Pulled) -> np.ndarray:
        """The values that ``ask`` got, with this rank's pushes that came too late for them."""
        if target in self._ticked:
            _add_missing(pulled, target.type.space, self._ticked[target], self.now - 1)
        if self._pending.get(target):
            _add_missing(pulled, target.type.space, self._merged(target), self.now)
        return pulled.values

    def push(
        self, target: SharedArray, indices: Indices | None, values: npt.NDArray[np.generic]
    ) -> None:
        """Add ``values`` at ``indices`` (all without), repeated ones each. No message yet.

        ``values`` are copied: the caller may compute the next ones in the same memory.
        """
        self._pending.setdefault(target, []).append(Change(indices, values.copy()))

    def tick(self) -> None:
        """End the clock: send what was pushed in it. One message a server."""
        self._end(leave=False)

    def leave(self) -> None:
        """End the clock and leave the loop: nobody waits for this rank any more."""
        self._end(leave=True)

    def _end(self, *, leave: bool) -> None:
        changes = {target: self._merged(target) for target in self._pending}
        self._loop.tick(self.rank, self.attempt, self.now, changes, leave=leave)
        self._pending, self._ticked = {}, changes
        self.now += 1

    def _merged(self, target: SharedArray) -> Change:
        changes = self._pending[target]
        if len(changes) > 1 or not _is_merged(changes[0]):
            self._pending[target] = changes = [merged(changes, target)]
        return changes[0]


def merged(changes: list[Change], target: SharedArray) -> Change:
    """One change for all: distinct indices in order, repeated ones summed in the order given."""
    if any(change.indices is None for change in changes):
        total = np.zeros(target.type.shape, target.type.dtype)
        for indices, values in changes:
            if indices is None:
                total += values
            else:
                np.add.at(total, indices, values)
        return Change(None, total)
    distinct, places = np.unique(
        np.concatenate([change.indices for change in changes if change.indices is not None]),
        return_inverse=True,
    )
    sums = np.zeros((len(distinct), *target.type.row), target.type.dtype)
    np.add.at(sums, places, np.concatenate([change.values for change in changes]))
    return Change(distinct, sums)


def _is_merged(change: Change) -> bool:
    indices = change.indices
    return indices is None or bool(np.all(indices[1:] > indices[:-1]))


def _add_missing(pulled: Pulled, space: Space, change: Change, clock: int) -> None:
    """Add ``change``, which the rank made in ``clock``, where a server had not got it yet."""
    if (pulled.own > clock).all():
        return
    wanted = np.arange(space.length) if pulled.indices is None else pulled.indices
    here = np.zeros(len(wanted), np.bool_)
    for server, selection in split(wanted, space, len(pulled.own)):
        here[selection] = pulled.own[server] <= clock
    if change.indices is None:
        pulled.values[here] += change.values[wanted[here]]
    elif len(change.indices):
        place = np.searchsorted(change.indices, wanted).clip(max=len(change.indices) - 1)
        here &= change.indices[place] == wanted
        pulled.values[here] += change.values[place[here]]
