"""What is to be saved, and where to: arrays of a session, NumPy's values, files, folders."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from distvec.array.core.handle import (
    Handle,
    SessionBase,
    check_session,
    is_split_by_columns,
    stored_table,
)
from distvec.graph.node import Buffer
from ps_backend.durability.file_checksums import FileRange, blank_ranges, crc32, unit_of, units
from ps_backend.durability.file_ranges import bytes_of
from ps_backend.durability.files import KINDS, Stored, as_rows, layout
from ps_backend.durability.formats import safetensors_header
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
        raise ValueError("the path is empty; pass one like 'model.safetensors' or 'model/'")
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
    from tqdm import tqdm  # takes a tenth of the time to import distvec

    return tqdm(total=nbytes, desc=what, unit="B", unit_scale=True, disable=not shown)


_CHUNK_BYTES = 8 << 20
"""About so many go through the client at a time."""


CLIENT = -1
"""In place of a server's number: this process."""


@dataclass(slots=True)
class SavedRange:
    """Rows of an array that go into one file, from the server that has them or from the client."""

    array: SavedArray
    server: int
    lies: FileRange
    """Where, once the file is planned; with checksums, once it is written."""

    @property
    def nbytes(self) -> int:
        """Of its rows."""
        return (self.lies.high - self.lies.low) * self.array.about.row_bytes

    def place(self, file: str, offset: int) -> None:
        """Let it lie there."""
        self.lies = replace(self.lies, file=file, offset=offset)

    def chunks(self, bar: Any = None) -> Iterator[memoryview]:
        """Its bytes, as they go through the client; afterwards their checksums are known."""
        lies, row_bytes = self.lies, self.array.about.row_bytes
        crcs: list[int] = []
        step = max(_CHUNK_BYTES // max(lies.unit * row_bytes, 1), 1) * lies.unit
        for low in range(lies.low, lies.high, step):
            data = bytes_of(self.array.read(low, min(low + step, lies.high)))
            crcs += map(crc32, units(data, row_bytes, lies.unit))
            yield data
            if bar is not None:
                bar.update(len(data))
        self.lies = replace(self.lies, crcs=tuple(crcs))


@dataclass(slots=True)
class SavedArray:
    """An array, with the value that it has while it is saved."""

    about: Stored
    """Without pieces."""
    read: Callable[[int, int], np.ndarray]
    """The rows from one number up to another, brought to the client."""
    buffer: Buffer | None
    """None where the client has the values."""
    ranges: list[SavedRange] = field(default_factory=list)

    def split(self, servers: Sequence[int], blank: Sequence[FileRange]) -> SavedArray:
        """The same, with a range of each of ``servers``."""
        pairs = zip(servers, blank, strict=True)
        self.ranges = [SavedRange(self, server, lies) for server, lies in pairs]
        return self

    @property
    def stored(self) -> Stored:
        """With what is known of its ranges now."""
        return replace(self.about, pieces=tuple([one.lies for one in self.ranges]))


@dataclass(slots=True)
class PlannedFile:
    """A file that is to be written: the bytes around the rows of ``ranges``, which lie in it."""

    name: str
    head: bytes
    size: int
    ranges: list[SavedRange]
    tail: bytes = b""

    def chunks(self, bar: Any) -> Iterator[bytes | memoryview]:
        """All of it, with the rows in the order of their places and nothing in between."""
        yield self.head
        for one in sorted(self.ranges, key=lambda one: one.lies.offset):
            yield from one.chunks(bar)
        if self.tail:
            yield self.tail


@dataclass(frozen=True, slots=True)
class SavePlan:
    """What is saved, and in which files it lies."""

    session: SessionBase | None
    arrays: Sequence[SavedArray]

    @property
    def ranges(self) -> list[SavedRange]:
        """Of all arrays."""
        return [one for array in self.arrays for one in array.ranges]

    @property
    def stored(self) -> list[Stored]:
        """The arrays with what is known of their ranges now."""
        return [one.stored for one in self.arrays]

    def forget_checksums(self) -> None:
        """Of an attempt that failed."""
        for one in self.ranges:
            one.lies = replace(one.lies, crcs=(0,) * len(one.lies.crcs))

    def one_file(self, name: str, kind: str, metadata: Mapping[str, str]) -> PlannedFile:
        """All of it in one file, with the checksums that are known now; as long without them.

        ``ValueError`` for what files of ``kind`` cannot hold.
        """
        planned = layout(kind, self.stored, metadata)
        for array, start in zip(self.arrays, planned.offsets, strict=True):
            for one in array.ranges:
                one.place(name, start + one.lies.low * array.about.row_bytes)
        return PlannedFile(name, planned.head, planned.size, self.ranges, planned.tail)

    def parts(self) -> list[PlannedFile]:
        """A file for each server, and one for what the client has; those that would be empty not.

        Without checksums: a folder has these in its manifest.
        """
        last = 0 if self.session is None else self.session.client.servers
        by_file: dict[int, list[SavedRange]] = {}
        for one in self.ranges:
            by_file.setdefault(last if one.server == CLIENT else one.server, []).append(one)
        token, made = secrets.token_hex(8), []
        for number, some in sorted(by_file.items()):
            head, tensors = safetensors_header(
                (
                    one.array.about.name,
                    one.array.about.dtype,
                    (one.lies.high - one.lies.low, *one.array.about.stored_shape[1:]),
                )
                for one in some
            )
            name = f"part-{token}-{number:05d}.safetensors"
            for one, tensor in zip(some, tensors, strict=True):
                one.place(name, tensor.offset)
            made.append(PlannedFile(name, head, tensors[-1].offset + tensors[-1].nbytes, some))
        return made


def plan_of(arrays: Mapping[str, Any], *, by_columns: bool) -> SavePlan:
    """Of what is to be saved of each of ``arrays``, evaluated; in no file yet.

    ``by_columns``: whether tables that are split by columns may be saved as they are split; else
    their elements change place first. ``ValueError`` for arrays of two sessions, ``TypeError`` for
    what is no array of numbers.
    """
    handles = {name: one for name, one in arrays.items() if isinstance(one, Handle)}
    session: SessionBase | None = next((one.session for one in handles.values()), None)
    held: dict[str, Handle] = {}
    for name, one in handles.items():
        check_session(session, one, f"save({name}=...)")  # type: ignore[arg-type]
        rows: Any = stored_table(one) if by_columns else one
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
    return SavePlan(session, made)


def _of_servers(name: str, session: SessionBase, buffer: Buffer, turned: bool) -> SavedArray:
    type, client = buffer.type, session.client
    holders = type.space.holders(client.servers) if type.space.length else []
    ranges = [type.space.range_of(server, client.servers) for server in holders]
    blank = blank_ranges(type.space.length, ranges, unit_of(type.space))
    about = Stored(name, type.dtype.name, type.shape[::-1] if turned else type.shape, (), turned)
    made = SavedArray(about, partial(client.read_rows, buffer.id, type), buffer)
    return made.split(holders, blank)


def _of_client(name: str, values: np.ndarray, turned: bool) -> SavedArray:
    rows = as_rows(values)
    about = Stored(
        name, rows.dtype.name, values.shape[::-1] if turned else values.shape, (), turned
    )
    flat = rows.reshape(about.length, -1) if rows.size else rows
    blank = blank_ranges(about.length, [(0, about.length)] if about.nbytes else [])
    return SavedArray(about, lambda low, high: flat[low:high], None).split(
        (CLIENT,) * len(blank), blank
    )


def _values(name: str, given: Any) -> np.ndarray:
    found = np.asarray(given)
    if found.dtype.name not in DTYPES:
        raise TypeError(
            f"save({name}=...) got a {type(given).__name__} of dtype {found.dtype}; arrays of "
            f"{', '.join(DTYPES)} can be saved"
        )
    return found
