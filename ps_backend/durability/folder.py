"""The checkpoints in one place: which there are, which counts, and which may go.

Each is a folder of its own, ``ckpt-000042-1f0c9a3b``, with files of arrays and a manifest that is
written last; the arrays may as well lie in the files of an older one. No file is written twice, and
nothing says which is the newest but the names: a pointer could be wrong.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from ps_backend.durability import manifest as manifests
from ps_backend.durability.manifest import Manifest
from ps_backend.durability.stores import Store
from ps_backend.errors import CheckpointIncomplete, Corrupted

_NAME = re.compile(r"ckpt-(\d{6,})-[0-9a-f]{8}")
KEPT = 2
"""So many of the newest stay: of these the older one counts where the newer one is damaged."""


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint that is whole, as far as sizes tell; its values are checked as they are read."""

    name: str
    manifest: Manifest


class Folder:
    """Checkpoints in a store, of one writer. Raises ``OSError`` where the store fails."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def new(self) -> str:
        """The name of one that is to be written: a later one than all that are there."""
        last = max((_serial(name) for name in self._names()), default=-1)
        return f"ckpt-{last + 1:06d}-{secrets.token_hex(4)}"

    def commit(self, name: str, manifest: Manifest) -> Found:
        """Write the manifest, which makes it one, and read it back, with the sizes of its files.

        From then on it is the newest.
        """
        self.store.write(f"{name}/{manifests.NAME}", [manifest.encode()])
        return self.read(name)

    def read(self, name: str) -> Found:
        """Checkpoint ``name``; ``CheckpointIncomplete``, ``Corrupted``."""
        file = f"{name}/{manifests.NAME}"
        where = f"{self.store.url}/{file}"
        try:
            size = self.store.size(file)
        except FileNotFoundError:
            raise CheckpointIncomplete(
                f"{self.store.url}/{name} has no {manifests.NAME}: writing it was broken off"
            ) from None
        data = bytearray(size)
        self.store.read(file, 0, memoryview(data))
        found = manifests.decode(bytes(data), where)
        self._check_sizes(found, where)
        return Found(name, found)

    def newest(self) -> Found | None:
        """The newest that is whole; None if nothing was ever begun here.

        ``CheckpointIncomplete``, with what is wrong with each, if none is.
        """
        troubles = []
        for name in reversed(self._names()):
            try:
                return self.read(name)
            except (CheckpointIncomplete, Corrupted) as error:
                troubles.append(str(error))
        if troubles:
            raise CheckpointIncomplete(
                f"{self.store.url} holds no whole checkpoint: " + "; ".join(troubles)
            )
        return None

    def collect(self) -> None:
        """Remove what the newest two do not need. They have been read back by whoever calls."""
        names = self._names()
        kept: list[Found] = []
        for name in reversed(names):
            if len(kept) == KEPT:
                break
            try:
                kept.append(self.read(name))
            except (CheckpointIncomplete, Corrupted):
                continue
        if not kept:
            return
        needed = {file for found in kept for file in found.manifest.files}
        needed |= {f"{found.name}/{manifests.NAME}" for found in kept}
        newest = _serial(kept[0].name)
        for name in names:
            if _serial(name) > newest:
                continue  # being written
            inside = self.store.names(name)
            # Its manifest first: what is half removed must not look like a checkpoint.
            for file in sorted(inside, key=lambda one: one != manifests.NAME):
                if f"{name}/{file}" not in needed:
                    self.store.delete(f"{name}/{file}")
            self.store.delete(name)

    def _names(self) -> list[str]:
        """Of all that were begun, oldest first."""
        return sorted(
            filter(_NAME.fullmatch, self.store.names()), key=lambda one: (_serial(one), one)
        )

    def _check_sizes(self, manifest: Manifest, where: str) -> None:
        ends: dict[str, int] = {}
        for one in manifest.arrays:
            width = one.type.width * one.type.dtype.itemsize
            for piece in one.pieces:
                end = piece.offset + (piece.high - piece.low) * width
                ends[piece.file] = max(end, ends.get(piece.file, 0))
        for file, end in ends.items():
            try:
                size = self.store.size(file)
            except FileNotFoundError:
                raise CheckpointIncomplete(
                    f"{where} names {file}, which is not there: it was removed, or a server wrote "
                    "it to a disk of its own (then give a directory that all machines see, or a "
                    "URL)"
                ) from None
            if size < end:
                raise Corrupted(
                    f"{self.store.url}/{file} has {size} bytes, not {end}: it is cut off"
                )


def _serial(name: str) -> int:
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else -1
