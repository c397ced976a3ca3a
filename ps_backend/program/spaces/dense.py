"""The space of plain vectors: contiguous ranges of indices, as long as each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ps_backend.program.spaces.space import Space

_SMALLEST_BLOCK = 1024
_MOST_BLOCKS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class DenseSpace(Space):
    """The indices ``0 .. length-1`` in contiguous ranges, one a server, cut at block boundaries.

    The split follows from the length alone, so all of one length are aligned.
    """

    kind: ClassVar[str] = "dense"

    @property
    def block_size(self) -> int:
        """Elements per block: a power of two, at least 1024, for at most 1024 blocks."""
        needed = -(-self.length // _MOST_BLOCKS)
        return max(_SMALLEST_BLOCK, 1 << (needed - 1).bit_length() if needed > 1 else 1)

    def range_of(self, server: int, servers: int) -> tuple[int, int]:
        """``(first, past_the_last)`` index that ``server`` of ``servers`` holds; may be empty."""
        low = server * self.blocks // servers * self.block_size
        high = (server + 1) * self.blocks // servers * self.block_size
        return min(low, self.length), min(high, self.length)
