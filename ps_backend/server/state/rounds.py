"""Rounds: many senders contribute to some arrays, and each contribution counts exactly once.

A sender stages its contributions under (round, partition, attempt), to one array of the round or to
several, each in a *slot* of its own. The owner of the round commits the attempts that won, in an
order that it states, so the result does not depend on who came first. Contributions of other
attempts never count.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from ps_backend.errors import PSError, RoundClosed
from ps_backend.program.types import ArrayType
from ps_backend.server.state.memory import Memory, MemoryBlock, Reservation
from ps_backend.server.state.store import Rows
from ps_backend.wire.protocol import Key, Winner

_MOST_CLOSED = 65536
_CLOSED_BYTES = 256
"""Counted for a round that is over, besides its name."""
_MOST_NAMED = 5


class RowChange(Protocol):
    """What waits to be done with the rows of keys: see ``state/keyed/row_run.py``."""

    @property
    def block(self) -> MemoryBlock:
        """The memory that it is in."""


class Prepared(Protocol):
    """Changes of rows, for whose keys there is room."""

    def apply(self) -> None:
        """Make them."""


Staged: TypeAlias = Rows | RowChange


@dataclass(slots=True)
class _Round:
    contributions: dict[Key, Staged] = field(default_factory=dict)


class Rounds:
    """The rounds of one session on one server. Thread-safe."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._open: dict[str, _Round] = {}
        self._closed: dict[str, Reservation] = {}  # in order of closing
        self._undo: tuple[str, _Round] | None = None
        self._prepared: dict[str, Prepared] = {}
        self._lock = threading.Lock()

    def stage(self, name: str, key: Key, contribution: Staged) -> None:
        """Keep a contribution under ``key``, instead of an earlier one.

        Raises ``RoundClosed`` after the round was committed or dropped.
        """
        with self._lock:
            self._refuse_closed(name, f"the contribution of partition {key[0]}, attempt {key[1]},")
            self._open.setdefault(name, _Round()).contributions[key] = contribution

    def winners(
        self, name: str, slot: int, winners: Sequence[Winner], target: ArrayType
    ) -> list[Rows]:
        """The contributions of ``winners`` to ``slot``, in order.

        Raises as ``staged``, and ``ValueError`` for one of another space or row than ``target``.
        """
        found = []
        for one in self.staged(name, slot, winners):
            if not isinstance(one, Rows):
                raise ValueError(f"slot {slot} of round {name!r} has rows of keys, not of {target}")
            one.check_fits(target)
            found.append(one)
        return found

    def staged(self, name: str, slot: int, winners: Sequence[Winner]) -> list[Staged]:
        """The contributions of ``winners`` to ``slot``, in order.

        Raises ``PSError`` if one is missing, ``ValueError`` if an attempt is named twice,
        ``RoundClosed`` if the round is over.
        """
        if len({winner[:2] for winner in winners}) != len(winners):
            raise ValueError(f"round {name!r}: each attempt can win once, got {list(winners[:9])}")
        with self._lock:
            self._refuse_closed(name, "the commit")
            staged = self._open.get(name, _Round()).contributions
            found: list[Staged] = []
            missing: list[tuple[int, int]] = []
            for winner in winners:
                for key in winner.keys(slot):  # lazily: what is announced may be any number
                    if key not in staged:
                        missing.append(key[:2])
                        break
                    found.append(staged[key])
                if len(missing) == _MOST_NAMED:
                    break
            if missing:
                raise PSError(
                    f"round {name!r} cannot be committed: this server has no updates of "
                    f"(partition, attempt) {', '.join(map(str, missing))}; no data were changed"
                )
        return found

    def keep_prepared(self, name: str, prepared: Prepared) -> None:
        """Keep what the winners staged and is ready to be done, until ``take_prepared``."""
        with self._lock:
            self._prepared[name] = prepared

    def take_prepared(self, name: str) -> Prepared:
        """What was prepared; the round is over. ``PSError`` if there is nothing."""
        with self._lock:
            found = self._prepared.pop(name, None)
            if found is None:
                raise PSError(f"round {name!r}: no commit was prepared on this server")
            self._open.pop(name, None)
            if name not in self._closed:
                self._remember(name)
            return found

    def close(self, name: str, *, undo: bool) -> int:
        """End the round; with ``undo``, until ``settle``, ``reopen`` can take this back.

        Returns the bytes of contributions that are kept for that.
        """
        with self._lock:
            self._refuse_closed(name, "the commit")
            ended = self._open.pop(name, _Round())
            self._undo = (name, ended) if undo else None
            self._remember(name)
            return sum(one.block.bytes.size for one in ended.contributions.values()) * undo

    def reopen(self, name: str) -> None:
        """Take back the last ``close``, as far as its contributions are still here."""
        with self._lock:
            if self._undo is not None and self._undo[0] == name:
                self._closed.pop(name, None)
                self._open[name] = self._undo[1]
                self._undo = None

    def settle(self) -> None:
        """The last ``close`` stands: its contributions are dropped."""
        if self._undo is not None:
            with self._lock:
                self._undo = None

    def drop(self, name: str) -> None:
        """End the round without a result; what comes later for it is refused."""
        with self._lock:
            self._open.pop(name, None)
            self._prepared.pop(name, None)
            self._remember(name)

    def _refuse_closed(self, name: str, what: str) -> None:
        if name in self._closed:
            raise RoundClosed(f"{what} is too late: round {name!r} was committed or dropped")

    def _remember(self, name: str) -> None:
        size = _CLOSED_BYTES + len(name)
        self._closed[name] = self._memory.reserve(size, "the names of rounds", force=True)
        if len(self._closed) > _MOST_CLOSED:
            del self._closed[next(iter(self._closed))]

    def clear(self) -> None:
        """Drop everything, closed rounds included."""
        with self._lock:
            self._open.clear()
            self._closed.clear()
            self._prepared.clear()
            self._undo = None
