"""The checksums of a file that is complete by itself, as a text within it.

``distvec-crc32 1 0a1b2c3d 0:0:5000:1024:CRCS ... =w``: the version, the checksum of all that is
neither data nor these eight digits, then for each piece the number of its array, its rows, how many
rows a checksum is of, and these, eight digits each; last a name that the file has no place for.
Whoever does not know it need not: the file is one of its format.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

import numpy as np

from ps_backend.durability.checksums import crc32, unit_of
from ps_backend.durability.parts import Piece
from ps_backend.errors import Corrupted
from ps_backend.program.spaces import DenseSpace

MAGIC = "distvec-crc32 1 "
_DIGITS = 8
_WORD = np.dtype(">u4")
_BLANK = "0" * _DIGITS
_TEXT = re.compile(rf"{MAGIC}[0-9a-f]{{{_DIGITS}}}( (\d{{1,18}}:){{4}}([0-9a-f]{{8}})*)* =\S*")


@dataclass(frozen=True, slots=True)
class Seal:
    """What the text said: by number of the array its pieces, without file and offset."""

    pieces: dict[int, list[Piece]]
    note: str


def blank(length: int, ranges: Sequence[tuple[int, int]], unit: int = 0) -> list[Piece]:
    """Pieces of an array of ``length`` rows whose checksums are not known yet."""
    rows = unit or unit_of(DenseSpace(length))
    return [
        Piece("", 0, low, high, rows, (0,) * -(-(high - low) // rows))
        for low, high in ranges
        if low < high
    ]


def write(pieces: Sequence[Sequence[Piece]], note: str = "") -> str:
    """The text, whose own checksum is to be put in by ``complete``; as long as that of a blank."""
    listed = [
        f" {number}:{one.low}:{one.high}:{one.unit}:{np.array(one.crcs, _WORD).tobytes().hex()}"
        for number, some in enumerate(pieces)
        for one in some
    ]
    return f"{MAGIC}{_BLANK}{''.join(listed)} ={quote(note)}"


def complete(data: bytes) -> bytes:
    """``data``, which holds such a text, with the checksum of all of it."""
    at = data.index(MAGIC.encode() + _BLANK.encode()) + len(MAGIC)
    return data[:at] + f"{crc32(data):08x}".encode() + data[at + _DIGITS :]


def check(data: bytes, what: str) -> None:
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


def read(text: str, what: str) -> Seal:
    """What ``text`` says, which was checked; ``Corrupted`` where it is none."""
    if not _TEXT.fullmatch(text):
        raise Corrupted(f"{what}: its checksums are damaged; load an older one")
    *listed, note = text.split(" ")[3:]
    pieces: dict[int, list[Piece]] = {}
    for one in listed:
        number, low, high, unit, digits = one.split(":")
        crcs = tuple(np.frombuffer(bytes.fromhex(digits), _WORD).tolist())
        piece = Piece("", 0, int(low), int(high), int(unit), crcs)
        if piece.unit < 1 or len(crcs) != -(-(piece.high - piece.low) // piece.unit):
            raise Corrupted(f"{what}: its checksums are not those of its rows")
        pieces.setdefault(int(number), []).append(piece)
    return Seal(pieces, unquote(note[1:]))
