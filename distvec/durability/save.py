"""``dv.save``: arrays into one complete file, or into a folder with a part for each server.

Files are filled by the servers that hold the rows, or through the client.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from distvec.array.core.handle import SessionBase
from distvec.durability.keyed import with_keys
from distvec.durability.save_plan import (
    DIRECTORY,
    Item,
    Origin,
    Place,
    Slot,
    bar_of,
    items_of,
    place_of,
)
from ps_backend.client.files import Target
from ps_backend.durability import formats
from ps_backend.durability import manifest as manifests
from ps_backend.durability.files import Layout, Stored, layout
from ps_backend.durability.manifest import Kept, Manifest
from ps_backend.durability.stores import Directory, Store, beside
from ps_backend.errors import Corrupted, StoreUnseen
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type, dtype_of

_MOST_BYTES = 256 << 20
_MOST_ARRAYS = 256
"""In one message to a server: so often a progress bar moves."""


@dataclass(slots=True)
class File:
    """One that is to be written: the bytes around the data, and where each slot's rows begin."""

    name: str
    head: bytes
    size: int
    slots: list[tuple[Slot, int]] = field(default_factory=list)

    def chunks(self, bar: Any) -> Iterator[bytes | memoryview]:
        """All of it, with the rows in the order of their places and nothing in between."""
        yield self.head
        for slot, offset in sorted(self.slots, key=lambda one: one[1]):
            yield from slot.chunks(bar)
            slot.note(self.name, offset, slot.piece.crcs)


def fill(session: SessionBase | None, store: Directory, files: Sequence[File], bar: Any) -> None:
    """Write the rows of ``files``, which were begun in ``store``; durable on return.

    The servers write theirs, unless they do not see the store. Raises ``OSError``.
    """
    through_client = files
    if session is not None:
        try:
            _by_servers(session, store.url, files, bar)
        except StoreUnseen:
            bar.reset()
        else:
            through_client = [_of_client(one) for one in files]
    for one in through_client:
        if one.slots:
            places = [(offset, slot.chunks(bar)) for slot, offset in one.slots]
            store.write_into(one.name, one.head, places)
            for slot, offset in one.slots:
                slot.note(one.name, offset, slot.piece.crcs)


def write(store: Store, files: Iterable[File], bar: Any) -> None:
    """Write ``files``, new and whole, through the client. Raises ``OSError``."""
    for one in files:
        store.write(one.name, one.chunks(bar))


def _of_client(file: File) -> File:
    slots = [(slot, offset) for slot, offset in file.slots if slot.origin is None]
    return File(file.name, file.head, file.size, slots)


_Place = tuple[File, Slot, Origin, int]


def _by_servers(session: SessionBase, store: str, files: Sequence[File], bar: Any) -> None:
    places: dict[int, list[_Place]] = {}
    for file in files:
        for slot, offset in file.slots:
            if slot.origin is not None:
                places.setdefault(id(slot.item), []).append((file, slot, slot.origin, offset))
    for group in _groups(list(places.values())):
        targets: dict[int, tuple[File, dict[int, int]]] = {}
        for file, _, origin, offset in group:
            targets.setdefault(origin.server, (file, {}))[1][origin.buffer.id] = offset
        found = session.client.save_into(
            {origin.buffer.id: origin.buffer.type for _, _, origin, _ in group},
            store,
            {k: Target(file.name, file.head, offsets) for k, (file, offsets) in targets.items()},
        )
        crcs = {(id, one.low): one.crcs for id, some in found.items() for one in some}
        for file, slot, origin, offset in group:
            slot.note(file.name, offset, crcs[origin.buffer.id, slot.piece.low])
            bar.update(slot.nbytes)


def _groups(arrays: Sequence[Sequence[_Place]]) -> Iterator[list[_Place]]:
    """All of them, a message's at a time: each array whole, and none twice in a message."""
    group: list[_Place] = []
    ids: set[int] = set()
    nbytes = 0
    for places in arrays:
        (_, slot, origin, _), *_ = places
        full = nbytes >= _MOST_BYTES or len(ids) >= _MOST_ARRAYS
        if group and (full or origin.buffer.id in ids):
            yield group
            group, ids, nbytes = [], set(), 0
        group += places
        ids.add(origin.buffer.id)
        nbytes += slot.item.stored.nbytes
    if group:
        yield group


SAVED = "distvec.save"
"""What a manifest's document says that it is of."""
_ATTEMPTS = 2
"""A file that could not be written, or not be made durable, is written anew, under another name."""
_MOST_RANK = 2


def save(
    path: str | os.PathLike[str],
    arrays: Mapping[str, Any] | None = None,
    /,
    *,
    metadata: Mapping[str, str] | None = None,
    optimizers: bool = True,
    progress: bool = False,
    store: Store | None = None,
    **named: Any,
) -> None:
    """Save arrays of one session, or NumPy's, under their names; ``load`` gives them back.

    ``path`` ending in ``.safetensors`` or, for one array, ``.npy`` is one complete file, which
    other libraries read as well. Any other path is a folder, with a part for each server and a
    manifest. Paths are of this machine; URLs, as ``s3://bucket/model``, are fsspec's.

    Servers that see the path write their own rows; else, and to URLs, these go through this process
    a few MiB at a time. What was there is replaced in one step, at the end: whatever happens
    before, it stays. Each block of rows has a checksum. Lazy arrays are evaluated first.

    Arrays of a keyed space are saved with its keys, as ``keys``: all of one space, and no others.
    The optimizer of such an array is saved with it, and its states as arrays ``"t.squares"``, so
    that ``t.step`` continues after ``load``; not with ``optimizers=False``.

    ``arrays`` takes names that are no keywords; ``metadata`` are texts by name; ``progress`` shows
    a bar; ``store`` is where ``path`` lies, for stores of your own.

    One message to each server that holds some of the arrays, for each 256 MiB or arrays of them.
    Raises ``OSError`` where a file cannot be written, twice; ``ValueError`` and ``TypeError`` for
    what cannot be saved; ``ServerLost``.
    """
    place = place_of(path, store)
    given = {**(arrays or {}), **named}
    texts = _checked(place, given, metadata)
    given, marks = with_keys(given, optimizers=optimizers)
    texts |= marks
    session, items = items_of(given, by_columns=place.kind != "safetensors")
    writer = _save_folder if place.kind == DIRECTORY else _save_file
    for attempt in range(_ATTEMPTS):
        with bar_of("save", sum(one.stored.nbytes for one in items), shown=progress) as bar:
            try:
                writer(place, session, items, texts, bar)
                return
            except OSError:
                if attempt + 1 == _ATTEMPTS:
                    raise


def _checked(
    place: Place, arrays: Mapping[str, Any], metadata: Mapping[str, str] | None
) -> dict[str, str]:
    """The metadata; ``TypeError`` where they, or names, are not texts."""
    if len(arrays) < 1:
        raise ValueError(f"save({str(place)!r}) got no array; name some: dv.save(path, w=w)")
    if str(place).endswith(".npz"):
        raise ValueError(
            f"save({str(place)!r}): .npz files are not written; give a name that ends in "
            ".safetensors, or call numpy.savez with values that this process has"
        )
    texts = dict(metadata or {})
    if not all(isinstance(one, str) for one in (*arrays, *texts, *texts.values())):
        raise TypeError(f"save: names of arrays, and metadata, must be texts, got {metadata!r}")
    return texts


# --- one file -----------------------------------------------------------------------------------


def _save_file(
    place: Place,
    session: SessionBase | None,
    items: Sequence[Item],
    metadata: Mapping[str, str],
    bar: Any,
) -> None:
    store, slots = place.store, [one.slots() for one in items]
    planned = _layout(place, items, slots, metadata)
    if not isinstance(store, Directory):
        for slot in _all(slots):
            for _ in slot.chunks():  # the checksums stand before the data, which are sent once
                pass
        planned = _layout(place, items, slots, metadata)
        file = _file(place.file, planned, items, slots)
        store.replace(place.file, chain(file.chunks(bar), [planned.tail]))
        return
    fresh = beside(place.file)
    try:
        store.begin(fresh, planned.head, planned.size)
        fill(session, store, [_file(fresh, planned, items, slots)], bar)
        final = _layout(place, items, slots, metadata)
        ends = [(0, [final.head]), (planned.size - len(final.tail), [final.tail])]
        store.write_into(fresh, planned.head, ends)
        store.rename(fresh, place.file)
    except BaseException:
        store.delete(fresh)
        raise


def _layout(
    place: Place,
    items: Sequence[Item],
    slots: Sequence[Sequence[Slot]],
    metadata: Mapping[str, str],
) -> Layout:
    return layout(place.kind, _found(items, slots), metadata)


def _file(
    name: str, planned: Layout, items: Sequence[Item], slots: Sequence[Sequence[Slot]]
) -> File:
    file = File(name, planned.head, planned.size)
    for item, some, start in zip(items, slots, planned.offsets, strict=True):
        row_bytes = item.stored.row_bytes
        file.slots += [(slot, start + slot.piece.low * row_bytes) for slot in some]
    return file


# --- a folder -----------------------------------------------------------------------------------


def _save_folder(
    place: Place,
    session: SessionBase | None,
    items: Sequence[Item],
    metadata: Mapping[str, str],
    bar: Any,
) -> None:
    for one in items:
        if len(one.stored.shape) > _MOST_RANK:
            raise NotImplementedError(
                f"save({one.stored.name}=...): a folder holds arrays of rank {_MOST_RANK} at most, "
                f"not of shape {one.stored.shape}; save it to a .safetensors file"
            )
    store, slots = place.store, [one.slots() for one in items]
    old = _manifest_of(store)
    files = _parts(items, slots, 0 if session is None else session.client.servers)
    try:
        if isinstance(store, Directory):
            for file in files:
                store.begin(file.name, file.head, file.size)
            fill(session, store, files, bar)
        else:
            write(store, files, bar)
        found = _found(items, slots)
        about = {one.name: [list(one.shape), one.by_columns] for one in found}
        document = {"kind": SAVED, "metadata": metadata, "arrays": about}
        manifest = Manifest(tuple(map(_kept, found)), document)
        store.replace(manifests.NAME, [manifest.encode()])
    except BaseException:
        for file in files:
            store.delete(file.name)
        raise
    for name in old.files if old is not None else ():
        store.delete(name)


def _manifest_of(store: Store) -> Manifest | None:
    """That of what was saved there before; ``FileExistsError`` where it is of something else."""
    try:
        data = bytearray(store.size(manifests.NAME))
        store.read(manifests.NAME, 0, memoryview(data))
        found = manifests.decode(bytes(data), f"{store.url}/{manifests.NAME}")
    except FileNotFoundError:
        return None
    except Corrupted as error:
        raise FileExistsError(f"{error}; save to another folder, or remove it first") from None
    if found.document.get("kind") != SAVED:
        raise FileExistsError(
            f"{store.url} holds a checkpoint, which is not replaced; save to another folder"
        )
    return found


def _parts(items: Sequence[Item], slots: Sequence[Sequence[Slot]], servers: int) -> list[File]:
    """A file for each server, and one for what the client has; those that would be empty not."""
    by_file: dict[int, list[Slot]] = {}
    for slot in _all(slots):
        number = servers if slot.origin is None else slot.origin.server
        by_file.setdefault(number, []).append(slot)
    token, made = secrets.token_hex(8), []
    for number, some in sorted(by_file.items()):
        head, tensors = formats.safetensors_header(
            (
                slot.item.stored.name,
                slot.item.stored.dtype,
                (slot.piece.high - slot.piece.low, *slot.item.stored.stored_shape[1:]),
            )
            for slot in some
        )
        size = tensors[-1].offset + tensors[-1].nbytes
        file = File(f"part-{token}-{number:05d}.safetensors", head, size)
        file.slots += [(slot, one.offset) for slot, one in zip(some, tensors, strict=True)]
        made.append(file)
    return made


def _kept(one: Stored) -> Kept:
    type = array_type(DenseSpace(one.length), dtype_of(one.dtype), one.stored_shape[1:])
    return Kept(0, (one.name,), type, one.pieces)


def _found(items: Sequence[Item], slots: Sequence[Sequence[Slot]]) -> list[Stored]:
    """The arrays with what is known of their pieces now."""
    return [
        replace(item.stored, pieces=tuple(slot.piece for slot in some))
        for item, some in zip(items, slots, strict=True)
    ]


def _all(slots: Sequence[Sequence[Slot]]) -> list[Slot]:
    return [slot for some in slots for slot in some]
