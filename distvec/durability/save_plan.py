"""What is to be saved, and where to: arrays of a session, NumPy's values, files, folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from tqdm import tqdm

from distvec.array.core.handle import (
    Handle,
    SessionBase,
    as_stored,
    check_session,
    is_split_by_columns,
)
from distvec.graph.node import Buffer
from ps_backend.durability.file_checksums import FileRange, blank_ranges, crc32, unit_of, units
from ps_backend.durability.file_ranges import bytes_of
from ps_backend.durability.files import KINDS, Stored, as_rows
from ps_backend.durability.stores import Store, open_store
from ps_backend.program.types import DTYPES

DIRECTORY = "directory"


@dataclass(frozen=True, slots=True)
class Place:
    """Where arrays are saved, or were."""

    store: Store
    """The folder; of a file the one that it is in."""
    file: str
    kind: str
    """A kind of file, or ``DIRECTORY``."""

    def __str__(self) -> str:
        return f"{self.store.url}/{self.file}" if self.file else self.store.url


def place_of(path: str | os.PathLike[str], store: Store | None = None) -> Place:
    """The place ``path``: in ``store``, or of the file system, or a URL that fsspec knows."""
    text = os.fspath(path)
    if not text:
        raise ValueError("the path is empty; say where, as in 'model.safetensors' or 'model/'")
    folder, _, file = text.rpartition("/")
    kind = file.rpartition(".")[2] if "." in file else ""
    if kind not in KINDS:
        return Place(open_store(text) if store is None else store, "", DIRECTORY)
    if store is not None:
        return Place(store, text, kind)
    if folder.endswith(":/"):
        folder += "/"  # memory://model.npy
    return Place(open_store(folder or ("/" if text.startswith("/") else ".")), file, kind)


def bar_of(what: str, nbytes: int, *, shown: bool) -> Any:
    """A bar of ``nbytes`` on standard error, if ``shown``: a context manager with ``update``."""
    return tqdm(total=nbytes, desc=what, unit="B", unit_scale=True, disable=not shown)


_CHUNK_BYTES = 8 << 20
"""About so many go through the client at a time."""


@dataclass(frozen=True, slots=True)
class Item:
    """An array, with the value that it has while it is saved."""

    stored: Stored
    """With pieces whose checksums are blank, and which lie in no file yet."""
    read: Callable[[int, int], np.ndarray]
    """The rows from one number up to another, brought to the client."""
    origins: tuple[Origin | None, ...]
    """Of the pieces; None where the client has the values."""

    def slots(self) -> list[Slot]:
        """One for each piece."""
        pairs = zip(self.origins, self.stored.pieces, strict=True)
        return [Slot(self, origin, piece) for origin, piece in pairs]


@dataclass(frozen=True, slots=True)
class Origin:
    """A server's part of a buffer."""

    buffer: Buffer
    server: int


@dataclass(slots=True)
class Slot:
    """Rows of an array that go into one file, from the server that has them or from the client."""

    item: Item
    origin: Origin | None
    piece: FileRange

    @property
    def nbytes(self) -> int:
        """Of its rows."""
        return (self.piece.high - self.piece.low) * self.item.stored.row_bytes

    def chunks(self, bar: Any = None) -> Iterator[memoryview]:
        """Its bytes, as they go through the client; afterwards ``piece`` has their checksums."""
        piece, row_bytes = self.piece, self.item.stored.row_bytes
        crcs: list[int] = []
        step = max(_CHUNK_BYTES // max(piece.unit * row_bytes, 1), 1) * piece.unit
        for low in range(piece.low, piece.high, step):
            data = bytes_of(self.item.read(low, min(low + step, piece.high)))
            crcs += map(crc32, units(data, row_bytes, piece.unit))
            yield data
            if bar is not None:
                bar.update(len(data))
        self.note(piece.file, piece.offset, tuple(crcs))

    def note(self, file: str, offset: int, crcs: tuple[int, ...]) -> None:
        """Where it lies, and with which checksums."""
        piece = self.piece
        self.piece = FileRange(file, offset, piece.low, piece.high, piece.unit, crcs)


def items_of(
    arrays: Mapping[str, Any], *, by_columns: bool
) -> tuple[SessionBase | None, list[Item]]:
    """The session of ``arrays``, if one has one, and what is to be saved of each, evaluated.

    ``by_columns``: whether tables that are split by columns may be saved as they are split; else
    their elements change place first. ``ValueError`` for arrays of two sessions, ``TypeError`` for
    what is no array of numbers.
    """
    handles = {name: one for name, one in arrays.items() if isinstance(one, Handle)}
    session: SessionBase | None = next((one.session for one in handles.values()), None)
    held: dict[str, Handle] = {}
    for name, one in handles.items():
        check_session(session, one, f"save({name}=...)")  # type: ignore[arg-type]
        rows: Any = as_stored(one) if by_columns else one
        held[name] = rows.materialized().copy()
    nodes = {} if session is None else dict(zip(held, session.compute(*held.values()), strict=True))
    made = []
    for name, given in arrays.items():
        turned = by_columns and is_split_by_columns(given)
        value = nodes[name].value if name in nodes else _values(name, given)
        if session is not None and isinstance(value, Buffer):
            made.append(_of_servers(name, session, value, turned))
        else:
            made.append(_of_client(name, np.asarray(value), turned))
    return session, made


def _of_servers(name: str, session: SessionBase, buffer: Buffer, turned: bool) -> Item:
    type, client = buffer.type, session.client
    holders = type.space.holders(client.servers) if type.space.length else []
    ranges = [type.space.range_of(server, client.servers) for server in holders]
    pieces = blank_ranges(type.space.length, ranges, unit_of(type.space))
    shape = type.shape[::-1] if turned else type.shape
    stored = Stored(name, type.dtype.name, shape, tuple(pieces), turned)
    origins = tuple(Origin(buffer, server) for server in holders)
    return Item(stored, partial(client.read_rows, buffer.id, type), origins)


def _of_client(name: str, values: np.ndarray, turned: bool) -> Item:
    rows = as_rows(values)
    shape = values.shape[::-1] if turned else values.shape
    own = Stored(name, rows.dtype.name, shape, (), turned)
    flat = rows.reshape(own.length, -1) if rows.size else rows
    pieces = blank_ranges(own.length, [(0, own.length)] if own.nbytes else [])
    stored = Stored(name, rows.dtype.name, shape, tuple(pieces), turned)
    return Item(stored, lambda low, high: flat[low:high], (None,) * len(pieces))


def _values(name: str, given: Any) -> np.ndarray:
    found = np.asarray(given)
    if found.dtype.name not in DTYPES:
        raise TypeError(
            f"save({name}=...) got a {type(given).__name__} of dtype {found.dtype}; arrays of "
            f"{', '.join(DTYPES)} can be saved"
        )
    return found
