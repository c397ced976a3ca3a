"""Rounds: many senders add to one array, and each contribution counts exactly once.

A sender stages its contribution under (round, partition, attempt). The owner of the round commits
the attempts that won; they are added in the order of their partitions, so the sum does not depend
on who came first. Contributions of other attempts never count.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ps_backend.errors import PSError, RoundClosed
from ps_backend.memory import Block

_MOST_CLOSED = 65536


@dataclass(frozen=True, slots=True)
class Contribution:
    """Rows to add at local indices: ``values[i]`` at ``indices[i]``, in order."""

    length: int
    indices: npt.NDArray[np.int64]
    values: np.ndarray
    block: Block

    def add_to(self, target: np.ndarray) -> None:
        """Add to ``target``; duplicate indices add up in the order given."""
        np.add.at(target, self.indices, self.values.astype(target.dtype, copy=False))


@dataclass(slots=True)
class _Round:
    contributions: dict[tuple[int, int], Contribution] = field(default_factory=dict)


class Rounds:
    """The rounds of one session on one server. Thread-safe."""

    def __init__(self) -> None:
        self._open: dict[str, _Round] = {}
        self._closed: dict[str, None] = {}  # in order of closing
        self._undo: tuple[str, _Round] | None = None
        self._lock = threading.Lock()

    def stage(self, name: str, key: tuple[int, int], contribution: Contribution) -> None:
        """Keep a contribution under ``key`` = (partition, attempt), instead of an earlier one.

        Raises ``RoundClosed`` after the round was committed or dropped.
        """
        with self._lock:
            self._refuse_closed(name, f"the contribution of partition {key[0]}, attempt {key[1]},")
            self._open.setdefault(name, _Round()).contributions[key] = contribution

    def winners(
        self, name: str, keys: Sequence[tuple[int, int]], length: int
    ) -> list[Contribution]:
        """The contributions of ``keys`` in ascending order of partition.

        Raises ``PSError`` if one is missing, ``ValueError`` if a partition is named twice or its
        contribution is to a space of another length, ``RoundClosed`` if the round is over.
        """
        ordered = sorted(keys)
        if len({partition for partition, _ in ordered}) != len(ordered):
            raise ValueError(f"round {name!r}: a partition may win once, got {ordered}")
        with self._lock:
            self._refuse_closed(name, "the commit")
            staged = self._open.get(name, _Round()).contributions
            missing = [key for key in ordered if key not in staged]
            if missing:
                raise PSError(
                    f"round {name!r} cannot be committed: nothing was staged here by (partition, "
                    f"attempt) {', '.join(map(str, missing[:5]))}; nothing was changed"
                )
            found = [staged[key] for key in ordered]
        for contribution in found:
            if contribution.length != length:
                raise ValueError(
                    f"round {name!r}: a contribution is to a space of length "
                    f"{contribution.length}, the target has {length}"
                )
        return found

    def close(self, name: str) -> None:
        """End the round; until ``settle``, ``reopen`` can take this back."""
        with self._lock:
            self._refuse_closed(name, "the commit")
            self._undo = (name, self._open.pop(name, _Round()))
            self._remember(name)

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
            self._remember(name)

    def _refuse_closed(self, name: str, what: str) -> None:
        if name in self._closed:
            raise RoundClosed(f"{what} is too late: round {name!r} was committed or dropped")

    def _remember(self, name: str) -> None:
        self._closed[name] = None
        if len(self._closed) > _MOST_CLOSED:
            del self._closed[next(iter(self._closed))]

    def clear(self) -> None:
        """Drop everything, closed rounds included."""
        with self._lock:
            self._open.clear()
            self._closed.clear()
            self._undo = None
