"""Files that are complete by themselves: which arrays one holds, and what stands around the data.

Safetensors files of any number of arrays, and NumPy's of one. Those written here have the checksums
of their rows in them, in a place that other readers pass over; those of others have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import PurePosixPath

import numpy as np

from ps_backend.durability import formats
from ps_backend.durability.file_checksums import (
    MAGIC,
    FileRange,
    check_header,
    checksum_text,
    crc32,
    fill_in_checksum,
    parse_checksums,
    unit_of,
    units,
)
from ps_backend.durability.file_ranges import READ_BYTES
from ps_backend.durability.stores import Store
from ps_backend.errors import Corrupted
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import dtype_of

KEY = "distvec.crc32"
"""The entry of a safetensors file's metadata that holds the checksums."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An array in files: ``length`` rows, one after the other, in ``pieces``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[FileRange, ...] = ()
    by_columns: bool = False
    """Whether what lies there is the transpose: its rows are the columns."""
    unsummed: tuple[str, int] | None = None
    """File and offset of an array whose file has no checksums: see ``with_checksums``."""

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """As it lies there, rows first."""
        return self.shape[::-1] if self.by_columns else self.shape

    @property
    def length(self) -> int:
        """Rows; 1 of a number."""
        return self.stored_shape[0] if self.shape else 1

    @property
    def row_bytes(self) -> int:
        """Of one row."""
        return prod(self.stored_shape[1:]) * dtype_of(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        """Of all."""
        return self.length * self.row_bytes


@dataclass(frozen=True, slots=True)
class Layout:
    """A file that is to be written: ``arrays``, with pieces whose checksums may be blank."""

    head: bytes
    offsets: tuple[int, ...]
    """Where each array begins."""
    tail: bytes
    size: int


def layout(kind: str, arrays: Sequence[Stored], metadata: Mapping[str, str]) -> Layout:
    """The file of ``kind``, ``"safetensors"`` or ``"npy"``, as long whatever the checksums are.

    ``ValueError`` for names, metadata and numbers of arrays that the format cannot hold.
    """
    return _FORMATS[kind](arrays, metadata)


def _safetensors(arrays: Sequence[Stored], metadata: Mapping[str, str]) -> Layout:
    if KEY in metadata:
        raise ValueError(f"metadata: the key {KEY!r} is reserved for checksums; choose another key")
    text = checksum_text([one.pieces for one in arrays])
    head, tensors = formats.safetensors_header(
        [(one.name, one.dtype, one.shape) for one in arrays], {**metadata, KEY: text}
    )
    end = tensors[-1].offset + tensors[-1].nbytes if tensors else len(head)
    return Layout(fill_in_checksum(head), tuple(one.offset for one in tensors), b"", end)


def _npy(arrays: Sequence[Stored], metadata: Mapping[str, str]) -> Layout:
    if len(arrays) != 1 or metadata:
        what = "metadata" if len(arrays) == 1 else f"{len(arrays)} arrays"
        raise ValueError(f"a .npy file holds one array alone, not {what}: save to .safetensors")
    (one,) = arrays
    head = formats.npy_header(one.dtype, one.shape, by_columns=one.by_columns)
    whole = fill_in_checksum(head + checksum_text([one.pieces], one.name).encode())
    tail = whole[len(head) :]
    return Layout(head, (len(head),), tail, len(whole) + one.nbytes)


_FORMATS: Mapping[str, Callable[[Sequence[Stored], Mapping[str, str]], Layout]] = {
    "safetensors": _safetensors,
    "npy": _npy,
}
KINDS = tuple(_FORMATS)


def read_file(store: Store, file: str, kind: str) -> tuple[list[Stored], dict[str, str]]:
    """The arrays of a file, in the order of their data, and its metadata.

    Only what stands around the data is read; arrays without checksums are ``unsummed``. Raises
    ``OSError``; ``Corrupted`` for what is damaged, ``TypeError`` for dtypes that no array here has.
    """
    what, size = f"{store.url}/{file}", store.size(file)

    def read(start: int, count: int) -> bytes:
        data = bytearray(count)
        try:
            store.read(file, start, memoryview(data))
        except EOFError as error:
            raise Corrupted(f"{what}: {error}; it is cut off") from None
        return bytes(data)

    return (_read_npy if kind == "npy" else _read_safetensors)(store, file, read, size, what)


_Read = Callable[[int, int], bytes]


def _read_safetensors(
    store: Store, file: str, read: _Read, size: int, what: str
) -> tuple[list[Stored], dict[str, str]]:
    head = formats.raw_safetensors_header(read, size, what)
    check_header(head, what)
    tensors, metadata = formats.read_safetensors_header(read, size, what)
    text = metadata.pop(KEY, None)
    places = [(Stored(one.name, one.dtype, one.shape), one.offset) for one in tensors]
    if text is None:
        if any(value.startswith(MAGIC) for value in metadata.values()):
            raise Corrupted(f"{what}: the key of its checksums is damaged; load an older one")
        return [replace(one, unsummed=(file, offset)) for one, offset in places], metadata
    found = parse_checksums(text, what)
    return [
        _place(one, found.pieces.get(number, []), file, offset)
        for number, (one, offset) in enumerate(places)
    ], metadata


def _read_npy(
    store: Store, file: str, read: _Read, size: int, what: str
) -> tuple[list[Stored], dict[str, str]]:
    given, head = formats.read_npy_header(read, size, what)
    name = PurePosixPath(file).stem
    one = Stored(name, given.dtype, given.shape, (), given.by_columns)
    end = given.offset + given.nbytes
    if end == size:
        return [replace(one, unsummed=(file, given.offset))], {}
    tail = read(end, size - end)
    if not tail.startswith(MAGIC.encode()):
        raise Corrupted(
            f"{what} has {size - end} bytes after its array that are no checksums: it is damaged, "
            "or holds more than one array, of which numpy.load reads the first"
        )
    check_header(head + tail, what)
    found = parse_checksums(tail.decode("latin1"), what)
    placed = _place(one, found.pieces.get(0, []), file, given.offset)
    return [replace(placed, name=found.note or name)], {}


def _place(one: Stored, pieces: Sequence[FileRange], file: str, offset: int) -> Stored:
    """``one`` with ``pieces``, as it lies in ``file`` from ``offset`` on."""
    return replace(
        one,
        pieces=tuple(
            replace(piece, file=file, offset=offset + piece.low * one.row_bytes) for piece in pieces
        ),
    )


def with_checksums(store: Store, one: Stored) -> Stored:
    """``one`` with the checksums of what lies there now, so that all who read it read the same."""
    if one.unsummed is None:
        return one
    file, offset = one.unsummed
    unit, crcs = unit_of(DenseSpace(one.length)), []
    step = max(READ_BYTES // max(unit * one.row_bytes, 1), 1) * unit
    buffer = memoryview(bytearray(min(step, one.length) * one.row_bytes))
    for low in range(0, one.length if one.row_bytes else 0, step):
        count = min(step, one.length - low) * one.row_bytes
        store.read(file, offset + low * one.row_bytes, buffer[:count])
        crcs += [crc32(some) for some in units(buffer[:count], one.row_bytes, unit)]
    piece = FileRange(file, 0, 0, one.length, unit, tuple(crcs))
    return _place(replace(one, unsummed=None), [piece] if crcs else [], file, offset)


def as_rows(values: np.ndarray) -> np.ndarray:
    """NumPy's ``values`` as they are stored: C-contiguous, in this machine's byte order."""
    return np.ascontiguousarray(values, values.dtype.newbyteorder("="))
