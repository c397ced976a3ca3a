"""Damaged files are told by name, and saving that fails leaves what was there."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import distvec as dv
from ps_backend.client import Client
from ps_backend.durability.stores import Directory, open_store
from ps_backend.errors import StoreFailed
from ps_backend.in_process import InProcess
from ps_backend.server.service import Service

NAMES = ("m.safetensors", "m.npy", "folder")
OLD, NEW = np.arange(3000.0), np.arange(3000.0) + 0.5


def files_in(path: Path) -> list[Path]:
    """The files that are ``path``: itself, or those of the folder."""
    return sorted(path.iterdir()) if path.is_dir() else [path]


@pytest.mark.parametrize("name", NAMES)
def test_cut_off_at_every_byte(tmp_path, name):
    path, values = tmp_path / name, np.arange(5.0)
    dv.save(path, w=values)
    for file in files_in(path):
        data = file.read_bytes()
        for size in range(len(data)):
            file.write_bytes(data[:size])
            if name == "m.npy" and data[size:].startswith(b"distvec-crc32"):
                assert dv.load(path)["m"].tolist() == values.tolist()  # whole, without checksums
                continue
            with pytest.raises(dv.Corrupted, match=name):
                dv.load(path)
        file.write_bytes(data)


@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_bit_in_any_byte_is_found(tmp_path, name):
    path, values = tmp_path / name, np.arange(5.0)
    texts = {} if name == "m.npy" else {"by": "us"}
    dv.save(path, w=values, metadata=texts)
    for file in files_in(path):
        data = file.read_bytes()
        for at in range(len(data)):
            mask = 1 << at % 8
            file.write_bytes(data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :])
            try:
                found = dv.load(path)
            except (dv.Corrupted, TypeError):
                continue
            # In parts of a folder, whose manifest says all of them, headers are for others.
            assert file.name.startswith("part-"), f"byte {at} of {file.name}"
            assert found["w"].tolist() == values.tolist() and found.metadata == texts
        file.write_bytes(data)


@pytest.mark.parametrize("name", NAMES)
def test_an_error_says_which_rows_of_which_array(tmp_path, ps, name):
    path = tmp_path / name
    ps.save(path, w=ps.array(np.arange(5000.0)))
    file = files_in(path)[-1]
    data = bytearray(file.read_bytes())
    data[-8 * 1024] ^= 1
    file.write_bytes(data)
    for session in (ps, None):
        with pytest.raises(dv.Corrupted, match=r"array 'w': rows \d+:\d+ in .* have the CRC"):
            dv.load(path, session)
    if path.is_dir():
        file.unlink()
        with pytest.raises(OSError, match=r"part-"):
            ps.load(path)


class Failing(Directory):
    """Raises what it is given at the ``first`` change of a file, or from that one on."""

    def __init__(self, path: Path, error: BaseException, first: int, *, ever: bool) -> None:
        super().__init__(path)
        self.error, self.first, self.ever = error, first, ever
        self.changes: list[str] = []

    @contextmanager
    def _noted(self, name: str) -> Iterator[None]:
        """As a full disk, or a sync that fails: the change may be made, and is not durable."""
        yield
        self.changes.append(name)
        count = len(self.changes)
        if count == self.first or (self.ever and count > self.first):
            raise self.error

    def begin(self, name, head, size):
        with self._noted(name):
            super().begin(name, head, size)

    def write_into(self, name, head, places):
        with self._noted(name):
            super().write_into(name, head, places)

    def write(self, name, chunks):
        try:
            with self._noted(name):
                return super().write(name, chunks)
        except OSError:
            self.delete(name)  # as a store promises
            raise

    def delete(self, name):
        if not isinstance(self.error, Crash):
            super().delete(name)


class Crash(BaseException):
    """The end of the process, as far as what it does afterwards goes."""


def saved(folder: Path, name: str, store: Directory | None = None, values: np.ndarray = OLD) -> str:
    """Save ``values`` in ``folder``, by ``store`` if that is given; the path for ``load``."""
    inner = "" if name == "folder" else name
    target = inner or "folder"
    dv.save(target, w=values, store=store or Directory(folder))
    return f"{folder}/{inner}"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("first", range(1, 6))
def test_a_write_that_fails_once_is_done_again_elsewhere(tmp_path, name, first):
    path = saved(tmp_path, name)
    before = set(os.listdir(tmp_path))
    store = Failing(tmp_path, OSError(errno.EIO, "input/output error"), first, ever=False)
    saved(tmp_path, name, store, NEW)
    failed = store.changes[first - 1] if first <= len(store.changes) else ""
    assert failed not in store.changes[first:], "a file whose sync failed is not used again"
    assert next(iter(dv.load(path).values())).tolist() == NEW.tolist()
    assert len(os.listdir(tmp_path)) == len(before), "nothing else is left"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("first", range(1, 4))
def test_saving_that_fails_leaves_what_was_there(tmp_path, name, first):
    path = saved(tmp_path, name)
    before = set(os.listdir(tmp_path))
    store = Failing(tmp_path, OSError(errno.ENOSPC, "no space left"), first, ever=True)
    with pytest.raises(OSError, match="no space left"):
        saved(tmp_path, name, store, NEW)
    assert set(os.listdir(tmp_path)) == before
    assert next(iter(dv.load(path).values())).tolist() == OLD.tolist()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("first", range(1, 4))
def test_a_crash_at_any_point_leaves_the_old_or_the_new(tmp_path, name, first):
    path = saved(tmp_path, name)
    store = Failing(tmp_path, Crash(), first, ever=True)
    try:
        saved(tmp_path, name, store, NEW)
        expected = NEW
    except Crash:
        expected = OLD
    assert next(iter(dv.load(path).values())).tolist() == expected.tolist()
    saved(tmp_path, name, None, NEW)
    assert next(iter(dv.load(path).values())).tolist() == NEW.tolist()


class FailingOnce:
    """Opens the stores of servers; the first that is written to by one of them fails once."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def __call__(self, url: str) -> Directory:
        store = open_store(url)
        assert isinstance(store, Directory)
        return _Once(store.url, self.failed)


class _Once(Directory):
    def __init__(self, path: str, failed: list[str]) -> None:
        super().__init__(path)
        self._failed = failed

    def write_into(self, name, head, places):
        super().write_into(name, head, places)
        if not self._failed:
            self._failed.append(name)
            raise OSError(errno.EIO, "fsync failed")


@pytest.mark.parametrize("name", NAMES)
def test_a_server_whose_sync_fails_writes_another_file(tmp_path, name):
    opener = FailingOnce()
    made = [InProcess(Service(memory=1 << 28, open_store=opener), f"s{k}") for k in range(2)]
    with dv.Session(Client(made)) as ps:
        ps.save(tmp_path / name, w=ps.array(OLD))
    assert len(opener.failed) == 1 and not any(tmp_path.rglob(opener.failed[0]))
    assert dv.load(tmp_path / name)["w"].tolist() == OLD.tolist()
    assert not any(tmp_path.rglob("*.part"))


@contextmanager
def at_most(nbytes: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", NAMES)
def test_files_that_may_not_grow(tmp_path, ps, name):
    ps.save(tmp_path / name, w=ps.array(OLD))
    before = sorted(tmp_path.rglob("*"))
    with at_most(8192), pytest.raises(OSError, match="File too large"):
        ps.save(tmp_path / name, w=ps.array(NEW))
    assert sorted(tmp_path.rglob("*")) == before
    assert dv.load(tmp_path / name)["w"].tolist() == OLD.tolist()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)]
    if os.getuid() or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("only who may mount file systems can have a small one")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_full_disk(small_disk, ps, name):
    path = small_disk / name
    ps.save(path, w=ps.array(OLD))
    before = sorted(small_disk.rglob("*"))
    for _ in range(2):
        with pytest.raises(OSError, match="No space left on device"):
            ps.save(path, w=ps.zeros(9000))
    assert sorted(small_disk.rglob("*")) == before
    assert dv.load(path)["w"].tolist() == OLD.tolist()


def checkpoint_fails(ps, run, why, **arrays):
    """It does; the error is not kept, which would keep ``arrays``."""
    with pytest.raises(StoreFailed, match=why):
        ps.checkpoint(run, **arrays)


def test_checkpoints_on_a_disk_that_was_full(small_disk, ps, caplog):
    run = small_disk / "run"
    x = ps.array(OLD[:1000])
    ps.checkpoint(run, x=x)
    parts = set(run.rglob("part-*"))
    for _ in range(3):
        y = ps.zeros(8000).persist()  # of its two parts one fits
        checkpoint_fails(ps, run, "No space left on device", x=x, y=y)
        del y
        assert set(run.rglob("part-*")) == parts, "those of x, and no part that did fit"
        assert ps.checkpoint(run, x=x).nbytes == 0
    with dv.local(3, in_process=True) as other:
        assert other.restore(run)["x"].numpy().tolist() == OLD[:1000].tolist()
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        checkpoint_fails(ps, run, "Read-only file system", x=x)
        assert other.restore(run)["x"].numpy().tolist() == OLD[:1000].tolist()
    assert not caplog.text, "no folder was made, so none is rubbish"
