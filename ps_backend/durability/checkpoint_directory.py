"""The checkpoints in one place: which there are, which counts, and which may go.

Each is a folder of its own, ``ckpt-000002-1f0c9a3b-000042``, with files of arrays and a manifest
that is written last; the arrays may as well lie in the files of an older one. No file is written
twice, and nothing says which is the newest but the names: a pointer could be wrong.

A name has the number of its writer, who is the second here, who that is, and the number of the
checkpoint. A later writer's count more than all of those before, whenever these are written: a
driver that was taken for dead, and goes on, can neither push out nor remove what its successor
writes. Who is later says an empty file that each writes when it begins.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from ps_backend.durability import manifest as manifests
from ps_backend.durability.manifest import Manifest
from ps_backend.durability.stores import Directory, Store
from ps_backend.errors import CheckpointIncomplete, Corrupted, SessionFenced, StoreFailed

_LOG = logging.getLogger(__name__)

_NAME = re.compile(r"ckpt-(\d{6,})-([0-9a-f]{8})-(\d{6,})")
_BEGUN = "begun"
"""An empty file in a folder that has no manifest yet. One alone in its folder is a claim: from then
on the directory belongs to the writer whose name the folder has."""
PART = "part-"
"""What the names of files of arrays begin with."""
KEPT = 2
"""So many of the newest stay: of these the older one counts where the newer one is damaged."""


def names_checkpoint(name: str) -> bool:
    """Whether a folder of this name is a checkpoint, or was to become one."""
    return _NAME.fullmatch(name) is not None


class BrokenOff(CheckpointIncomplete):
    """A checkpoint that was begun and never written to its end: its files are rubbish."""


class _Key(NamedTuple):
    """What orders checkpoints: a later one is greater."""

    epoch: int
    writer: str
    serial: int


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint that is whole, as far as sizes tell; its values are checked as they are read."""

    name: str
    manifest: Manifest


class CheckpointDirectory:
    """Checkpoints in a store; those that it writes are of one writer.

    Raises ``StoreFailed``, and ``SessionFenced`` where a later writer has begun.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._writer, self._epoch = secrets.token_hex(4), 0  # 0: nothing written yet
        self.spares: tuple[str, ...] = ()
        """Files that nothing needs, and that the next checkpoint's may be written over."""

    def claim(self) -> None:
        """From now on what earlier writers write does not count. Repeating it does nothing.

        Removes the rubbish of earlier writers, which may have filled the store.
        """
        if not self._epoch:
            names = self._names()
            keys = [_key(name) for name in names]
            epoch = 1 + max((key.epoch for key in keys), default=0)
            mine = self._next(epoch, keys)
            self._epoch = epoch
            try:
                try:
                    self._begin(mine)
                except StoreFailed:  # without room even for an empty file
                    self._remove_left(names)
                    self._begin(mine)
            except BaseException:
                self._epoch = 0
                raise
            self._remove_left(names)

    def new(self) -> str:
        """Begin a checkpoint: its name, which is later than all that are there."""
        self.claim()
        keys = [_key(name) for name in self._names()]
        self._check_not_fenced(keys)
        name = self._next(self._epoch, keys)
        try:
            self._begin(name)
        except StoreFailed:
            self.discard(name)
            raise
        return name

    def _next(self, epoch: int, keys: list[_Key]) -> str:
        serial = 1 + max((key.serial for key in keys), default=-1)
        return f"ckpt-{epoch:06d}-{self._writer}-{serial:06d}"

    def _begin(self, name: str) -> None:
        with self._named(name):
            self.store.write(f"{name}/{_BEGUN}", [])

    def discard(self, name: str) -> None:
        """Remove checkpoint ``name``, which failed, and all ``spares``: a retry needs the room."""
        spares, self.spares = self.spares, ()
        self._remove_rubbish(name)
        with suppress(OSError):
            for spare in spares:
                self.store.delete(spare)

    def _remove_left(self, names: list[str]) -> None:
        """Remove from ``names`` what earlier writers left, if they were killed.

        Those that were begun and never ended, spare files, and all that the newest two do not need.
        What any manifest names stays. If one is damaged, it is not known what that names: then all
        stays until a newer one is written.
        """
        needed: set[str] = set()
        unfinished = []
        try:
            for name in names:
                try:
                    needed |= self.read(name).manifest.files
                except (CheckpointIncomplete, Corrupted):
                    with self._named(name):
                        inside = self.store.names(name)
                    if manifests.NAME in inside and _BEGUN not in inside:
                        return
                    unfinished.append(name)
            for name in unfinished:
                self._remove_rubbish(name, needed)
            self.collect()
        except StoreFailed as error:
            _LOG.warning("what earlier sessions left in %s stays: %s", self.store.url, error)

    def _remove_rubbish(self, name: str, needed: Iterable[str] = ()) -> None:
        """Remove folder ``name``, but for files that are ``needed``."""
        try:
            with self._named(name):
                self._remove(name, set(needed), spare=False)
        except StoreFailed as error:
            _LOG.warning("%s/%s is rubbish and stays for now: %s", self.store.url, name, error)

    def commit(self, name: str, manifest: Manifest) -> Found:
        """Write the manifest, which makes it one, and read it back, with the sizes of its files.

        From then on it is the newest. ``CheckpointIncomplete`` where a file of it is gone.
        """
        self._check_not_fenced([_key(one) for one in self._names()])
        with self._named(name):
            self.store.write(f"{name}/{manifests.NAME}", [manifest.encode()])
        with suppress(OSError):  # beside a manifest it says nothing
            self.store.delete(f"{name}/{_BEGUN}")
        return self.read(name)

    def read(self, name: str) -> Found:
        """Checkpoint ``name``; ``CheckpointIncomplete``, ``Corrupted``."""
        file = f"{name}/{manifests.NAME}"
        where = f"{self.store.url}/{file}"
        with self._named(name):
            try:
                data = bytearray(self.store.size(file))
                self.store.read(file, 0, memoryview(data))
            except FileNotFoundError:
                raise self._without_manifest(name) from None
            except EOFError as error:
                raise Corrupted(f"{where}: {error}; it is cut off") from None
            found = manifests.decode(bytes(data), where)
            self._check_sizes(found, where)
        return Found(name, found)

    def _without_manifest(self, name: str) -> CheckpointIncomplete:
        lacks = f"{self.store.url}/{name} has no {manifests.NAME}"
        if _BEGUN in self.store.names(name):
            return BrokenOff(
                f"{lacks}: writing it was broken off, so this folder is rubbish; the next session "
                "that writes a checkpoint here removes it"
            )
        return CheckpointIncomplete(f"{lacks}: it was removed after the checkpoint was written")

    def each(self) -> Iterator[Found | CheckpointIncomplete | Corrupted | StoreFailed]:
        """From the newest to the oldest: one that is whole, or what is wrong with it."""
        for name in reversed(self._names()):
            try:
                yield self.read(name)
            except (CheckpointIncomplete, Corrupted, StoreFailed) as error:
                yield error

    def collect(self, *, spare: bool = False) -> None:
        """Remove what the newest two do not need. They have been read back by whoever calls.

        ``spare``: all but the files of arrays of the one before these, which are ``spares`` then.
        """
        self.spares = ()
        names = self._names()
        self._check_not_fenced(list(map(_key, names)))
        kept: list[Found] = []
        for found in self.each():
            if isinstance(found, Found):
                kept.append(found)
                if len(kept) == KEPT:
                    break
        if not kept:
            return
        needed = {file for found in kept for file in found.manifest.files}
        needed |= {f"{found.name}/{manifests.NAME}" for found in kept}
        newest, stay = _key(kept[0].name), [found.name for found in kept]
        for name in reversed(names):
            if _key(name) <= newest:  # else it is being written
                wanted = spare and not self.spares and name not in stay
                with self._named(name):
                    spares = self._remove(name, needed, spare=wanted)
                self.spares = self.spares or spares

    def clear(self) -> None:
        """Remove all checkpoints."""
        self.spares = ()
        for name in self._names():
            with self._named(name):
                self._remove(name, set(), spare=False)

    def _remove(self, name: str, needed: set[str], *, spare: bool) -> tuple[str, ...]:
        """What lies in ``name`` and is not ``needed``, but for what this returns to be spared."""
        inside = self.store.names(name)
        spares = []
        # Its manifest first: what is half removed must not look like a checkpoint.
        for file in sorted(inside, key=lambda one: one != manifests.NAME):
            if f"{name}/{file}" in needed:
                continue
            if spare and file.startswith(PART) and isinstance(self.store, Directory):
                spares.append(f"{name}/{file}")
            else:
                self.store.delete(f"{name}/{file}")
        if not spares:
            self.store.delete(name)
        return tuple(spares)

    def _names(self) -> list[str]:
        """Of all that were begun, oldest first."""
        with self._named("the folder"):
            return sorted(filter(_NAME.fullmatch, self.store.names()), key=_key)

    def _check_not_fenced(self, keys: list[_Key]) -> None:
        last = max(keys, default=None)
        if last is not None and last[:2] > (self._epoch, self._writer):
            raise SessionFenced(
                f"another session has begun to write its checkpoints to {self.store.url}; give "
                "each session a directory of its own"
            )

    @contextmanager
    def _named(self, name: str) -> Iterator[None]:
        """Let trouble of the store say where it was."""
        try:
            yield
        except StoreFailed:
            raise
        except OSError as error:
            raise StoreFailed(f"{self.store.url}, {name}: {error}") from error

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


def _key(name: str) -> _Key:
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is not the name of a checkpoint")
    return _Key(int(match[1]), match[2], int(match[3]))
