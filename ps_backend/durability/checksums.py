"""CRC-32 (that of zip and PNG) of the rows of an array, one for each unit of so many rows.

The unit is the block of the array's space, whatever the servers: so who reads some blocks can check
exactly what it reads.
"""

from __future__ import annotations

from collections.abc import Iterator

from isal.isal_zlib import crc32  # zlib's values, ten times as fast

from ps_backend.program.spaces import Space

__all__ = ["crc32", "unit_of", "units"]

_LEAST_UNIT = 1024
_MOST_UNITS = 1024


def unit_of(space: Space) -> int:
    """Rows to a checksum; the range that any server holds begins at a multiple, if blocks do."""
    if space.block_size > 1:
        return space.block_size
    return max(_LEAST_UNIT, -(-space.length // _MOST_UNITS))


def units(data: memoryview, row_bytes: int, unit: int) -> Iterator[memoryview]:
    """``data``, some rows of an array, in pieces of ``unit`` rows; the last may be shorter."""
    step = max(row_bytes * unit, 1)
    for start in range(0, len(data), step):
        yield data[start : start + step]
