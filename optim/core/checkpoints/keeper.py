"""Checkpoint stores: their interface, and a directory of `.npz` files, written by a thread.

    run1/ckpt-00040.npz  ckpt-00060.npz

A file gets its name once it is complete on the disk. It is a zip, not compressed, of
`document.json` and the arrays as `.npy`: `numpy.load` reads it. Its comment, at the end of the
file, is the CRC-32 of all of it, taken with the comment of `_EMPTY`: every flipped bit and missing
byte is found. Arrays of other libraries are converted by NumPy.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import threading
import warnings
import weakref
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from optim.core.arrays import Array, namespace


class Corrupted(ValueError):
    """A checkpoint is incomplete, damaged, or not of a run; the text names file and cause."""


class NotDurable(RuntimeWarning):
    """A checkpoint could not be written, or an older one is used; the run continues."""


class Keeper(Protocol):
    """A checkpoint store of one run; the newest valid checkpoint counts.

    A checkpoint is its number, arrays by name, and a document of JSON values: dicts with strings as
    keys, lists, strings, True, False, None, and finite numbers, which json.dumps writes exactly.
    All arrays are of one library and, if it has sessions, of one session. Their dtypes and shapes
    may differ, and rank 0 is a shape. They have been evaluated, and are not written to after
    `save`.

    An array library that has stores of its own offers them by its namespace:
    `namespace.keeper(directory)` is the store for the checkpoints in `directory`, or with None the
    store of the session itself; None if the session keeps no checkpoints. Several runs may use the
    store of a session, one after the other, each with numbers from 0. Its newest checkpoint is the
    one that was saved last.
    """

    def save(
        self,
        number: int,
        arrays: Mapping[str, Array],
        document: Mapping[str, Any],
        *,
        wait: bool = False,
    ) -> None:
        """Begin to write checkpoint `number`, about the iteration, with the present values.

        Returns immediately, and reports a failure as a warning. With `wait` it returns once the
        checkpoint would survive the machine's end, and raises the error. Numbers rise within a run;
        after `load`, from the number that it gave. A failure does not harm older checkpoints.
        """

    def load(self) -> tuple[int, dict[str, Array], dict[str, Any]] | None:
        """Return number, arrays and document of the newest valid checkpoint, or None.

        Waits for checkpoints that `save` has begun. Raises a ValueError with the cause if there are
        checkpoints but all are invalid.
        """

    def recovers(self, error: Exception) -> bool:
        """Whether `error` was a loss, and all arrays are again as at the newest checkpoint.

        Then the run can `load` it and continue. False: the error does not concern the store. The
        call may take as long as the recovery takes.
        """

    def close(self) -> None:
        """Wait for checkpoints that `save` has begun, and release threads and files.

        A failure is a warning. The store cannot be used any more.
        """


@dataclass(frozen=True)
class Layout:
    """Axes from the slowest to the fastest, and the shape, along which elements may be repeated."""

    axes: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def of_array(cls, x: npt.NDArray[Any]) -> Layout:
        """The layout of `x`."""
        strides = [
            0 if length == 1 else abs(s) for s, length in zip(x.strides, x.shape, strict=True)
        ]
        if x.flags.c_contiguous:
            return cls(tuple(range(x.ndim)), x.shape)
        return cls(tuple(sorted(range(x.ndim), key=lambda axis: -strides[axis])), x.shape)

    def pack(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The elements of `x`, each once, in C order; without a copy if they lie so."""
        lengths = zip(x.strides, x.shape, strict=True)
        once = tuple(slice(0, 1) if s == 0 and n > 1 else slice(None) for s, n in lengths)
        return np.asarray(x[(*once, ...)].transpose(self.axes), order="C")

    def unpack(self, elements: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The array again. Raises ValueError if that cannot be."""
        x = elements.transpose(np.argsort(self.axes))
        return x if x.shape == self.shape else np.broadcast_to(x, self.shape)

    def to_json(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


_DOCUMENT = "document.json"
_COMMENT = "crc32={:08x}"
_EMPTY = _COMMENT.format(0).encode()
_CHUNK = 1 << 20
_PIECE = 1 << 18


def write(file: BinaryIO, arrays: Mapping[str, Array], document: Mapping[str, Any]) -> bytes:
    """Write a checkpoint to the new `file`; how that ends. Raises OSError."""
    stream = _Stream(file)
    layouts = {name: Layout.of_array(x) for name, x in arrays.items()}
    whole = {
        "document": document,
        "layouts": {name: layout.to_json() for name, layout in layouts.items()},
    }
    with zipfile.ZipFile(cast(BinaryIO, stream), "w") as archive:
        archive.comment = _EMPTY
        archive.writestr(_DOCUMENT, json.dumps(whole, allow_nan=False))
        for name, x in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                _write(member, layouts[name].pack(x))
    end = _COMMENT.format(stream.crc).encode()
    file.seek(-len(end), os.SEEK_END)
    file.write(end)
    return end


def _write(member: IO[bytes], x: Array) -> None:
    """`x`, in C order, as .npy; piece by piece, so that a piece stays in the cache, and no copy."""
    np.lib.format.write_array_header_2_0(member, np.lib.format.header_data_from_array_1_0(x))
    content = memoryview(x.reshape(-1).view(np.uint8))
    for low in range(0, len(content), _PIECE):
        member.write(content[low : low + _PIECE])


class _Stream:
    """A file for zip to write, which cannot be sought in, with the CRC-32 of its content."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.crc = 0

    def write(self, content: Any) -> int:
        """Append `content`."""
        self.crc = zlib.crc32(content, self.crc)
        return self._file.write(content)

    def flush(self) -> None:
        """Flush the file."""
        self._file.flush()


def read_back(path: Path, size: int, end: bytes) -> None:
    """Whether the file is there as it was written. Raises `Corrupted`, or OSError."""
    with path.open("rb") as file:
        found_size = file.seek(-len(end), os.SEEK_END) + len(end)
        found = file.read()
    if (found_size, found) != (size, end):
        raise Corrupted(
            f"{path} has {found_size} of {size} bytes on the disk and ends with {found!r}"
        )


def check(path: Path) -> None:
    """Read all of the file. Raises `Corrupted` unless it is whole, OSError if it cannot be read."""
    rest, crc = path.stat().st_size - len(_EMPTY), 0
    with path.open("rb") as file:
        while chunk := file.read(max(min(_CHUNK, rest), 0)):
            crc = zlib.crc32(chunk, crc)
            rest -= len(chunk)
        found, expected = file.read(), _COMMENT.format(zlib.crc32(_EMPTY, crc)).encode()
    if rest or found != expected:
        raise Corrupted(
            f"{path} is incomplete or damaged: it ends with {found!r:.30}, expected {expected!r}"
        )


def read(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays and document of a checkpoint. Raises `Corrupted`, or OSError."""
    check(path)
    try:
        with zipfile.ZipFile(path) as archive:
            whole = json.loads(archive.read(_DOCUMENT))
            arrays = {
                name: _read_array(archive, name, own) for name, own in whole["layouts"].items()
            }
        return arrays, whole["document"]
    except (zipfile.BadZipFile, LookupError, TypeError, ValueError) as error:
        raise Corrupted(f"{path} is a complete file, but not a checkpoint: {error!r}") from error


def _read_array(archive: zipfile.ZipFile, name: str, layout: Mapping[str, Any]) -> Array:
    with archive.open(f"{name}.npy") as member:
        elements = np.lib.format.read_array(member, allow_pickle=False)
    return Layout(tuple(layout["axes"]), tuple(layout["shape"])).unpack(elements)


_NAME = re.compile(r"ckpt-(\d{5,})\.npz")
_LOCK = "ckpt.lock"
_KEPT = 2  # The newest, and the one before, which serves if the newest gets damaged.


class _Checkpoint(NamedTuple):
    number: int
    arrays: dict[str, Array]
    document: Mapping[str, Any]


class NpzKeeper:
    """Keeps checkpoints in `directory`, which is made if need be. One thread, while it writes.

    While one checkpoint is written, only the newest of the next ones waits: a slow disk makes
    checkpoints rarer, but not the run slower. Each is written to a file of its own, which gets its
    name once it is on the disk. Then it is read back, and only then are all but the last two
    deleted.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._unlock = weakref.finalize(self, os.close, _lock(self._directory))
        self._changed = threading.Condition()
        self._waiting: _Checkpoint | None = None
        self._writer: threading.Thread | None = None
        self._trouble: Exception | None = None

    def numbers(self) -> list[int]:
        """The numbers for which there are files, valid or not, in order."""
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
        """See `Keeper`. If the newest file is damaged, the one before is used, with a warning."""
        self._settle()
        damaged: list[str] = []
        for number in reversed(self.numbers()):
            try:
                arrays, document = read(self._path(number))
            except (Corrupted, OSError) as error:
                damaged.append(str(error))
                continue
            if damaged:
                _warn_of(f"the older checkpoint {number} is used: {damaged[0]}")
            return number, arrays, document
        if damaged:
            raise Corrupted(
                f"no checkpoint in {self._directory} can be read; start again in another one. "
                + "; ".join(damaged)
            )
        return None

    def recovers(self, error: Exception) -> bool:
        """False: the memory of this process is lost only together with the process."""
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
            _warn_of(f"a checkpoint could not be written in {self._directory}: {trouble}")

    def _work(self) -> None:
        """Write the checkpoints that wait, until there are no more; runs in the thread."""
        while (checkpoint := self._next()) is not None:
            try:
                self._write(checkpoint)
            except (OSError, ValueError, MemoryError) as error:
                self._trouble = error

    def _next(self) -> _Checkpoint | None:
        """Return the checkpoint that waits; without one, the thread has ended."""
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
            left.unlink()  # A process that was killed left it.
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


def _lock(directory: Path) -> int:
    """A descriptor that keeps other processes from writing there, until it is closed."""
    descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        os.close(descriptor)
        raise ValueError(
            f"checkpoint={str(directory)!r}: another running process writes its checkpoints there; "
            "end that process, or give another directory"
        ) from None
    except OSError:
        pass  # The file system has no locks.
    return descriptor


def _warn_of(text: str) -> None:
    warnings.warn(text, NotDurable, stacklevel=6)


@dataclass(frozen=True)
class ThroughNumPy:
    """A store for arrays like `x`, which share their memory with NumPy's by DLPack.

    Raises NotImplementedError for arrays that are not in main memory, or of a dtype that NumPy
    lacks.
    """

    keeper: NpzKeeper
    x: Array

    def save(
        self,
        number: int,
        arrays: Mapping[str, Array],
        document: Mapping[str, Any],
        *,
        wait: bool = False,
    ) -> None:
        """See `Keeper`."""
        self.keeper.save(
            number, {name: _as_numpy(x) for name, x in arrays.items()}, document, wait=wait
        )

    def load(self) -> tuple[int, dict[str, Array], dict[str, Any]] | None:
        """See `Keeper`."""
        found = self.keeper.load()
        if found is None:
            return None
        number, arrays, document = found
        xp = namespace(self.x)
        return number, {name: xp.from_dlpack(x) for name, x in arrays.items()}, document

    def recovers(self, error: Exception) -> bool:
        """False, as for the store that it uses."""
        return self.keeper.recovers(error)

    def close(self) -> None:
        """See `Keeper`."""
        self.keeper.close()


def _as_numpy(x: Array) -> Array:
    """`x` as a NumPy array, without a copy."""
    plain = x.detach() if hasattr(x, "detach") else x
    try:
        return np.from_dlpack(plain)
    except (BufferError, RuntimeError, TypeError) as error:
        raise NotImplementedError(
            f"checkpoint=...: NumPy cannot read a {type(x).__name__} of {x.dtype} on "
            f"{getattr(x, 'device', 'its device')}; minimise on arrays in main memory, or "
            "keep the states of iterations(...) yourself and continue with resume=state"
        ) from error
