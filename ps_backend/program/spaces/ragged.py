"""The space of what masks select: as much on each server as was true there."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np

from ps_backend.program.spaces.space import Space


@dataclass(frozen=True, slots=True)
class RaggedSpace(Space):
    """The indices ``0 .. length-1`` in contiguous ranges, one a server, cut where ``cuts`` say.

    The split is that of the servers of one session, so no sweep runs over such a space: it is
    where elements lie until a view puts them into a dense one.
    """

    cuts: tuple[int, ...] = ()
    """Where the range of each server begins, and where the last one ends."""

    kind: ClassVar[str] = "ragged"

    def __post_init__(self) -> None:
        super(RaggedSpace, self).__post_init__()
        cuts = self.cuts
        if len(cuts) < 2 or (cuts[0], cuts[-1]) != (0, self.length):
            raise ValueError(f"cuts must lead from 0 to {self.length}, got {cuts}")
        if any(low > high for low, high in pairwise(cuts)):
            raise ValueError(f"cuts must ascend, got {cuts}")

    @property
    def block_size(self) -> int:
        """One: ranges begin anywhere."""
        return 1

    def range_of(self, server: int, servers: int) -> tuple[int, int]:
        """``(first, past_the_last)`` index of ``server``; ``ValueError`` for other ``servers``."""
        if servers != len(self.cuts) - 1:
            raise ValueError(f"{self} is cut for {len(self.cuts) - 1} servers, not for {servers}")
        return self.cuts[server], self.cuts[server + 1]

    @property
    def details(self) -> bytes:
        """The cuts, as little-endian int64."""
        return np.array(self.cuts, "<i8").tobytes()

    @classmethod
    def decode(cls, length: int, id: int, details: bytes) -> Self:
        """The space that travelled; ``ValueError`` where ``details`` are no cuts of it."""
        return cls(length, id, tuple(np.frombuffer(details, "<i8").tolist()))
