"""Where files of arrays lie: a directory, a URL that fsspec knows, or stores restricted to some."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from ps_backend.errors import StoreUnseen


class System(Protocol):
    """Those of ``os`` by the same names. All raise ``OSError``."""

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        """A descriptor."""

    def close(self, fd: int, /) -> None:
        """End it."""

    def write(self, fd: int, data: memoryview, /) -> int:
        """Write where it stands, some bytes at least; how many."""

    def preadv(self, fd: int, buffers: Sequence[memoryview], offset: int, /) -> int:
        """Read from there into the buffers, some bytes at least; how many."""

    def lseek(self, fd: int, position: int, how: int, /) -> int:
        """Let it stand elsewhere."""

    def ftruncate(self, fd: int, length: int, /) -> None:
        """Let the file be so long."""

    def fsync(self, fd: int, /) -> None:
        """Make a file, or the names in a folder, durable."""

    def stat(self, path: Path) -> os.stat_result:
        """Size and kind."""

    def fstat(self, fd: int) -> os.stat_result:
        """The same of an open file."""

    def listdir(self, path: Path) -> list[str]:
        """The names in a folder."""

    def mkdir(self, path: Path) -> None:
        """Make a folder."""

    def rmdir(self, path: Path) -> None:
        """Remove an empty one."""

    def unlink(self, path: Path) -> None:
        """Remove a file."""

    def link(self, path: Path, to: Path) -> None:
        """Let a file have another name besides; ``FileExistsError`` where something has it."""

    def replace(self, path: Path, to: Path) -> None:
        """Let a file have another name, instead of the one that has it."""


_MODE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_WRITABLE_BY_OWNER = 0o666  # less what umask takes


class Store(Protocol):
    """Files by name; ``/`` in a name leads into folders. All methods raise ``OSError``."""

    @property
    def url(self) -> str:
        """What ``open_store`` makes this store of, in another process too."""

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> int:
        """A new file of ``chunks``, durable on return; the number of its bytes.

        ``FileExistsError`` where there is one. If it fails in between, nothing has that name.
        """

    def replace(self, name: str, chunks: Iterable[bytes | memoryview]) -> int:
        """As ``write``, instead of the file of that name; if it fails, the old one stays."""

    def read(self, name: str, start: int, into: memoryview) -> None:
        """Fill ``into`` from byte ``start`` on; ``EOFError`` if the file is shorter."""

    def size(self, name: str) -> int:
        """Bytes of a file; ``FileNotFoundError``."""

    def names(self, folder: str = "") -> list[str]:
        """What lies in ``folder``, files and folders, sorted; none if it is not there."""

    def delete(self, name: str) -> None:
        """Remove a file, or an empty folder; what is not there, or not empty, is let be."""


LOCAL = ("file://", "local://")
"""URLs of files of this machine begin so."""


def open_store(url: str | os.PathLike[str]) -> Store:
    """The store at a path, or at a URL such as ``s3://bucket/run1``; nothing is made yet.

    ``ImportError`` where the URL needs a package that is not installed.
    """
    text = os.fspath(url)
    if text.startswith(LOCAL):
        return Directory(text.partition("://")[2])
    return Remote(text) if "://" in text else Directory(text)


class Directory:
    """Files in a folder of this machine, or of one that it mounts."""

    def __init__(self, path: str | os.PathLike[str], *, system: System = os) -> None:
        self._path = Path(path).expanduser().absolute()
        self._os = system
        self._is_named = False
        """Whether the names of the folders that lead here are durable."""

    @property
    def url(self) -> str:
        """The absolute path."""
        return str(self._path)

    def write(
        self, name: str, chunks: Iterable[bytes | memoryview], *, spare: str | None = None
    ) -> int:
        """As ``Store.write``: the file is on the disk, and so is its name.

        ``spare``: a file that nobody needs, and nobody else writes to. Where it can be, it is
        written over and becomes this one: its pages are there, and fresh ones cost as much as the
        writing. In no case it is there afterwards with other contents under its old name.
        """
        path = self._at(name)
        made = self._make_folders(path.parent)
        taken = None if spare is None else self._take(self._at(spare), path)
        file = self._os.open(path, _MODE, _WRITABLE_BY_OWNER) if taken is None else taken
        try:
            try:
                size = sum(self._write_all(file, chunk) for chunk in chunks)
                if taken is not None:
                    self._os.ftruncate(file, size)
                self._os.fsync(file)
            finally:
                self._os.close(file)
            for folder in (path.parent, *made):
                self._sync_folder(folder)
            self._sync_above()
        except BaseException:
            # After a failed fsync the kernel may take the pages for clean: the file is never used.
            with suppress(OSError):
                self._os.unlink(path)
            raise
        return size

    def replace(self, name: str, chunks: Iterable[bytes | memoryview]) -> int:
        """As ``Store.replace``."""
        return _replace(self, self.rename, name, chunks)

    def rename(self, name: str, to: str) -> None:
        """Let a file have another name, also instead of the file that has it; durable on return."""
        path = self._at(to)
        self._os.replace(self._at(name), path)
        self._sync_folder(path.parent)

    def begin(self, name: str, head: bytes, size: int) -> None:
        """A new file of ``size`` bytes that begins with ``head``; the rest comes by ``write_into``.

        ``FileExistsError`` where there is one. Its name is durable once another file has got its
        own in the same folder, by ``write`` or ``rename``.
        """
        path = self._at(name)
        made = self._make_folders(path.parent)
        file = self._os.open(path, _MODE, _WRITABLE_BY_OWNER)
        try:
            self._write_all(file, head)
            self._os.ftruncate(file, size)
        finally:
            self._os.close(file)
        for folder in made:
            self._sync_folder(folder)

    def write_into(
        self, name: str, head: bytes, places: Iterable[tuple[int, Iterable[bytes | memoryview]]]
    ) -> None:
        """Write at places of a file that begins with ``head``; durable on return.

        ``FileNotFoundError`` where there is none such.
        """
        path = self._at(name)
        file = self._os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            found = bytearray(len(head))
            if self._read_all(file, memoryview(found), 0) < len(head) or found != head:
                raise FileNotFoundError(f"{path} is another file here")
            for offset, chunks in places:
                self._os.lseek(file, offset, os.SEEK_SET)
                for chunk in chunks:
                    self._write_all(file, chunk)
            self._os.fsync(file)
        finally:
            self._os.close(file)

    def read(self, name: str, start: int, into: memoryview) -> None:
        """As ``Store.read``."""
        path = self._at(name)
        file = self._os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if start > self._os.fstat(file).st_size:  # also beyond all that can be sought
                raise EOFError(f"{path} ends before byte {start}")
            got = self._read_all(file, into, start)
        finally:
            self._os.close(file)
        if got < len(into):
            raise EOFError(f"{path} ends at byte {start + got}")

    def size(self, name: str) -> int:
        """As ``Store.size``."""
        return self._os.stat(self._at(name)).st_size

    def names(self, folder: str = "") -> list[str]:
        """As ``Store.names``."""
        try:
            return sorted(self._os.listdir(self._at(folder)))
        except FileNotFoundError:
            return []

    def delete(self, name: str) -> None:
        """As ``Store.delete``."""
        path = self._at(name)
        with suppress(FileNotFoundError):
            # First of all, is it there? To unlink nothing is an error on a read-only disk.
            if not stat.S_ISDIR(self._os.stat(path).st_mode):
                self._os.unlink(path)
            elif not self._os.listdir(path):
                self._os.rmdir(path)

    def _take(self, spare: Path, path: Path) -> int | None:
        """``spare``, opened to be written over, under its new name; None if that cannot be.

        ``FileExistsError`` as of a new file: so it is linked, as a renamed one would push out what
        is there.
        """
        try:
            self._os.link(spare, path)
        except FileExistsError:
            raise
        except OSError:  # it is gone, or files have one name each here
            return None
        try:
            self._os.unlink(spare)
            # Also that no manifest there names it any more is durable before it changes.
            self._sync_folder(spare.parent)
            file = self._os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            if self._os.fstat(file).st_nlink == 1:  # else somebody keeps it under a name of theirs
                return file
            self._os.close(file)
        except OSError:
            pass
        self._os.unlink(path)
        return None

    def _at(self, name: str) -> Path:
        return self._path / name

    def _is_folder(self, path: Path) -> bool:
        try:
            return stat.S_ISDIR(self._os.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _make_folders(self, folder: Path) -> list[Path]:
        """Make it and those above; returns the folders that got a new name in them."""
        if self._is_folder(folder):
            return []
        above = self._make_folders(folder.parent)
        try:
            self._os.mkdir(folder)
        except FileExistsError:  # another process made it just now
            if not self._is_folder(folder):
                raise
        return [folder.parent, *above]

    def _sync_folder(self, folder: Path) -> None:
        """Make the names in it durable."""
        file = self._os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._os.fsync(file)
        finally:
            self._os.close(file)

    def _sync_above(self) -> None:
        """Once: who made the folders before may have died before their names were durable."""
        if not self._is_named:
            for folder in self._path.parents:
                with suppress(PermissionError):  # then it was not made by one of us
                    self._sync_folder(folder)
            self._is_named = True

    def _write_all(self, file: int, chunk: bytes | memoryview) -> int:
        """Write the whole of ``chunk``, which the system may take in several pieces; its length."""
        rest = memoryview(chunk)
        while rest:
            rest = rest[self._os.write(file, rest) :]
        return len(chunk)

    def _read_all(self, file: int, into: memoryview, start: int) -> int:
        """Fill ``into`` from byte ``start`` on, as far as the file goes; how many bytes."""
        got = 0
        while got < len(into):
            count = self._os.preadv(file, [into[got:]], start + got)
            if not count:
                break
            got += count
        return got


class Remote:
    """Objects at a URL, by fsspec. They are there whole or not at all."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise ImportError(
                f"{url} needs fsspec: pip install 'distvec[store]', and the package of its kind "
                "(s3fs, gcsfs, adlfs, ...)"
            ) from error
        self._url = url if url.endswith("://") else url.rstrip("/")
        found: tuple[Any, str] = url_to_fs(self._url)
        self._files, self._root = found

    @property
    def url(self) -> str:
        """As it was given."""
        return self._url

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> int:
        """As ``Store.write``; that no other process writes the same name follows from names."""
        path = self._at(name)
        if self._files.exists(path):
            raise FileExistsError(f"{self._url}/{name} is there already")
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        size = 0
        try:
            with self._files.open(path, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                    size += len(chunk)
        except BaseException:
            with suppress(OSError):
                self._files.rm_file(path)
            raise
        self._files.invalidate_cache()
        return size

    def replace(self, name: str, chunks: Iterable[bytes | memoryview]) -> int:
        """As ``Store.replace``: of what was broken off, a part would be left under the name."""
        return _replace(self, self._rename, name, chunks)

    def _rename(self, name: str, to: str) -> None:
        self._files.mv(self._at(name), self._at(to))
        self._files.invalidate_cache()

    def read(self, name: str, start: int, into: memoryview) -> None:
        """As ``Store.read``."""
        data = self._files.cat_file(self._at(name), start=start, end=start + len(into))
        if len(data) != len(into):
            raise EOFError(f"{self._url}/{name} ends at byte {start + len(data)}")
        into[:] = data

    def size(self, name: str) -> int:
        """As ``Store.size``."""
        return int(self._files.size(self._at(name)))

    def names(self, folder: str = "") -> list[str]:
        """As ``Store.names``."""
        self._files.invalidate_cache()
        try:
            found = self._files.ls(self._at(folder), detail=False)
        except FileNotFoundError:
            return []
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    def delete(self, name: str) -> None:
        """As ``Store.delete``."""
        path = self._at(name)
        with suppress(FileNotFoundError):
            if not self._files.isdir(path):
                self._files.rm_file(path)
            elif not self._files.ls(path, detail=False):
                self._files.rmdir(path)

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")


def _replace(
    store: Store,
    rename: Callable[[str, str], None],
    name: str,
    chunks: Iterable[bytes | memoryview],
) -> int:
    """Write a file, and then let it have the ``name``; if that fails, the old one stays."""
    fresh = beside(name)
    size = store.write(fresh, chunks)
    try:
        rename(fresh, name)
    except BaseException:
        store.delete(fresh)
        raise
    return size


def beside(name: str) -> str:
    """A name in the same folder for what becomes ``name`` when it is whole."""
    folder, slash, own = name.rpartition("/")
    return f"{folder}{slash}.{own}.{secrets.token_hex(8)}.part"


class RestrictedDirectory(Directory):
    """A directory whose files must lie, after all links, in one of ``roots``."""

    def __init__(self, path: str, roots: Iterable[Path]) -> None:
        super().__init__(path)
        self._roots = tuple(roots)

    def _at(self, name: str) -> Path:
        path = Path(os.path.realpath(super()._at(name)))
        if not any(path.is_relative_to(root) for root in self._roots):
            listed = ", ".join(map(str, self._roots)) or "none"
            raise StoreUnseen(
                f"{path} is not in a folder that clients of this server can name ({listed}); "
                f"start it with: distvec serve --store {os.path.realpath(self.url)}"
            )
        return path


class RestrictedRemote(Remote):
    """Objects at a URL, none of whose names leads above it."""

    def _at(self, name: str) -> str:
        if ".." in name.split("/"):
            raise StoreUnseen(f"{self.url}/{name} is outside the folder of distvec serve --store")
        return super()._at(name)


def open_within(places: Iterable[str | os.PathLike[str]]) -> Callable[[str], Store]:
    """As ``open_store``, for what lies in ``places``, folders or URLs; ``StoreUnseen`` else."""
    given = [os.fspath(one) for one in places]
    folders = [one for one in given if _is_folder(one)]
    roots = [Path(os.path.realpath(open_store(one).url)) for one in folders]
    urls = [one.rstrip("/") for one in given if not _is_folder(one)]

    def open_confined(url: str) -> Store:
        if _is_folder(url):
            return RestrictedDirectory(open_store(url).url, roots)
        below = any(url == one or url.startswith(f"{one}/") for one in urls)
        if not below or ".." in url.split("/"):
            raise StoreUnseen(f"clients may not name {url} here; start the server with: distvec "
                              f"serve --store {url}")  # fmt: skip
        return RestrictedRemote(url)

    return open_confined


def _is_folder(place: str) -> bool:
    """Told without opening what a stranger names."""
    return "://" not in place or place.startswith(LOCAL)
