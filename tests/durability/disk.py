"""A disk in memory that knows what was made durable, and what a crash may leave of the rest."""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from distvec.durability.checkpoints import Checkpoints
from ps_backend.durability.checkpoint_directory import KEPT, CheckpointDirectory, Found
from ps_backend.durability.manifest import NAME

SECTOR = 512


@dataclass(eq=False)
class File:
    """Bytes of now, and those that a crash leaves for sure."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    is_clean: bool = False
    """A write-back failed, so the system takes its pages for written."""


@dataclass(eq=False)
class Names:
    """Names of now, and those that a crash leaves for sure."""

    names: dict[str, Entry] = field(default_factory=dict)
    durable: dict[str, Entry] = field(default_factory=dict)


Entry = File | Names


@dataclass
class _Open:
    entry: Entry
    path: Path
    at: int = 0


Before = Callable[[str, Path], None]
"""Called before each call, with its name and path; may raise, or wait."""


class Disk:
    """The calls that a directory of files takes (``System``); ``before`` may let them fail."""

    def __init__(self, before: Before | None = None) -> None:
        self.root = Names()
        self.before = before
        self._open: dict[int, _Open] = {}
        self._last = 2

    # --- what a machine does ------------------------------------------------------------------

    def seen_by(self, before: Before) -> Disk:
        """The same disk, for somebody whose calls fail otherwise."""
        other = Disk(before)
        other.root = self.root
        return other

    def crash(self, seed: random.Random) -> None:
        """Keep what is durable, and any part of the rest: names, and sectors of files."""
        _crash(self.root, seed)

    def files(self, start: str = "/") -> dict[str, File]:
        """All files below ``start``, by their paths."""
        found = {}

        def walk(folder: Names, path: str) -> None:
            for name, entry in sorted(folder.names.items()):
                if isinstance(entry, File):
                    found[f"{path}{name}"] = entry
                else:
                    walk(entry, f"{path}{name}/")

        walk(self.root, "/")
        return {path: file for path, file in found.items() if path.startswith(start)}

    # --- the calls of ``os`` ------------------------------------------------------------------

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        self._call("open", path)
        folder, name = self._parent(path)
        entry = folder.names.get(name)
        if entry is not None and flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "File exists", str(path))
        if entry is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
            entry = folder.names[name] = File()
        self._last += 1
        self._open[self._last] = _Open(entry, path)
        return self._last

    def close(self, fd: int) -> None:
        del self._open[fd]

    def write(self, fd: int, data: memoryview) -> int:
        one, file = self._file("write", fd)
        file.data[one.at : one.at + len(data)] = data
        one.at += len(data)
        return len(data)

    def preadv(self, fd: int, buffers: list[memoryview], offset: int) -> int:
        _, file = self._file("read", fd)
        (into,) = buffers
        data = file.data[offset : offset + len(into)]
        into[: len(data)] = data
        return len(data)

    def lseek(self, fd: int, position: int, how: int) -> int:
        self._open[fd].at = position
        return position

    def ftruncate(self, fd: int, length: int) -> None:
        _, file = self._file("write", fd)
        del file.data[length:]
        file.data.extend(bytes(length - len(file.data)))

    def fsync(self, fd: int) -> None:
        one = self._open[fd]
        try:
            self._call("fsync", one.path)
        except OSError:
            if isinstance(one.entry, File):
                one.entry.is_clean = True
            raise
        if isinstance(one.entry, Names):
            one.entry.durable = dict(one.entry.names)
        elif not one.entry.is_clean:
            one.entry.durable = bytes(one.entry.data)

    def stat(self, path: Path) -> os.stat_result:
        self._call("stat", path)
        return self._stat(self._entry(path))

    def fstat(self, fd: int) -> os.stat_result:
        _, file = self._file("stat", fd)
        return self._stat(file)

    def _stat(self, entry: Entry) -> os.stat_result:
        is_file = isinstance(entry, File)
        size = len(entry.data) if isinstance(entry, File) else 0
        mode = stat.S_IFREG if is_file else stat.S_IFDIR
        links = sum(one is entry for one in self.files().values()) if is_file else 2
        return os.stat_result((mode, 0, 0, links, 0, 0, size, 0, 0, 0))

    def listdir(self, path: Path) -> list[str]:
        self._call("list", path)
        entry = self._entry(path)
        if isinstance(entry, File):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(path))
        return list(entry.names)

    def mkdir(self, path: Path) -> None:
        self._call("mkdir", path)
        folder, name = self._parent(path)
        if name in folder.names:
            raise FileExistsError(errno.EEXIST, "File exists", str(path))
        folder.names[name] = Names()

    def rmdir(self, path: Path) -> None:
        self._call("rmdir", path)
        folder, name = self._parent(path)
        if folder.names[name].names:  # type: ignore[union-attr]
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))
        del folder.names[name]

    def unlink(self, path: Path) -> None:
        self._call("unlink", path)
        folder, name = self._parent(path)
        if name not in folder.names:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        del folder.names[name]

    def link(self, path: Path, to: Path) -> None:
        self._call("link", path)
        (here, old), (there, new) = self._parent(path), self._parent(to)
        if old not in here.names:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        if new in there.names:
            raise FileExistsError(errno.EEXIST, "File exists", str(to))
        there.names[new] = here.names[old]

    def replace(self, path: Path, to: Path) -> None:
        self._call("replace", path)
        (here, old), (there, new) = self._parent(path), self._parent(to)
        there.names[new] = here.names.pop(old)

    # --- within -------------------------------------------------------------------------------

    def _call(self, name: str, path: Path) -> None:
        if self.before is not None:
            self.before(name, path)

    def _file(self, name: str, fd: int) -> tuple[_Open, File]:
        one = self._open[fd]
        self._call(name, one.path)
        assert isinstance(one.entry, File)
        return one, one.entry

    def _entry(self, path: Path) -> Entry:
        entry: Entry = self.root
        for name in path.parts[1:]:
            if isinstance(entry, File):
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(path))
            if name not in entry.names:
                raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
            entry = entry.names[name]
        return entry

    def _parent(self, path: Path) -> tuple[Names, str]:
        if path == path.parent:
            return Names({"": self.root}), ""
        entry = self._entry(path.parent)
        if isinstance(entry, File):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(path))
        return entry, path.name


def unneeded(disk: Disk, checkpoints: Checkpoints) -> list[str]:
    """Files on ``disk`` that neither the newest two checkpoints there need nor the next takes."""
    whole = [
        one for one in CheckpointDirectory(checkpoints.store).each() if isinstance(one, Found)
    ][:KEPT]
    needed = {file for one in whole for file in one.manifest.files}
    needed |= {f"{one.name}/{NAME}" for one in whole}
    needed |= set(checkpoints.spares)
    url = f"{checkpoints.store.url}/"
    return [path for path in disk.files(url) if path.removeprefix(url) not in needed]


def _crash(entry: Entry, seed: random.Random) -> None:
    if isinstance(entry, File):
        entry.data = bytearray(_torn(bytes(entry.data), entry.durable, seed))
        entry.durable, entry.is_clean = bytes(entry.data), False
        return
    for name in sorted({*entry.names, *entry.durable}):
        now, durable = entry.names.get(name), entry.durable.get(name)
        left = now if now is durable else seed.choice([now, durable])
        if left is None:
            entry.names.pop(name, None)
        else:
            entry.names[name] = left
            _crash(left, seed)
    entry.durable = dict(entry.names)


def _torn(now: bytes, durable: bytes, seed: random.Random) -> bytes:
    """Each sector is that of now, or the durable one; zeros where there was none."""
    if now == durable:
        return now
    ends = {len(now), len(durable)}
    length = seed.choice([*ends, seed.randrange(max(ends) + 1)])
    made = bytearray()
    for start in range(0, length, SECTOR):
        made += seed.choice([now, durable])[start : start + SECTOR].ljust(SECTOR, b"\0")
    return bytes(made[:length])
