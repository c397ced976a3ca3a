"""Checkpoints of a session: what they hold, what they give back, and what they write."""

from __future__ import annotations

import errno
import gc
import os
import re
import shutil
import signal
import weakref
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from distvec.durability.checkpoints import Checkpoints, in_thread
from distvec.durability.policy import await_all
from ps_backend.client import Client
from ps_backend.durability.stores import Directory, open_store
from ps_backend.errors import (
    CheckpointIncomplete,
    Corrupted,
    NotDurable,
    ServerLost,
    SessionFenced,
    StoreFailed,
)
from ps_backend.in_process import InProcess
from ps_backend.server.service import Service

N = 5000


def files(folder, suffix=""):
    return sorted(
        str(p.relative_to(folder)) for p in Path(folder).rglob(f"*{suffix}") if p.is_file()
    )


@settings(max_examples=15, deadline=None)
@given(here=st.integers(1, 4), there=st.integers(1, 7), seed=st.integers(0, 9))
def test_another_session_gets_the_named_arrays(tmp_path_factory, here, there, seed):
    folder = tmp_path_factory.mktemp("run")
    random = np.random.default_rng(seed)
    x, t = random.normal(size=N), random.integers(0, 99, (700, 3))
    with dv.local(here, in_process=True) as ps:
        dx = ps.array(x)
        made = ps.checkpoint(folder, x=dx, twice=2.0 * dx, t=ps.array(t), s=dx.sum(), again=dx)
        assert made.arrays == 3
        expected = float(dx.sum())
    with dv.local(there, in_process=True) as ps:
        found = ps.restore(folder)
        assert found["x"].numpy().tobytes() == x.tobytes()
        assert found["again"].numpy().tobytes() == x.tobytes()
        assert found["twice"].numpy().tobytes() == (2.0 * x).tobytes()
        assert found["t"].numpy().tobytes() == t.tobytes()
        assert float(found["s"]) == expected == float(found["x"].sum())
        with pytest.raises(KeyError, match=r"no array called 'y'; it has again, s, t, twice, x"):
            found["y"]


def test_only_what_is_new_is_written_and_what_nobody_needs_goes(tmp_path):
    with dv.local(2, in_process=True) as ps:
        x = ps.array(np.arange(float(N)))
        first = ps.checkpoint(tmp_path, x=x)
        assert first.nbytes == 8 * N
        y = (x + 1.0).persist()
        second = ps.checkpoint(tmp_path, x=x, y=y)
        assert second.nbytes == 8 * N, "x lies in the files of the first"
        assert ps.checkpoint(tmp_path, x=x, y=y).nbytes == 0
        assert len(files(tmp_path, ".json")) == 2
        assert len(files(tmp_path, ".safetensors")) == 4
        x = x * 2.0
        third = ps.checkpoint(tmp_path, x=x)
        assert third.arrays == 2
        ps.checkpoint(tmp_path, x=x)
        left = [Path(one).name for one in files(tmp_path) if Path(first.path).name in one]
        assert left == [f"part-0000{k}-of-00002.safetensors" for k in range(2)], "the next may take"
        assert ps.restore(tmp_path)["x"].numpy().tolist() == (np.arange(N) * 2.0).tolist()
    assert Path(first.path).name not in str(files(tmp_path)), "nobody needs it any more"


def test_a_checkpoint_is_written_over_what_nobody_needs(tmp_path):
    values = [np.arange(float(length)) + k for k, length in enumerate([N, N, N, N // 2, 2 * N, N])]
    with dv.local(2, in_process=True) as ps:
        made, inodes, mine = [], [], tmp_path / "mine"
        mine.mkdir()
        for number, one in enumerate(values):
            made.append(Path(ps.checkpoint(tmp_path / "run", x=ps.array(one)).path))
            parts = sorted(made[-1].glob("part-*"))
            inodes.append([part.stat().st_ino for part in parts])
            if number == 2:  # somebody keeps a part of one that is to go
                os.link(parts[0], mine / "part")
                expected = (mine / "part").read_bytes()
            assert ps.restore(tmp_path / "run")["x"].numpy().tobytes() == one.tobytes()
            if number:
                shutil.copytree(made[-2], tmp_path / "one" / made[-2].name)
                before = ps.restore(tmp_path / "one")
                assert before["x"].numpy().tobytes() == values[number - 1].tobytes()
                del before  # else the next one has it as well
                shutil.rmtree(tmp_path / "one")
        assert len({*inodes[0], *inodes[1], *inodes[2]}) == 6, "two stay whole at every moment"
        assert inodes[3] == inodes[0] and inodes[4] == inodes[1]
        assert inodes[5][0] != inodes[2][0] and inodes[5][1] == inodes[2][1]
        assert (mine / "part").read_bytes() == expected
        whole = sum(os.path.getsize(part) for part in made[-1].glob("part-*"))
        assert 8 * N < whole < 8 * N + 4096, "what was longer before is cut off"
        assert len(list((tmp_path / "run").rglob("part-*"))) == 6
    assert len(list((tmp_path / "run").rglob("part-*"))) == 4


def test_after_a_loss_arrays_have_their_values_of_then(tmp_path):
    with dv.local(2, checkpoint=tmp_path) as ps:
        x, y = ps.array(np.arange(float(N))), ps.zeros(N).persist()
        ps.checkpoint(x=x)
        later = (x + 1.0).persist()
        os.kill(ps._owner.pids[1], signal.SIGKILL)
        with pytest.raises(ServerLost) as lost:
            float(x.sum())
        assert lost.value.resume_from == str(tmp_path)
        restored = ps.restore(lost.value.resume_from)
        assert float(x.sum()) == N * (N - 1) / 2
        assert float(y.sum()) == 0.0
        assert restored["x"].buffer_id == x.buffer_id
        with pytest.raises(ServerLost):
            float(later.sum())
        assert ps.checkpoint(x=x).nbytes < 8 * N + 1


def test_a_directory_without_a_whole_checkpoint(tmp_path):
    with dv.local(2, in_process=True) as ps:
        with pytest.raises(
            ValueError, match=r"no directory for checkpoints was given; pass one here"
        ):
            ps.checkpoint()
        with pytest.raises(CheckpointIncomplete, match="contains no checkpoint"):
            ps.restore(tmp_path)
        x = ps.array(np.arange(float(N)))
        made = ps.checkpoint(tmp_path, x=x)
        manifest = Path(made.path) / "manifest.json"
        whole = manifest.read_bytes()
        manifest.unlink()
        with pytest.raises(CheckpointIncomplete, match=r"has no manifest\.json: it was removed"):
            ps.restore(tmp_path)
        manifest.write_bytes(whole[:-9])
        with pytest.raises(CheckpointIncomplete, match="its checksum does not fit"):
            ps.restore(tmp_path)
        manifest.write_bytes(whole)
        part = tmp_path / files(tmp_path, ".safetensors")[1]
        data = part.read_bytes()
        part.write_bytes(data[:-1])
        with pytest.raises(CheckpointIncomplete, match="it is cut off"):
            ps.restore(tmp_path)
        part.write_bytes(data[:-1] + b"\xff")
        with dv.local(3, in_process=True) as other, pytest.raises(Corrupted, match="have the CRC"):
            other.restore(tmp_path)
        part.unlink()
        with pytest.raises(CheckpointIncomplete, match=r"which is not there: .* all machines see"):
            ps.restore(tmp_path)


def test_work_goes_on_while_a_checkpoint_is_written(tmp_path):
    with dv.local(2, in_process=True) as ps:
        x = ps.array(np.arange(float(N)))
        writing = ps.checkpoint(tmp_path, wait=False, x=x, document={"at": 1})
        for _ in range(20):
            x += 1.0
            x = x.persist()
        writing.result()
        assert x.numpy().tolist() == (np.arange(N) + 20.0).tolist()
        found = ps.restore(tmp_path)
        assert found["x"].numpy().tolist() == np.arange(float(N)).tolist()
        assert found.document == {"at": 1}


def test_an_array_that_was_lost_is_not_left_out_of_a_checkpoint(tmp_path):
    with dv.local(2, checkpoint=tmp_path) as ps:
        x, y = ps.array(np.arange(float(N))), ps.zeros(N).persist()
        ps.checkpoint(x=x)
        os.kill(ps._owner.pids[1], signal.SIGKILL)
        while ps.client.lives == (0, 0):
            ps.client.status()
        with pytest.raises(ServerLost, match="would lack 'x', buffer"):
            ps.checkpoint(x=x)
        with pytest.raises(ServerLost, match="would lack buffer"):
            ps.checkpoint(z=ps.zeros(3))
        ps.restore()
        assert float(y.sum()) == 0.0
        ps.checkpoint(x=x, none=ps.zeros((0, 2)))
        assert ps.restore()["none"].shape == (0, 2)


def test_a_program_that_failed_meanwhile_is_taken_back_before_arrays_come_back(tmp_path):
    with dv.local(2, checkpoint=tmp_path) as ps:
        x = ps.array(np.arange(float(N)))
        ps.checkpoint(x=x)
        x += 1.0
        os.kill(ps._owner.pids[1], signal.SIGKILL)
        ps.flush()
        ps.restore()
        assert x.numpy().tolist() == (np.arange(N) + 1.0).tolist()


def test_the_one_before_is_taken_where_values_of_the_newest_are_damaged(tmp_path):
    with dv.local(2, in_process=True) as ps:
        x = ps.array(np.arange(float(N)))
        ps.checkpoint(tmp_path, x=x)
        newest = ps.checkpoint(tmp_path, x=x * 2.0)
    (part, _) = sorted(Path(newest.path).glob("*.safetensors"))
    data = bytearray(part.read_bytes())
    data[-5] ^= 1
    part.write_bytes(data)
    told = r"an older checkpoint, as the newest is damaged: .*rows .* have the CRC"
    with dv.local(3, in_process=True) as ps, pytest.warns(NotDurable, match=told):
        assert ps.restore(tmp_path)["x"].numpy().tolist() == np.arange(float(N)).tolist()


def test_of_two_sessions_that_write_to_one_directory_the_later_one_counts(tmp_path):
    with dv.local(2, in_process=True) as zombie, dv.local(2, in_process=True) as ps:
        x = zombie.array(np.arange(float(N)))
        zombie.checkpoint(tmp_path, x=x)
        zombie.checkpoint(tmp_path, x=x)
        y = ps.restore(tmp_path)["x"] + 1.0
        made = ps.checkpoint(tmp_path, y=y)
        before = files(tmp_path)
        with pytest.raises(
            SessionFenced, match="another session has begun to write its checkpoints to"
        ):
            zombie.checkpoint(tmp_path, x=x + 2.0)
        assert files(tmp_path) == before
        assert ps.restore(tmp_path).path == made.path


def test_all_is_written_anew_where_somebody_removed_files_of_an_older_one(tmp_path):
    with dv.local(2, in_process=True) as ps:
        x = ps.array(np.arange(float(N)))
        first = ps.checkpoint(tmp_path, x=x)
        shutil.rmtree(first.path)
        assert ps.checkpoint(tmp_path, x=x).nbytes == 8 * N
        assert ps.restore(tmp_path)["x"].numpy().tolist() == np.arange(float(N)).tolist()


def test_a_directory_whose_first_checkpoint_was_broken_off_holds_none(tmp_path):
    with dv.local(2, in_process=True) as ps:
        made = ps.checkpoint(tmp_path, x=ps.zeros(N))
        Path(made.path, "manifest.json").rename(Path(made.path, "begun"))
        keeper = ps.namespace.keeper(tmp_path)
        assert keeper.load() is None
        with pytest.raises(CheckpointIncomplete, match=r"has no manifest\.json: .* broken off"):
            ps.restore(tmp_path)


def test_a_newest_checkpoint_whose_manifest_was_removed_is_passed_over_with_a_warning(tmp_path):
    with dv.local(2, in_process=True) as ps:
        x = ps.array(np.arange(float(N)))
        before = ps.checkpoint(tmp_path, x=x)
        Path(ps.checkpoint(tmp_path, x=x + 1.0).path, "manifest.json").unlink()
    told = r"an older checkpoint, as the newest is damaged: .*has no manifest.json: it was removed"
    with dv.local(3, in_process=True) as ps, pytest.warns(NotDurable, match=told):
        assert ps.restore(tmp_path).path == before.path


def test_a_server_that_dies_while_a_checkpoint_is_written_is_lost(tmp_path):
    with dv.local(2) as ps:
        x = ps.array(np.arange(float(N)))

        def killed_before(work):
            os.kill(ps._owner.pids[1], signal.SIGKILL)
            await_all(ps.client)
            return in_thread(work)

        checkpoints = Checkpoints(ps, str(tmp_path), start=killed_before)
        with pytest.raises(ServerLost, match="was lost, and what it held with it"):
            checkpoints.begin(0, {"x": x}).result()
    assert not files(tmp_path, ".safetensors"), "the part of the other server is removed"


class Full(Directory):
    """A store without room for files of some names."""

    def __init__(self, path: str, names: str) -> None:
        super().__init__(path)
        self.names_without_room = re.compile(names)

    def write(self, name, chunks, *, spare=None):
        if self.names_without_room.search(name):
            chunks = [b"", *chunks][:1]
            super().write(name, chunks, spare=spare)
            self.delete(name)  # as a store promises
            raise OSError(errno.ENOSPC, "no space left on device")
        return super().write(name, chunks, spare=spare)


def with_full(names, room):
    """A session of two servers, one of which cannot write files of such ``names``."""
    stores = [open_store, lambda url: Full(url, names) if room["full"] else open_store(url)]
    made = [Service(memory=1 << 28, open_store=one) for one in stores]
    return dv.Session(Client([InProcess(one, f"s{k}") for k, one in enumerate(made)]))


def test_a_checkpoint_that_does_not_fit_leaves_nothing(tmp_path):
    room = {"full": False}
    with with_full("part-00001", room) as ps:
        for number in range(3):
            x = ps.array(np.arange(float(N)) + number)
            kept = ps.checkpoint(tmp_path, x=x)
        before = set(files(tmp_path))
        spares = {name for name in before if "-000001/" in name}
        room["full"] = True
        y = (x - 1.0).persist()
        for _ in range(2):
            with pytest.raises(StoreFailed, match="no space left"):
                ps.checkpoint(tmp_path, x=x, y=y)
            assert set(files(tmp_path)) == before - spares, "spare files make room as well"
        room["full"] = False
        assert ps.restore(tmp_path).path == kept.path
        made = ps.checkpoint(tmp_path, x=x, y=y)
        assert made.nbytes == 8 * N, "x, which is there, is not written again"


def test_what_a_killed_driver_had_begun_is_removed_by_the_next_one(tmp_path):
    with dv.local(2, in_process=True) as ps:
        kept = ps.checkpoint(tmp_path, x=ps.zeros(N))
        begun = Path(f"{kept.path[:-1]}9")
        begun.mkdir()
        for name in ("begun", "part-00000-of-00002.safetensors"):
            (begun / name).write_bytes(b"rubbish")
    with dv.local(2, in_process=True) as ps:
        assert ps.restore(tmp_path).path == kept.path
        writing = Checkpoints(ps, str(tmp_path), open_store=lambda url: Full(url, "manifest"))
        with pytest.raises(StoreFailed, match="no space left"):
            writing.begin(0, {"x": ps.ones(N)}).result()
        assert not begun.exists() and Path(kept.path).exists()


def test_what_a_killed_driver_would_have_written_over_is_removed_by_the_next_one(tmp_path):
    """Else a disk with room for three checkpoints would be full for the next driver."""
    with dv.local(2, in_process=True) as ps:
        for number in range(4):
            kept = ps.checkpoint(tmp_path / "run", x=ps.full(N, number).persist())
        assert len(list((tmp_path / "run").rglob("part-*"))) == 6, "of one of them they are spare"
        shutil.copytree(tmp_path / "run", tmp_path / "killed")
    with dv.local(2, in_process=True) as ps:
        writing = Checkpoints(
            ps, str(tmp_path / "killed"), open_store=lambda url: Full(url, "manifest")
        )
        with pytest.raises(StoreFailed, match="no space left"):
            writing.begin(0, {"x": ps.ones(N)}).result()
        assert len(list((tmp_path / "killed").rglob("part-*"))) == 4
        found = ps.restore(tmp_path / "killed")
        assert Path(found.path).name == Path(kept.path).name and found["x"].numpy()[0] == 3


def test_a_directory_that_becomes_read_only_says_what_is_rubbish(tmp_path, caplog):
    class ReadOnly(Full):
        def delete(self, name):
            if "begun" in name:
                raise OSError(errno.EROFS, "read-only file system")
            super().delete(name)

    with dv.local(2, in_process=True) as ps:
        writing = Checkpoints(ps, str(tmp_path), open_store=lambda url: ReadOnly(url, "manifest"))
        with pytest.raises(StoreFailed, match="no space left"):
            writing.begin(0, {"x": ps.ones(N)}).result()
    assert re.search(r"/ckpt-\S+ is rubbish and stays for now: .*read-only", caplog.text)


WRITERS = {
    "session": lambda ps, folder, x: ps.checkpoint(folder, x=x),
    "solver": lambda ps, folder, x: ps.namespace.keeper(folder).save(0, {"x": x}, {}, wait=True),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_checkpoint_that_failed_keeps_no_arrays(tmp_path, write):
    """Else the next one would write them, too."""
    with with_full("part-", {"full": True}) as ps:
        x = ps.ones(N).persist()
        kept = weakref.ref(x)
        gc.disable()
        try:
            with suppress(StoreFailed):
                write(ps, tmp_path, x)
            del x
            assert kept() is None
        finally:
            gc.enable()
