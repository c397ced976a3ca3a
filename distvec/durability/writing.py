"""Files as they are filled: by the servers that hold the rows, or through the client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from distvec.array.handle import Home
from distvec.durability.items import Origin, Slot
from ps_backend.client.files import Target
from ps_backend.durability.stores import Directory, Store
from ps_backend.errors import StoreUnseen

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


def fill(session: Home | None, store: Directory, files: Sequence[File], bar: Any) -> None:
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


def _by_servers(session: Home, store: str, files: Sequence[File], bar: Any) -> None:
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
