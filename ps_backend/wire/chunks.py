"""Bulk data: flat views of memory, cut into chunks for messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ps_backend.wire.errors import PayloadBroken

CHUNK_BYTES = 1 << 20
"""Bulk data goes in pieces of this size, which is where loopback and HTTP/2 are fastest."""

SMALL_BYTES = 1 << 18
"""A payload up to this size travels inside one unary call, a larger one as a stream of chunks."""

Parts = Sequence[memoryview]
"""Payload as it lies in memory: flat byte views, sent one after the other."""

_CHUNK_TAG = 15 << 3 | 2  # field 15 (`chunk` of Request and of Reply), length-delimited


def byte_view(array: np.ndarray) -> memoryview:
    """The memory of a C-contiguous array as flat bytes, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def chunk_frames(parts: Parts) -> Iterator[bytes]:
    """``parts`` as serialized messages with nothing but a chunk: one copy, and none by protobuf."""
    for part in parts:
        for start in range(0, len(part), CHUNK_BYTES):
            piece = part[start : start + CHUNK_BYTES]
            yield b"".join((_chunk_header(len(piece)), piece))


def chunk_field(parts: Parts) -> bytes:
    """``parts`` as one chunk, to be appended to a serialized message that has none."""
    return b"".join((_chunk_header(sum(map(len, parts))), *parts))


def chunk_of(frame: bytes) -> memoryview:
    """The chunk in a serialized message of ``chunk_frames``, without a copy."""
    size = position = 0
    if frame[:1] == bytes((_CHUNK_TAG,)):
        for position in range(1, min(len(frame), 11)):
            byte = frame[position]
            size |= (byte & 0x7F) << 7 * (position - 1)
            if byte < 0x80:
                break
        if len(frame) == position + 1 + size:
            return memoryview(frame)[position + 1 :]
    raise PayloadBroken("expected a message with nothing but a chunk of payload")


def _chunk_header(size: int) -> bytes:
    header = bytearray((_CHUNK_TAG,))
    while size > 0x7F:
        header.append(size & 0x7F | 0x80)
        size >>= 7
    header.append(size)
    return bytes(header)


def copy_chunks(chunks: Iterable[memoryview], target: memoryview) -> int:
    """Copy ``chunks`` one after the other into ``target``; ``PayloadBroken`` unless they fill it.

    Returns the number of bytes.
    """
    position = 0
    for chunk in chunks:
        end = position + len(chunk)
        if end > len(target):
            raise PayloadBroken(f"more than the announced {len(target)} bytes of payload came")
        target[position:end] = chunk
        position = end
    if position != len(target):
        raise PayloadBroken(f"{position} of {len(target)} bytes of payload came")
    return position
