"""Checkpoints of a session: what they hold, what they give back, and what they write."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from ps_backend.errors import CheckpointIncomplete, Corrupted, ServerLost

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
        assert Path(first.path).name not in str(files(tmp_path)), "nobody needs it any more"
        assert ps.restore(tmp_path)["x"].numpy().tolist() == (np.arange(N) * 2.0).tolist()


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
        with pytest.raises(ValueError, match=r"which directory\? Give it here"):
            ps.checkpoint()
        with pytest.raises(CheckpointIncomplete, match="holds no checkpoint"):
            ps.restore(tmp_path)
        x = ps.array(np.arange(float(N)))
        made = ps.checkpoint(tmp_path, x=x)
        manifest = Path(made.path) / "manifest.json"
        whole = manifest.read_bytes()
        manifest.unlink()
        with pytest.raises(CheckpointIncomplete, match=r"has no manifest\.json: .* broken off"):
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
