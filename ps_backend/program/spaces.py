"""Spaces: index sets, and how they are split over servers.

Each kind is one class and one row of ``KINDS``: everything else reads that table. Length, id and
details of a space are all that travels; from them client and servers compute the split
independently.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np

from ps_backend.errors import InvalidProgram
from ps_backend.limits import MOST_LENGTH


@dataclass(frozen=True, slots=True)
class Space(ABC):
    """An index set ``0 .. length-1``, whose indices are called slots, and how servers share it.

    Arrays of one space are aligned: what is elementwise is local to each server. Each server holds
    one range of slots. Ranges are cut into blocks whose size does not depend on the servers; a
    reduction leaves one partial result per block, and these are combined in the order of the slots,
    so results have the same bits however many servers there are.

    Equal spaces are one space, in whichever process. A new kind is a class like ``DenseSpace`` in
    the table ``KINDS``; what it needs besides ``length`` and ``id`` travels as its ``details``.
    """

    length: int
    """The number of slots."""
    id: int = 0
    """Tells apart spaces of one kind and length that are not aligned."""
    _hash: int = field(init=False, repr=False, compare=False)

    kind: ClassVar[str]
    """The name of the class on the wire."""

    def __post_init__(self) -> None:
        if not 0 <= self.length <= MOST_LENGTH:
            raise ValueError(f"length must be 0 .. {MOST_LENGTH}, got {self.length}")
        object.__setattr__(self, "_hash", hash((self.kind, self.length, self.id)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[int, int, bytes]]:
        return self.decode, (self.length, self.id, self.details)  # hashes differ by process

    def __str__(self) -> str:
        number = f" and id {self.id}" if self.id else ""
        return f"a {self.kind} space of length {self.length}{number}"

    @property
    @abstractmethod
    def block_size(self) -> int:
        """Slots per block, from the space alone."""

    @property
    def blocks(self) -> int:
        """Number of blocks; the last may be shorter than the others."""
        return -(-self.length // self.block_size)

    @abstractmethod
    def range_of(self, server: int, servers: int) -> tuple[int, int]:
        """``(first, past_the_last)`` slot that ``server`` of ``servers`` holds; may be empty.

        It begins at a block boundary, and all ranges together are the space.
        """

    def suits(self, servers: int) -> bool:
        """Can so many servers share it?"""
        return True

    def holders(self, servers: int) -> list[int]:
        """The servers that hold at least one slot, in the order of the slots; never none."""
        return list(_holders(self, servers))

    @property
    def details(self) -> bytes:
        """What ``decode`` needs besides length and id, of at most ``MOST_DETAILS`` bytes."""
        return b""

    @classmethod
    def decode(cls, length: int, id: int, details: bytes) -> Self:
        """The space that travelled; ``ValueError`` where ``details`` are none of this kind."""
        if details:
            raise ValueError(f"a {cls.kind} space has no details, got {details!r}")
        return cls(length, id)


@lru_cache(maxsize=1024)
def _holders(space: Space, servers: int) -> tuple[int, ...]:
    ranges = sorted((*space.range_of(k, servers), k) for k in range(servers))
    return tuple(server for low, high, server in ranges if low < high) or (0,)


_SMALLEST_BLOCK = 1024
_MOST_BLOCKS = 1024


@lru_cache(maxsize=1024)
def _dense_block_size(length: int) -> int:
    needed = -(-length // _MOST_BLOCKS)
    return max(_SMALLEST_BLOCK, 1 << (needed - 1).bit_length() if needed > 1 else 1)


@dataclass(frozen=True, slots=True, eq=False)
class DenseSpace(Space):
    """The indices ``0 .. length-1`` in contiguous ranges, one a server, cut at block boundaries.

    The split follows from the length alone, so all of one length are aligned.
    """

    kind: ClassVar[str] = "dense"

    @property
    def block_size(self) -> int:
        """Elements per block: a power of two, at least 1024, for at most 1024 blocks."""
        return _dense_block_size(self.length)

    def range_of(self, server: int, servers: int) -> tuple[int, int]:
        """``(first, past_the_last)`` index that ``server`` of ``servers`` holds; may be empty."""
        low = server * self.blocks // servers * self.block_size
        high = (server + 1) * self.blocks // servers * self.block_size
        return min(low, self.length), min(high, self.length)


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

    def suits(self, servers: int) -> bool:
        """So many as it was cut for."""
        return servers == len(self.cuts) - 1

    def range_of(self, server: int, servers: int) -> tuple[int, int]:
        """``(first, past_the_last)`` index of ``server``; ``ValueError`` for other ``servers``."""
        if not self.suits(servers):
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


__all__ = ["KINDS", "DenseSpace", "RaggedSpace", "Space", "decode_space"]

KINDS: dict[str, type[Space]] = {one.kind: one for one in (DenseSpace, RaggedSpace)}
"""The kinds of spaces: the only place that lists them."""


@lru_cache(maxsize=4096, typed=True)  # 5.0 equals 5, and is no length
def decode_space(kind: str, length: int, id: int, details: bytes) -> Space:
    """The space of which these travelled: mostly the same object for the same ones.

    ``InvalidProgram`` for an unknown kind, ``ValueError`` where the class refuses the rest.
    """
    if kind not in KINDS:
        raise InvalidProgram(
            f"no space of kind {kind!r} is known here, but {', '.join(KINDS)}: its class must be "
            f"in ps_backend.program.spaces.KINDS of this process too"
        )
    return KINDS[kind].decode(length, id, details)
