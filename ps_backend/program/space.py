"""An index set and how it is split over servers.

Everything about the split follows from the length alone plus the number of servers, so client and
servers compute it independently and it never travels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ps_backend.limits import MOST_LENGTH

_SMALLEST_BLOCK = 1024
_MOST_BLOCKS = 1024


@dataclass(frozen=True, slots=True)
class DenseSpace:
    """The indices ``0 .. length-1`` in contiguous ranges, one a server, cut at block boundaries.

    The block size depends on the length alone. Reductions return one partial result per block, so
    results have the same bits however many servers hold the blocks.
    """

    length: int

    def __post_init__(self) -> None:
        if not 0 <= self.length <= MOST_LENGTH:
            raise ValueError(f"length must be 0 .. {MOST_LENGTH}, got {self.length}")

    @property
    def block_size(self) -> int:
        """Elements per block: a power of two, at least 1024, for at most 1024 blocks."""
        needed = -(-self.length // _MOST_BLOCKS)
        return max(_SMALLEST_BLOCK, 1 << (needed - 1).bit_length() if needed > 1 else 1)

    @property
    def blocks(self) -> int:
        """Number of blocks; the last may be shorter than the others."""
        return -(-self.length // self.block_size)

    def bounds(self, servers: int) -> npt.NDArray[np.int64]:
        """First index of each server's range, then ``length``: shape ``(servers + 1,)``."""
        cuts = np.arange(servers + 1, dtype=np.int64) * self.blocks // servers * self.block_size
        return np.minimum(cuts, self.length)

    def range_of(self, server: int, servers: int) -> tuple[int, int]:
        """``(first, past_the_last)`` index that ``server`` of ``servers`` holds; may be empty."""
        low = server * self.blocks // servers * self.block_size
        high = (server + 1) * self.blocks // servers * self.block_size
        return min(low, self.length), min(high, self.length)

    def holders(self, servers: int) -> list[int]:
        """The servers that hold at least one index; the first one if the space is empty."""
        bounds = self.bounds(servers)
        return [k for k in range(servers) if bounds[k] < bounds[k + 1]] or [0]


Space = DenseSpace
