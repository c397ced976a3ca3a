"""Checkpoints of NumPy arrays: a directory of `.npz` files, written in the background.

    run1/ckpt-00040.npz  ckpt-00060.npz

Each gets its name once it is on the disk as a whole, so what has the name is complete unless it was
damaged afterwards, which `npz_file.py` notices.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
import warnings
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from optim.core.arrays import Array
from optim.core.checkpoints.errors import Corrupted, NotDurable
from optim.core.checkpoints.npz_file import read, read_back, write

_NAME = re.compile(r"ckpt-(\d{5,})\.npz")
_LOCK = "ckpt.lock"
_KEPT = 2  # the newest, and the one before, in case that the newest gets damaged


class _Checkpoint(NamedTuple):
    number: int
    arrays: dict[str, Array]
    document: Mapping[str, Any]


class NpzKeeper:
    """Keeps checkpoints in `directory`, which is made if need be. One thread, while it writes.

    While one is being written, of those that come in the meantime the last one waits: a slow disk
    makes checkpoints rarer, never the run slower. Each is written to a file of its own, which
    gets its name once it is on the disk; then it is read back, and only then are all but the last
    two deleted.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._unlock = weakref.finalize(self, os.close, _locked(self._directory))
        self._changed = threading.Condition()
        self._waiting: _Checkpoint | None = None
        self._writer: threading.Thread | None = None
        self._trouble: Exception | None = None

    def numbers(self) -> list[int]:
        """Those for which there are files, valid or not, in order."""
        found = (_NAME.fullmatch(name) for name in os.listdir(self._directory))
        return sorted(int(match[1]) for match in found if match)

    def save(
        self,
        number: int,
        arrays: Mapping[str, Array],
        document: Mapping[str, Any],
        *,
        wait: bool = False,
    ) -> None:
        """See `Keeper`."""
        self._warn()
        checkpoint = _Checkpoint(number, dict(arrays), document)
        if wait:
            self._settle()
            self._write(checkpoint)
            return
        with self._changed:
            self._waiting = checkpoint
            if self._writer is None:
                writer = threading.Thread(target=self._work, name="checkpoints")
                writer.start()
                self._writer = writer

    def load(self) -> tuple[int, dict[str, Array], dict[str, Any]] | None:
        """See `Keeper`. A newest file that is damaged is passed over, with a warning."""
        self._settle()
        damaged: list[str] = []
        for number in reversed(self.numbers()):
            try:
                arrays, document = read(self._path(number))
            except (Corrupted, OSError) as error:
                damaged.append(str(error))
                continue
            if damaged:
                _warn_of(f"the checkpoint before is taken, {number}: {damaged[0]}")
            return number, arrays, document
        if damaged:
            raise Corrupted(
                f"no checkpoint in {self._directory} can be read; begin anew in another directory. "
                + "; ".join(damaged)
            )
        return None

    def recovers(self, error: Exception) -> bool:
        """No: memory of this process is lost with it only."""
        return False

    def close(self) -> None:
        """See `Keeper`."""
        self._settle()
        self._unlock()
        self._warn()

    def _settle(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._writer is None)

    def _warn(self) -> None:
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            _warn_of(f"a checkpoint could not be kept in {self._directory}: {trouble}")

    def _work(self) -> None:
        """The thread: writes what waits, until nothing does."""
        while (checkpoint := self._next()) is not None:
            try:
                self._write(checkpoint)
            except (OSError, ValueError, MemoryError) as error:
                self._trouble = error

    def _next(self) -> _Checkpoint | None:
        """What waits; if nothing does, the thread has ended."""
        with self._changed:
            checkpoint, self._waiting = self._waiting, None
            if checkpoint is None:
                self._writer = None
                self._changed.notify_all()
            return checkpoint

    def _path(self, number: int) -> Path:
        return self._directory / f"ckpt-{number:05d}.npz"

    def _write(self, checkpoint: _Checkpoint) -> None:
        for left in self._directory.glob("ckpt-*.npz.tmp"):
            left.unlink()  # of a process that was killed
        path = self._path(checkpoint.number)
        partial = path.with_name(f"{path.name}.tmp")
        try:
            with partial.open("xb") as file:
                end = write(file, checkpoint.arrays, checkpoint.document)
                size = file.seek(0, os.SEEK_END)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        self._sync()
        read_back(path, size, end)
        for number in self.numbers()[:-_KEPT]:
            self._path(number).unlink()

    def _sync(self) -> None:
        """Let the directory know the new name, whatever happens to the machine."""
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _locked(directory: Path) -> int:
    """A descriptor that keeps other processes from writing there, until it is closed."""
    descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        os.close(descriptor)
        raise ValueError(
            f"checkpoint={str(directory)!r}: another process that is alive keeps its checkpoints "
            "there; end it, or give another directory"
        ) from None
    except OSError:
        pass  # a file system without locks
    return descriptor


def _warn_of(text: str) -> None:
    warnings.warn(text, NotDurable, stacklevel=6)
