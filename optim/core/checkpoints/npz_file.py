"""One checkpoint of NumPy arrays as a `.npz` file, which tells whether it is whole.

A zip, nothing compressed, of `document.json` and the arrays as `.npy`: `numpy.load` reads it. Its
comment, the end of the file, is the CRC-32 of all the file, taken with the comment of `_EMPTY`: no
flipped bit and no missing byte goes unnoticed, wherever it is.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import numpy as np

from optim.core.arrays import Array
from optim.core.checkpoints.errors import Corrupted
from optim.core.checkpoints.layout import Layout

_DOCUMENT = "document.json"
_COMMENT = "crc32={:08x}"
_EMPTY = _COMMENT.format(0).encode()
_CHUNK = 1 << 20
_PIECE = 1 << 18


def write(file: BinaryIO, arrays: Mapping[str, Array], document: Mapping[str, Any]) -> bytes:
    """Write a checkpoint to the new `file`; how that ends. Raises OSError."""
    stream = _Stream(file)
    layouts = {name: Layout.of(x) for name, x in arrays.items()}
    whole = {
        "document": document,
        "layouts": {name: layout.document() for name, layout in layouts.items()},
    }
    with zipfile.ZipFile(cast(BinaryIO, stream), "w") as archive:
        archive.comment = _EMPTY
        archive.writestr(_DOCUMENT, json.dumps(whole, allow_nan=False))
        for name, x in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                _write(member, layouts[name].packed(x))
    end = _COMMENT.format(stream.crc).encode()
    file.seek(-len(end), os.SEEK_END)
    file.write(end)
    return end


def _write(member: IO[bytes], x: Array) -> None:
    """`x`, in C order, as .npy; piece by piece, so that a piece stays in the cache, and no copy."""
    np.lib.format.write_array_header_2_0(member, np.lib.format.header_data_from_array_1_0(x))
    content = memoryview(x.reshape(-1).view(np.uint8))
    for low in range(0, len(content), _PIECE):
        member.write(content[low : low + _PIECE])


class _Stream:
    """A file as zip writes one that it cannot seek in, with the CRC-32 of what it wrote."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.crc = 0

    def write(self, content: Any) -> int:
        """Append `content`."""
        self.crc = zlib.crc32(content, self.crc)
        return self._file.write(content)

    def flush(self) -> None:
        """Pass on what was written."""
        self._file.flush()


def read_back(path: Path, size: int, end: bytes) -> None:
    """Whether the file is there as it was written. Raises `Corrupted`, or OSError."""
    with path.open("rb") as file:
        found_size = file.seek(-len(end), os.SEEK_END) + len(end)
        found = file.read()
    if (found_size, found) != (size, end):
        raise Corrupted(f"{path} was read back as {found_size} bytes, of {size}, ending {found!r}")


def check(path: Path) -> None:
    """Read all of the file. Raises `Corrupted` unless it is whole, OSError if it cannot be read."""
    rest, crc = path.stat().st_size - len(_EMPTY), 0
    with path.open("rb") as file:
        while chunk := file.read(max(min(_CHUNK, rest), 0)):
            crc = zlib.crc32(chunk, crc)
            rest -= len(chunk)
        found, expected = file.read(), _COMMENT.format(zlib.crc32(_EMPTY, crc)).encode()
    if rest or found != expected:
        raise Corrupted(
            f"{path} is torn or damaged: it ends with {found!r:.30}, expected {expected!r}"
        )


def read(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays and document of a checkpoint. Raises `Corrupted`, or OSError."""
    check(path)
    try:
        with zipfile.ZipFile(path) as archive:
            whole = json.loads(archive.read(_DOCUMENT))
            arrays = {name: _read(archive, name, own) for name, own in whole["layouts"].items()}
        return arrays, whole["document"]
    except (zipfile.BadZipFile, LookupError, TypeError, ValueError) as error:
        raise Corrupted(f"{path} is a whole file, but no checkpoint: {error!r}") from error


def _read(archive: zipfile.ZipFile, name: str, layout: Mapping[str, Any]) -> Array:
    with archive.open(f"{name}.npy") as member:
        elements = np.lib.format.read_array(member, allow_pickle=False)
    return Layout(tuple(layout["axes"]), tuple(layout["shape"])).unpacked(elements)
