"""The rows of arrays in files: written with a checksum a unit, and read, checked, by any range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ps_backend.durability.file_checksums import FileRange, crc32, units
from ps_backend.durability.formats import safetensors_header
from ps_backend.durability.stores import Directory, Store
from ps_backend.errors import Corrupted

READ_BYTES = 4 << 20
"""About so many are read, and checked, at a time."""
_WRITE_BYTES = 1 << 20
"""About so many are checked, and then written while they are in the processor's cache."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of an array that are to be written: C-contiguous, those from ``low`` on."""

    name: str
    array: np.ndarray
    low: int
    unit: int
    row_bytes: int


@dataclass(slots=True)
class _Checked:
    """The bytes of some rows, a few units at a time, whose checksums are noted as they pass."""

    rows: Rows
    crcs: list[int] = field(default_factory=list)

    def __iter__(self) -> Iterator[memoryview]:
        rows = self.rows
        self.crcs.clear()  # it may be gone through again, for another file
        at_once = max(_WRITE_BYTES // max(rows.unit * rows.row_bytes, 1), 1) * rows.unit
        for some in units(bytes_of(rows.array), rows.row_bytes, at_once):
            self.crcs += map(crc32, units(some, rows.row_bytes, rows.unit))
            yield some

    def piece(self, file: str, offset: int) -> FileRange:
        rows = self.rows
        high = rows.low + len(rows.array)
        return FileRange(file, offset, rows.low, high, rows.unit, tuple(self.crcs))


def bytes_of(array: np.ndarray) -> memoryview:
    """The memory of a C-contiguous array."""
    return memoryview(array.reshape(-1).view(np.uint8).data)


def write_part(
    store: Store, file: str, rows: Sequence[Rows], spare: str | None = None
) -> list[FileRange]:
    """A new safetensors file, durable on return, with ``rows`` under their names.

    ``spare``: one that this process wrote, and that nobody needs; in a directory the new one takes
    its pages. Raises ``OSError``.
    """
    head, tensors = safetensors_header(
        (one.name, one.array.dtype.name, one.array.shape) for one in rows
    )
    checked = [_Checked(one) for one in rows]

    def chunks() -> Iterator[bytes | memoryview]:
        yield head
        for one in checked:
            yield from one

    if isinstance(store, Directory):
        store.write(file, chunks(), spare=spare)
    else:
        store.write(file, chunks())
    return [one.piece(file, at.offset) for one, at in zip(checked, tensors, strict=True)]


def write_into(
    store: Store, file: str, rows: Sequence[Rows], offsets: Sequence[int], head: bytes
) -> list[FileRange]:
    """Write ``rows`` at ``offsets`` of a file that begins with ``head``, and lies in a directory.

    ``OSError``, ``FileNotFoundError`` where there is none such: it is on another machine.
    """
    checked = [_Checked(one) for one in rows]
    places = list(zip(offsets, checked, strict=True))
    if not isinstance(store, Directory):
        raise OSError(
            f"{store.url} is not a directory, so several servers cannot write to one file"
        )
    store.write_into(file, head, places)
    return [one.piece(file, offset) for offset, one in places]


def read_rows(
    store: Store, pieces: Iterable[FileRange], row_bytes: int, low: int, into: memoryview, what: str
) -> None:
    """Fill ``into`` with rows of ``row_bytes`` from row ``low`` on, as they lie in ``pieces``.

    Every unit that is touched is checked before its bytes count. Raises ``OSError``, and
    ``Corrupted``, with ``what`` the array is, where a checksum does not fit, a file ends too soon,
    or rows are in no piece.
    """
    if not len(into):
        return
    high = low + len(into) // row_bytes
    at = low
    for piece in sorted(pieces, key=lambda one: one.low):
        if piece.low <= at < piece.high and at < high:
            end = min(piece.high, high)
            target = into[(at - low) * row_bytes : (end - low) * row_bytes]
            _read_range(store, piece, row_bytes, at, target, what)
            at = end
    if at < high:
        raise Corrupted(f"{what}: no file contains the rows {at}:{high}")


def _read_range(
    store: Store, piece: FileRange, row_bytes: int, low: int, into: memoryview, what: str
) -> None:
    high = low + len(into) // row_bytes
    most = max(READ_BYTES // max(piece.unit * row_bytes, 1), 1)  # units at a time
    first = (low - piece.low) // piece.unit
    last = -(-(high - piece.low) // piece.unit)
    for begin in range(first, last, most):
        start = piece.low + begin * piece.unit
        stop = min(piece.low + min(begin + most, last) * piece.unit, piece.high)
        is_whole = low <= start and stop <= high
        if is_whole:
            buffer = into[(start - low) * row_bytes : (stop - low) * row_bytes]
        else:
            end = piece.offset + (stop - piece.low) * row_bytes
            if store.size(piece.file) < end:  # else it might ask for any amount of memory
                raise Corrupted(f"{what}: {piece.file} ends before byte {end}; it is cut off")
            buffer = memoryview(bytearray((stop - start) * row_bytes))
        try:
            store.read(piece.file, piece.offset + (start - piece.low) * row_bytes, buffer)
        except EOFError as error:
            raise Corrupted(f"{what}: {error}; it is cut off") from None
        for number, unit in enumerate(units(buffer, row_bytes, piece.unit), begin):
            if number >= len(piece.crcs) or crc32(unit) != piece.crcs[number]:
                raise _differs(piece, number, crc32(unit), what)
        if not is_whole:
            here, end = max(start, low), min(stop, high)
            into[(here - low) * row_bytes : (end - low) * row_bytes] = buffer[
                (here - start) * row_bytes : (end - start) * row_bytes
            ]


def _differs(piece: FileRange, number: int, found: int, what: str) -> Corrupted:
    expected = f"{piece.crcs[number]:08x}" if number < len(piece.crcs) else "none"
    low = piece.low + number * piece.unit
    return Corrupted(
        f"{what}: rows {low}:{min(low + piece.unit, piece.high)} in {piece.file} have the CRC "
        f"{found:08x}, but {expected} was written: the file was damaged; load an older one"
    )
