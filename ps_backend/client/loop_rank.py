"""One rank of a loop: it pulls and pushes, ends its clocks, and always sees its own pushes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ps_backend.client.arrays import Change, SharedArray
from ps_backend.client.loop import Loop, Pulled
from ps_backend.client.selection import Indices, split
from ps_backend.program.spaces import Space


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
            raise RuntimeError("a pull that nobody ends came to nothing")
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
