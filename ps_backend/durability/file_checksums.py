"""CRC-32 (that of zip and PNG) of the rows of arrays, one for each unit, and their text in files.

The unit is the block of the array's space, whatever the servers: so a reader of some blocks can
check exactly the rows it reads.

A file that is complete by itself holds its checksums as a text, ``distvec-crc32 1 0a1b2c3d
0:0:5000:1024:CRCS ... =w``: the version, the checksum of all that is neither data nor these eight
digits, then for each range of rows the number of its array, its rows, how many rows a checksum is
of, and these, eight digits each; last a name that the file has no place for. A reader that does not
know it need not: the file is one of its format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

import numpy as np
from isal.isal_zlib import crc32 as crc32  # zlib's values, ten times as fast

from ps_backend.errors import Corrupted
from ps_backend.program.spaces import DenseSpace, Space

_LEAST_UNIT = 1024
_MOST_UNITS = 1024


@dataclass(frozen=True, slots=True)
class FileRange:
    """Where the rows ``low:high`` of an array lie: in one file, one after the other."""

    file: str
    offset: int
    low: int
    high: int
    unit: int
    """Rows to a checksum, counted from ``low``."""
    crcs: tuple[int, ...]


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


MAGIC = "distvec-crc32 1 "
_DIGITS = 8
_WORD = np.dtype(">u4")
_BLANK = "0" * _DIGITS
_TEXT = re.compile(rf"{MAGIC}[0-9a-f]{{{_DIGITS}}}( (\d{{1,18}}:){{4}}([0-9a-f]{{8}})*)* =\S*")


@dataclass(frozen=True, slots=True)
class FileChecksums:
    """What the text said: by number of the array its pieces, without file and offset."""

    pieces: dict[int, list[FileRange]]
    note: str


def blank_ranges(length: int, ranges: Sequence[tuple[int, int]], unit: int = 0) -> list[FileRange]:
    """Pieces of an array of ``length`` rows whose checksums are not known yet."""
    rows = unit or unit_of(DenseSpace(length))
    return [
        FileRange("", 0, low, high, rows, (0,) * -(-(high - low) // rows))
        for low, high in ranges
        if low < high
    ]


def checksum_text(pieces: Sequence[Sequence[FileRange]], note: str = "") -> str:
    """The text, whose own checksum ``fill_in_checksum`` puts in; as long as that of blanks."""
    listed = [
        f" {number}:{one.low}:{one.high}:{one.unit}:{np.array(one.crcs, _WORD).tobytes().hex()}"
        for number, some in enumerate(pieces)
        for one in some
    ]
    return f"{MAGIC}{_BLANK}{''.join(listed)} ={quote(note)}"


def fill_in_checksum(data: bytes) -> bytes:
    """``data``, which holds such a text, with the checksum of all of it."""
    at = data.index(MAGIC.encode() + _BLANK.encode()) + len(MAGIC)
    return data[:at] + f"{crc32(data):08x}".encode() + data[at + _DIGITS :]


def check_header(data: bytes, what: str) -> None:
    """``Corrupted`` if ``data`` holds such a text, and a bit of it changed."""
    at = data.find(MAGIC.encode()) + len(MAGIC)
    if at < len(MAGIC):
        return
    found = crc32(data[:at] + _BLANK.encode() + data[at + _DIGITS :])
    expected = data[at : at + _DIGITS].decode("latin1")
    if f"{found:08x}" != expected:
        raise Corrupted(
            f"{what}: its header has the CRC {found:08x}, but {expected} was written: the file was "
            "damaged; load an older one"
        )


def parse_checksums(text: str, what: str) -> FileChecksums:
    """What ``text`` says, which was checked; ``Corrupted`` where it is none."""
    if not _TEXT.fullmatch(text):
        raise Corrupted(f"{what}: its checksums are damaged; load an older one")
    *listed, note = text.split(" ")[3:]
    pieces: dict[int, list[FileRange]] = {}
    for one in listed:
        number, low, high, unit, digits = one.split(":")
        crcs = tuple(np.frombuffer(bytes.fromhex(digits), _WORD).tolist())
        piece = FileRange("", 0, int(low), int(high), int(unit), crcs)
        if piece.unit < 1 or len(crcs) != -(-(piece.high - piece.low) // piece.unit):
            raise Corrupted(f"{what}: its checksums do not fit its rows")
        pieces.setdefault(int(number), []).append(piece)
    return FileChecksums(pieces, unquote(note[1:]))
