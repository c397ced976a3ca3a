"""What everybody else needs to know of a space, whatever its kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Self

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
