"""Torn and damaged files, and disks that are full: a named error or an older one, no wrong bit."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from optim import LBFGS, Corrupted, NotDurable
from optim.core.checkpoints.keeper import NpzKeeper, read, write

ARRAYS = {"x": np.arange(3.0), "s": np.float32([[1.5, -0.0], [np.nan, np.inf]])}
DOCUMENT = {"a": [1, 0.1, None, "é"]}
NAMES = ("ckpt-00003.npz", "ckpt-00007.npz")


def quadratic(x: Any) -> tuple[float, Any]:
    return float(x @ x), 2.0 * x


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """With checkpoints 3 and 7."""
    keeper = NpzKeeper(tmp_path)
    for number in (3, 7):
        keeper.save(number, {**ARRAYS, "n": np.array(number)}, DOCUMENT, wait=True)
    return tmp_path


@pytest.fixture
def content(directory: Path) -> bytes:
    return (directory / NAMES[1]).read_bytes()


def test_a_file_cut_anywhere_is_torn(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cut.npz"
    path.write_bytes(content)
    read(path)
    for size in reversed(range(len(content))):
        os.truncate(path, size)
        with pytest.raises(Corrupted, match=r"cut\.npz is incomplete or damaged"):
            read(path)


def test_any_flipped_bit_is_noticed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "flipped.npz"
    for place in range(0, len(content), 3):
        flipped = bytearray(content)
        flipped[place] ^= 1 << (place % 8)
        path.write_bytes(flipped)
        with pytest.raises(Corrupted, match=r"flipped\.npz is incomplete or damaged"):
            read(path)


def test_garbage_with_the_right_sum_is_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "ckpt-00001.npz"
    with path.open("wb") as file:
        write(file, {"x": np.zeros(2)}, {})
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["document.json", "x.npy"]
    with path.open("wb") as file:
        write(file, {}, {"layouts": 3})
    assert read(path) == ({}, {"layouts": 3})
    with pytest.raises(Corrupted, match="has the format None, and this version"):
        LBFGS().minimize(quadratic, np.ones(3), checkpoint=tmp_path, resume=True)


def test_the_one_before_is_taken(directory: Path, content: bytes) -> None:
    (directory / NAMES[1]).write_bytes(content[:-1])
    with pytest.warns(NotDurable, match=r"older checkpoint 3 is used: .*00007\.npz is incomplete"):
        found = NpzKeeper(directory).load()
    assert found is not None and found[0] == 3 and found[2] == DOCUMENT
    assert found[1]["s"].tobytes() == ARRAYS["s"].tobytes()


def test_none_is_left(directory: Path) -> None:
    for name in NAMES:
        (directory / name).write_bytes(b"")
    with pytest.raises(Corrupted, match=r"no checkpoint in .* can be read.*00007.*00003"):
        NpzKeeper(directory).load()


def test_a_newest_one_that_cannot_be_read_is_passed_over(directory: Path) -> None:
    (directory / NAMES[1]).unlink()
    (directory / NAMES[1]).mkdir()
    with pytest.warns(NotDurable, match="Is a directory"):
        found = NpzKeeper(directory).load()
    assert found is not None and found[0] == 3


def test_what_a_killed_process_left_is_no_checkpoint(directory: Path, content: bytes) -> None:
    left = directory / "ckpt-00009.npz.tmp"
    left.write_bytes(content[:100])
    (directory / "mine.txt").write_text("keep")
    keeper = NpzKeeper(directory)
    found = keeper.load()
    assert found is not None and found[0] == 7
    keeper.save(11, ARRAYS, DOCUMENT)
    keeper.close()
    assert sorted(os.listdir(directory)) == [
        "ckpt-00007.npz",
        "ckpt-00011.npz",
        "ckpt.lock",
        "mine.txt",
    ]


def test_a_place_that_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        LBFGS().minimize(quadratic, np.ones(3), checkpoint=tmp_path / "file")


FULL = """
import resource, sys, threading, warnings
import numpy as np
from optim import LBFGS
warnings.simplefilter("always")
curvatures = np.linspace(1.0, 50.0, 2000)

def fun(x):
    return float(x @ (curvatures * x)) / 2, curvatures * x

def limit(state):
    if state.iteration == 6:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, -1))

def lift(state):
    limit(state)
    if state.iteration == 9:
        for thread in threading.enumerate():
            if thread.name == "checkpoints":
                thread.join()
        resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))

solver = LBFGS(max_iterations=12)
callback = {"full": limit, "room again": lift}[sys.argv[2]]
result = solver.minimize(fun, np.ones(2000), checkpoint=sys.argv[1], every=1, callback=callback)
resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
expected = solver.minimize(fun, np.ones(2000))
assert result.x.tobytes() == expected.x.tobytes()
resumed = solver.minimize(fun, np.ones(2000), checkpoint=sys.argv[1], resume=True)
assert resumed.x.tobytes() == expected.x.tobytes() and resumed.nfev == expected.nfev
"""


@pytest.mark.parametrize("disk", ["full", "room again"])
def test_a_disk_that_is_full_for_a_while(tmp_path: Path, disk: str) -> None:
    """The run warns and goes on; what was kept before is still there."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path), disk],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "NotDurable: a checkpoint could not be written" in done.stderr
    assert os.strerror(errno.EFBIG) in done.stderr
    assert not list(tmp_path.glob("*.tmp"))


def test_a_full_disk_at_the_start_is_an_error(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            LBFGS().minimize(quadratic, np.ones(300), checkpoint=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == ["ckpt.lock"]
    assert LBFGS().minimize(quadratic, np.ones(300), checkpoint=tmp_path).success


@given(
    x=hnp.arrays(
        st.sampled_from(["f8", "f4", "f2", ">f8", "i4", "?"]),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    ),
    data=st.data(),
)
def test_the_order_in_memory_comes_back(
    tmp_path_factory: pytest.TempPathFactory, x: np.ndarray, data: st.DataObject
) -> None:
    """Sums follow it, so their last bits do."""
    axes = data.draw(st.permutations(range(x.ndim)))
    view = x.transpose(axes)
    repeated = np.broadcast_to(view, (2, *view.shape))
    path = tmp_path_factory.getbasetemp() / "one.npz"
    with path.open("wb") as file:
        write(file, {"x": view, "r": repeated}, {})
    found, _ = read(path)
    for one, other in ((found["x"], view), (found["r"], repeated)):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
        if other.size:
            assert _strides(one) == _strides(other)


def _strides(x: np.ndarray) -> list[int]:
    """Those that matter."""
    return [stride for stride, length in zip(x.strides, x.shape, strict=True) if length > 1]
