"""Key lists as they travel: the gaps between different keys in ascending order, in few bytes each.

First comes the first key, 8 bytes. The gaps between each key and the next, less 1, are in blocks of
``BLOCK``, all of which have as many bytes as the largest of the block needs: the widths of the
blocks, a byte each, and then the gaps, those of blocks of width 1 first, then those of width 2 and
so on; the last block, which may be shorter, is at the end. Everything is little-endian.

Numbers in order, or with gaps of up to 256, take 1 byte each, and keys that are spread evenly over
all of int64 6 or 7 where they are 100,000; none takes more than 8 and a 128th.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BLOCK = 128
_FIRST = 8  # bytes
_WIDEST = 8
_LIMITS = np.array([1 << 8 * width for width in range(1, _WIDEST)], np.uint64)

Gaps = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]


def encode(keys: npt.NDArray[np.int64]) -> bytes:
    """Different keys in ascending order as bytes; of no keys none."""
    if not len(keys):
        return b""
    bits = keys.view(np.uint64)
    gaps = bits[1:] - bits[:-1] - np.uint64(1)
    full = len(gaps) // BLOCK * BLOCK
    blocks, last = gaps[:full].reshape(-1, BLOCK), gaps[full:]
    widths = _widths(blocks.max(axis=1))
    parts = [keys[:1].astype("<i8").tobytes(), widths.tobytes()]
    if len(last):
        parts.append(_widths(last.max(keepdims=True)).tobytes())
    parts += [_packed(blocks[widths == width], width) for width in np.unique(widths).tolist()]
    if len(last):
        parts.append(_packed(last, parts[2][0]))
    return b"".join(parts)


def decode(data: bytes | memoryview | Bytes, count: int) -> npt.NDArray[np.int64]:
    """The ``count`` keys that ``encode`` has written.

    ``ValueError`` for what it does not write: another number of bytes, keys that do not ascend. No
    more than 8 bytes for each byte of ``data`` are allocated before that is known.
    """
    given = np.frombuffer(data, np.uint8)
    blocks = -(-max(count - 1, 0) // BLOCK)
    if count < 0 or len(given) < min(count, 1) * _FIRST + blocks + max(count - 1, 0):
        raise ValueError(f"{len(given)} bytes are too few for {count} keys")
    if not count:
        if len(given):
            raise ValueError(f"{len(given)} bytes for no keys")
        return np.empty(0, np.int64)
    widths = given[_FIRST : _FIRST + blocks]
    lengths = np.full(blocks, BLOCK)
    lengths[-1:] = count - 1 - BLOCK * (blocks - 1)
    if blocks and not 1 <= widths.min() <= widths.max() <= _WIDEST:
        raise ValueError("a gap between keys has 1 to 8 bytes")
    if len(given) != _FIRST + blocks + int(lengths @ widths):
        raise ValueError(f"{len(given)} bytes are not those of {count} keys")
    keys = np.empty(count, np.uint64)
    keys[0] = given[:_FIRST].view("<u8")[0]
    _unpack(given[_FIRST + blocks :], widths, keys[1:])
    keys[1:] += np.uint64(1)
    np.cumsum(keys, out=keys)
    signed = keys.view(np.int64)
    if not np.all(signed[1:] > signed[:-1]):
        raise ValueError("keys must be different, and in ascending order")
    return signed


def _unpack(data: Bytes, widths: Bytes, gaps: Gaps) -> None:
    """Write the gaps that are in ``data``."""
    full = len(gaps) // BLOCK
    blocks, last = gaps[: full * BLOCK].reshape(-1, BLOCK), gaps[full * BLOCK :]
    low = 0
    for width in np.unique(widths[:full]).tolist():
        those = widths[:full] == width
        size = int(np.count_nonzero(those)) * BLOCK * width
        part = _numbers(data[low : low + size], width).reshape(-1, BLOCK)
        if len(part) == full:
            blocks[...] = part
        else:
            blocks[those] = part
        low += size
    if len(last):
        last[...] = _numbers(data[low:], int(widths[full]))


def _widths(largest: Gaps) -> Bytes:
    """How many bytes the numbers need."""
    return (np.searchsorted(_LIMITS, largest, side="right") + 1).astype(np.uint8)


def _packed(numbers: Gaps, width: int) -> bytes:
    """The numbers in so many bytes each."""
    if width in (1, 2, 4, 8):
        return numbers.astype(f"<u{width}").tobytes()
    return numbers.astype("<u8").reshape(-1, 1).view(np.uint8)[:, :width].tobytes()


def _numbers(data: Bytes, width: int) -> npt.NDArray[np.unsignedinteger]:
    """The inverse of ``_packed``."""
    if width in (1, 2, 4, 8):
        return np.frombuffer(data, f"<u{width}")
    numbers = np.zeros((len(data) // width, _WIDEST), np.uint8)
    numbers[:, :width] = data.reshape(-1, width)
    return numbers.view("<u8")[:, 0]
