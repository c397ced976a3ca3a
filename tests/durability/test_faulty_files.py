"""Checkpoints on disks that fail: what is found is whole, or an error says what is not."""

from __future__ import annotations

import errno
import random
import re
import warnings
from contextlib import contextmanager
from threading import Event

import numpy as np
import pytest

from distvec.durability.checkpoints import Checkpoints
from distvec.durability.policy import SessionKeeper
from distvec.session import Session
from ps_backend.client import Client
from ps_backend.durability.stores import Directory
from ps_backend.errors import CheckpointIncomplete, Corrupted, NotDurable, StoreFailed
from ps_backend.in_process import InProcess
from ps_backend.server.service import Service
from tests.durability.disk import Disk, Names, unneeded
from tests.waiting import PATIENCE

N = 3000
OLD, NEW = np.arange(float(N)), np.arange(float(N)) * 3.0


@contextmanager
def session(disk, servers=2):
    """A session on servers in this process that write to ``disk``, and its checkpoints."""

    def open_store(url):
        return Directory(url, system=disk)

    services = [Service(memory=1 << 26, open_store=open_store) for _ in range(servers)]
    with Session(Client([InProcess(one, "") for one in services])) as ps:
        yield ps, Checkpoints(ps, "/run", open_store=open_store)


def two_checkpoints(disk):
    """Of one array, as it is, and times three."""
    with session(disk) as (ps, checkpoints):
        x = ps.array(OLD)
        checkpoints.begin(1, {"x": x}).result()
        checkpoints.begin(2, {"x": x * 3.0}).result()


def found(disk, servers=3):
    """The values that a new session finds, and the warnings."""
    with session(disk, servers) as (_, checkpoints), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        restored = checkpoints.restore()
        return None if restored is None else restored["x"].numpy(), [
            str(one.message) for one in told
        ]


def newest(disk, suffix):
    """The files of the newest checkpoint that end so."""
    last = max(path.split("/")[2] for path in disk.files("/run/"))
    return [file for path, file in disk.files(f"/run/{last}/").items() if path.endswith(suffix)]


class Fails:
    """Lets the calls of one name fail: the ``number``-th, or all from then on."""

    def __init__(self, name, code, number, *, once=True):
        self.name, self.code, self.number, self.once = name, code, number, once
        self.count = 0

    def __call__(self, name, path):
        if name == self.name:
            self.count += 1
            if self.count == self.number or (self.count > self.number and not self.once):
                raise OSError(self.code, "it failed", str(path))


def test_a_manifest_that_is_torn_at_any_byte_is_none():
    disk = Disk()
    two_checkpoints(disk)
    (manifest,) = newest(disk, ".json")
    whole = bytes(manifest.data)
    with session(disk) as (_, checkpoints):
        for end in range(len(whole)):
            manifest.data = bytearray(whole[:end])
            one = next(checkpoints._folder.each())
            assert isinstance(one, Corrupted), end
            assert "manifest.json" in str(one)
    manifest.data = bytearray(whole[:-1])
    values, (told,) = found(disk)
    assert values.tolist() == OLD.tolist()
    assert re.search(r"-000001 is taken, an older checkpoint, as the newest is damaged", told)


@pytest.mark.parametrize("kind", ["manifest", "header", "values", "last value"])
def test_a_flipped_bit_is_never_a_number(kind):
    disk = Disk()
    two_checkpoints(disk)
    file = newest(disk, ".json" if kind == "manifest" else ".safetensors")[0]
    seed = random.Random(3)
    start, end = {
        "manifest": (0, len(file.data)),
        "header": (0, 64),
        "values": (len(file.data) - 4096, len(file.data)),
        "last value": (len(file.data) - 8, len(file.data)),
    }[kind]
    for _ in range(20):
        at, bit = seed.randrange(start, end), 1 << seed.randrange(8)
        file.data[at] ^= bit
        values, told = found(disk)
        if kind == "header":  # it is for other readers: the manifest says where the values lie
            assert values.tolist() == NEW.tolist()
        else:
            assert values.tolist() == OLD.tolist()
            assert len(told) == 1
        file.data[at] ^= bit


@pytest.mark.parametrize("kind", ["cut off", "gone", "stale", "values"])
def test_where_nothing_is_whole_the_error_says_what_is_wrong(kind):
    disk = Disk()
    with session(disk) as (ps, checkpoints):
        checkpoints.begin(1, {"x": ps.array(OLD)}).result()
    part = newest(disk, ".safetensors")[0]
    folder = disk.root.names["run"].names[checkpoints._folder._names()[0]]
    error, text = Corrupted, r"rows \d+:\d+ in ckpt-.*/part-00000-.* have the CRC \w+, but \w+ was"
    if kind == "cut off":
        del part.data[-1:]
        error, text = CheckpointIncomplete, r"part-00000-of-00002\.safetensors has \d+ bytes, not"
    elif kind == "gone":
        del folder.names["part-00001-of-00002.safetensors"]
        error, text = CheckpointIncomplete, "names ckpt-.*/part-00001-.*, which is not there"
    elif kind == "stale":
        part.data[1024:1536] = bytes(512)
    else:
        part.data[-1] ^= 128
    with pytest.raises(error, match=text):
        found(disk)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("name", ["open", "write", "fsync", "mkdir"])
def test_a_call_that_fails_once_leaves_a_whole_checkpoint(name, code):
    number = 0
    while True:
        number += 1
        disk, fails = Disk(), Fails(name, code, number)
        with session(disk) as (ps, checkpoints):
            x = ps.array(OLD)
            checkpoints.begin(1, {"x": x}).result()
            fails.number += fails.count
            disk.before = fails
            made = checkpoints.begin(2, {"x": x * 3.0}).result()
            assert made.number == 2
            disk.before = None
            # After a failed fsync the pages count as clean: only a new file has been kept.
            disk.crash(random.Random(number))
        assert found(disk)[0].tolist() == NEW.tolist()
        if fails.count < fails.number:
            break
    assert number > 1


def test_a_full_disk_takes_no_checkpoint_and_harms_none():
    disk = Disk()
    with session(disk) as (ps, checkpoints):
        keeper = SessionKeeper(checkpoints, rolls_back=False)
        x = ps.array(OLD)
        keeper.save(1, {"x": x}, {}, wait=True)
        disk.before = Fails("write", errno.ENOSPC, 1, once=False)
        with pytest.raises(StoreFailed, match=r"server \d, /run: .*it failed"):
            keeper.save(2, {"x": x * 3.0}, {}, wait=True)
        keeper.save(3, {"x": x * 3.0}, {})
        with pytest.warns(NotDurable, match="no checkpoint in /run: server"):
            keeper.close()
        assert keeper.load()[0] == 1
        disk.before = None
        keeper.save(4, {"x": x * 3.0}, {}, wait=True)
        disk.before = Fails("unlink", errno.EIO, 1, once=False)
        keeper.save(5, {"x": x * 3.0}, {}, wait=True)
        disk.before = None
        keeper.save(6, {"x": x * 3.0}, {}, wait=True)
    assert not unneeded(disk, checkpoints)
    assert found(disk)[0].tolist() == NEW.tolist()


@pytest.mark.parametrize("seed", range(40))
def test_a_machine_that_crashes_at_any_call_leaves_the_old_one_or_the_new(seed):
    class Crash(BaseException):
        """Everything ends here."""

    random_ = random.Random(seed)
    disk = Disk()
    is_done, calls = False, random_.randrange(1, 90)

    def before(name, path):
        nonlocal calls
        calls -= 1
        if calls < 0:
            raise Crash

    with session(disk) as (ps, checkpoints):
        x = ps.array(OLD)
        checkpoints.begin(1, {"x": x}).result()
        disk.before = before
        try:
            checkpoints.begin(2, {"x": x * 3.0}).result()
            is_done = True
        except Crash:
            pass
        checkpoints._writing = None
    disk.before = None
    disk.crash(random_)
    values, _ = found(disk)
    assert values.tolist() in ([NEW.tolist()] if is_done else [OLD.tolist(), NEW.tolist()])


def test_on_a_slow_disk_work_goes_on_and_one_warning_says_what_is_left_out():
    disk, go_on = Disk(), Event()
    with session(disk) as (ps, checkpoints):
        keeper = SessionKeeper(checkpoints, rolls_back=False)
        x = ps.array(OLD)
        disk.before = lambda name, path: name != "write" or go_on.wait(PATIENCE)
        keeper.save(0, {"x": x}, {})
        x = (x + 1.0).persist()
        with pytest.warns(NotDurable, match="it takes longer to write one"):
            keeper.save(1, {"x": x}, {})
        for number in range(2, 20):  # a second warning would be an error
            x = (x + 1.0).persist()
            keeper.save(number, {"x": x}, {})
        go_on.set()
        checkpoints.settle()
        keeper.save(20, {"x": x}, {}, wait=True)
        assert keeper.load()[0] == 20
        keeper.close()
    assert found(disk)[0].tolist() == (OLD + 19.0).tolist()


def test_folders_that_somebody_made_who_died_at_once_are_durable_after_a_checkpoint():
    disk = Disk()
    disk.root.names["run"] = Names()
    two_checkpoints(disk)
    for seed in range(5):
        disk.crash(random.Random(seed))
    assert found(disk)[0].tolist() == NEW.tolist()
