"""What makes files a whole: which arrays there are, and where their rows lie.

One file of JSON, ``{"crc32": ..., "manifest": {...}}``, whose checksum covers every byte of the
rest. It is written last, so a set of files without a valid one does not exist.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ps_backend.durability.file_checksums import FileRange, crc32
from ps_backend.errors import Corrupted
from ps_backend.program.spaces import Space, decode_space
from ps_backend.program.types import ArrayType, dtype_of, stored_type

FORMAT = "distvec arrays"
VERSION = 1
NAME = "manifest.json"

_BEFORE, _BETWEEN, _AFTER = b'{"crc32":"', b'","manifest":', b"}\n"
_CRC_DIGITS = 8
_CRC = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Kept:
    """An array in files. ``id``: of its buffer in the session that wrote it; 0: none."""

    id: int
    names: tuple[str, ...]
    type: ArrayType
    pieces: tuple[FileRange, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a set of files holds, and what else was said of it."""

    arrays: tuple[Kept, ...]
    document: Mapping[str, Any] = field(default_factory=dict)
    """Of who wrote it; JSON."""
    session: str = ""
    """The name of the session that wrote it, to which the ids belong."""
    number: int = 0

    def encode(self) -> bytes:
        """The bytes of the file."""
        body = json.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                "session": self.session,
                "number": self.number,
                "arrays": [_encode(one) for one in self.arrays],
                "document": self.document,
            },
            separators=(",", ":"),
            allow_nan=False,
        ).encode()
        crc = f"{crc32(body):0{_CRC_DIGITS}x}".encode()
        return _BEFORE + crc + _BETWEEN + body + _AFTER

    @property
    def files(self) -> set[str]:
        """Those that its arrays lie in."""
        return {piece.file for one in self.arrays for piece in one.pieces}


def decode(data: bytes, what: str) -> Manifest:
    """The inverse of ``encode``; ``Corrupted``, naming ``what``, for anything else.

    ``NotImplementedError`` for one of a later version of the format.
    """
    start = len(_BEFORE) + _CRC_DIGITS + len(_BETWEEN)
    body = data[start : -len(_AFTER)]
    crc = f"{crc32(body):0{_CRC_DIGITS}x}".encode()
    if data != _BEFORE + crc + _BETWEEN + body + _AFTER:
        raise Corrupted(f"{what} is not a manifest, or was damaged: its checksum does not fit")
    try:
        found = json.loads(body)
        if found["format"] != FORMAT:
            raise ValueError(f"it is of {found['format']!r}, not of {FORMAT!r}")
        if _whole(found["version"]) > VERSION:
            raise NotImplementedError(
                f"{what} is of version {found['version']} of its format, and this distvec knows "
                f"versions up to {VERSION}: use a later distvec"
            )
        document, session = found["document"], found["session"]
        if not isinstance(document, dict) or not isinstance(session, str):
            raise ValueError("its document is no object, or its session has no name")
        arrays = tuple(map(_decode, found["arrays"]))
        return Manifest(arrays, document, session, _whole(found["number"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Corrupted(f"{what} is not a manifest of arrays: {error}") from None


def _encode(one: Kept) -> dict[str, Any]:
    space = one.type.space
    return {
        "id": one.id,
        "names": list(one.names),
        "dtype": one.type.dtype.name,
        "row": list(one.type.row),
        "space": [space.kind, space.length, space.id, space.details.hex()],
        "pieces": [
            [p.file, p.offset, p.low, p.high, p.unit, [f"{crc:08x}" for crc in p.crcs]]
            for p in one.pieces
        ],
    }


def _decode(given: Any) -> Kept:
    kind, length, id, details = given["space"]
    space: Space = decode_space(kind, _whole(length), _whole(id), bytes.fromhex(details))
    row = tuple(map(_whole, given["row"]))
    names = given["names"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{names!r} are no names of an array")
    return Kept(
        _whole(given["id"]),
        tuple(names),
        stored_type(space, dtype_of(given["dtype"]), row),
        tuple(map(_piece, given["pieces"])),
    )


def _whole(number: Any) -> int:
    """A number that counts something: 5.0 is none, though it equals one."""
    if type(number) is not int or not 0 <= number < 1 << 64:
        raise ValueError(f"{number!r} is no whole number from 0 to 2^64")
    return number


def _piece(given: Any) -> FileRange:
    file, offset, low, high, unit, crcs = given
    numbers = tuple(map(_whole, (offset, low, high, unit)))
    if unit < 1 or low > high:
        raise ValueError(f"{numbers} are no place of rows")
    if not isinstance(crcs, list) or not all(map(_CRC.fullmatch, crcs)):
        raise ValueError(f"the checksums of {file!r} are not of eight digits each")
    if not isinstance(file, str) or file.startswith("/") or ".." in file.split("/"):
        raise ValueError(f"{file!r} is not a file beside the manifest")
    return FileRange(file, offset, low, high, unit, tuple(int(crc, 16) for crc in crcs))
