"""Key lists as they travel: the gaps between different keys in ascending order, in few bytes each.

First comes the first key, 8 bytes. The gaps between each key and the next, less 1, are in blocks of
``BLOCK``, all of which have as many bytes as the largest of the block needs: the widths of the
blocks, a byte each, and then the gaps, those of blocks of width 1 first, then those of width 2 and
so on; the last block, which may be shorter, is at the end. Everything is little-endian.

Numbers in order, or with gaps of up to 256, take 1 byte each, and keys that are spread evenly over
all of int64 6 or 7 where they are 100,000; none takes more than 8 and a 128th.
"""

from __future__ import annotations

from typing import Any

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

    ``ValueError`` for what it does not write: another number of bytes, keys that do not ascend.
    Allocates 9 bytes a key, and none where ``check_size`` refuses.
    """
    given = np.frombuffer(data, np.uint8)
    check_size(len(given), count)
    if not count:
        return np.empty(0, np.int64)
    blocks = _blocks(count)
    widths = given[_FIRST : _FIRST + blocks]
    lengths = np.full(blocks, BLOCK)
    lengths[-1:] = count - 1 - BLOCK * (blocks - 1)
    if blocks and not 1 <= widths.min() <= widths.max() <= _WIDEST:
        raise ValueError("a gap between keys has 1 to 8 bytes")
    if len(given) != _FIRST + blocks + int(lengths @ widths):
        raise ValueError(f"{len(given)} bytes are not those of {count} keys")
    keys = np.zeros(count, np.uint64)
    keys[0] = given[:_FIRST].view("<u8")[0]
    _unpack(given[_FIRST + blocks :], widths, keys[1:])
    keys[1:] += np.uint64(1)
    np.cumsum(keys, out=keys)
    signed = keys.view(np.int64)
    if not np.all(signed[1:] > signed[:-1]):
        raise ValueError("keys must be different, and in ascending order")
    return signed


def check_size(size: int, count: int) -> None:
    """``ValueError`` unless ``count`` keys may be in ``size`` bytes. Allocates nothing."""
    gaps = max(count - 1, 0)
    least = min(count, 1) * _FIRST + _blocks(count) + gaps
    if count < 0 or size < least:
        raise ValueError(f"{size} bytes are too few for {count} keys")
    if size > least + gaps * (_WIDEST - 1):
        raise ValueError(f"{size} bytes are too many for {count} keys")


def _blocks(count: int) -> int:
    """Of how many blocks the gaps between so many keys are."""
    return -(-max(count - 1, 0) // BLOCK)


def _unpack(data: Bytes, widths: Bytes, gaps: Gaps) -> None:
    """Write the gaps that are in ``data`` over zeros."""
    full = len(gaps) // BLOCK
    blocks, last = gaps[: full * BLOCK].reshape(-1, BLOCK), gaps[full * BLOCK :]
    low = 0
    for width in np.unique(widths[:full]).tolist():
        those = widths[:full] == width
        size = int(np.count_nonzero(those)) * BLOCK * width
        _fill(blocks, slice(None) if those.all() else those, data[low : low + size], width)
        low += size
    if len(last):
        _fill(last.reshape(1, -1), slice(None), data[low:], int(widths[full]))


def _fill(blocks: Gaps, those: Any, data: Bytes, width: int) -> None:
    """Write numbers of so many bytes into some rows of ``blocks``, which are zeros."""
    if width in (1, 2, 4, 8):
        blocks[those] = np.frombuffer(data, f"<u{width}").reshape(-1, blocks.shape[1])
    else:
        places = blocks.view(np.uint8).reshape(*blocks.shape, _WIDEST)
        places[those, :, :width] = data.reshape(-1, blocks.shape[1], width)


def _widths(largest: Gaps) -> Bytes:
    """How many bytes the numbers need."""
    return (np.searchsorted(_LIMITS, largest, side="right") + 1).astype(np.uint8)


def _packed(numbers: Gaps, width: int) -> bytes:
    """The numbers in so many bytes each."""
    if width in (1, 2, 4, 8):
        return numbers.astype(f"<u{width}").tobytes()
    return numbers.astype("<u8").reshape(-1, 1).view(np.uint8)[:, :width].tobytes()
