"""Machine code is kept where nobody else can put any, or not at all."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numba
import numpy as np
import pytest

from ps_backend.kernels.compiled import machine_code
from ps_backend.kernels.compiled.machine_code import cache_folder

SOURCE = """
from numba import njit

@njit('void(float64[::1])', cache=True)
def kernel(x):
    x += 1.0
"""


@pytest.fixture
def places(tmp_path, monkeypatch):
    """The home's cache folder, which cannot be made at first, and the temporary directory."""
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    home.touch()
    temporary.mkdir()
    temporary.chmod(0o1777)
    monkeypatch.setenv("DISTVEC_CACHE", str(home))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    numba.config.reload_config()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    cache_folder.cache_clear()
    yield home, temporary
    cache_folder.cache_clear()


def planted(folder: Path) -> None:
    """A module in every name that a kernel may take; importing it shows."""
    for path in folder.rglob("kernel_*.py"):
        path.write_text("raise SystemExit('planted code was run')\n")


def run() -> None:
    x = np.zeros(3)
    machine_code.load(SOURCE)(x)
    assert x.tolist() == [1, 1, 1]


def kernel_folders(place: Path) -> list[Path]:
    return sorted(path for path in place.rglob("*") if path.name.startswith("kernels-"))


def test_the_temporary_directory_serves_where_the_home_cannot(places):
    home, temporary = places
    run()
    (folder,) = kernel_folders(temporary)
    assert folder.stat().st_mode & 0o777 == 0o700 == folder.parent.stat().st_mode & 0o777
    assert list(folder.rglob("*.nbi"))
    home.unlink()
    cache_folder.cache_clear()
    run()
    assert kernel_folders(home), "the home comes first"


def spoil_mode(folder: Path) -> None:
    folder.chmod(0o770)


def spoil_owner(folder: Path) -> None:
    os.chown(folder, 12345, 12345)


def spoil_owner_of_parent(folder: Path) -> None:
    os.chown(folder.parent, 12345, 12345)


def spoil_by_link(folder: Path) -> None:
    elsewhere = folder.parent.parent / "elsewhere"
    folder.parent.rename(elsewhere)
    spoil_owner(elsewhere / folder.name)
    folder.parent.symlink_to(elsewhere)


def spoil_above(folder: Path) -> None:
    folder.parent.parent.chmod(0o777)


root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (spoil_mode, "has mode 0770; chmod it to 0700"),
        pytest.param(spoil_owner, "belongs to user 12345", marks=root_only),
        pytest.param(spoil_owner_of_parent, "belongs to user 12345", marks=root_only),
        pytest.param(spoil_by_link, "belongs to user 12345", marks=root_only),
        (spoil_above, "every user can rename files in"),
    ],
)
def test_a_folder_that_others_may_write_to_is_not_used(places, spoil, reason):
    _, temporary = places
    run()
    (folder,) = kernel_folders(temporary)
    planted(folder)
    spoil(folder)
    cache_folder.cache_clear()
    with pytest.warns(RuntimeWarning, match=f"{reason}.*set DISTVEC_CACHE to a folder of yours"):
        run()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run()  # told once


def test_nor_is_one_that_numba_was_told_of(places, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    (tmp_path / "numba").mkdir(mode=0o755)
    run()
    (tmp_path / "numba").chmod(0o777)
    cache_folder.cache_clear()
    with pytest.warns(
        RuntimeWarning, match="NUMBA_CACHE_DIR, .*numba, has mode 0777; chmod it to 0755"
    ):
        run()


def image_of_kernels(home, monkeypatch) -> Path:
    """Kernels that were compiled before, for a process with another cache."""
    home.unlink()
    run()
    monkeypatch.setenv("DISTVEC_KERNELS", str(home / "distvec"))
    monkeypatch.setenv("DISTVEC_CACHE", str(home.parent / "new"))
    cache_folder.cache_clear()
    return home


def test_a_new_cache_begins_with_the_kernels_of_an_image(places, monkeypatch):
    image = image_of_kernels(places[0], monkeypatch)
    run()
    assert sum(machine_code.load(SOURCE).stats.cache_hits.values()) == 1
    (folder,) = kernel_folders(image.parent / "new")
    assert {p.name for p in folder.rglob("*.nbi")} == {p.name for p in image.rglob("*.nbi")}


def test_kernels_that_others_can_change_are_not_used(places, monkeypatch):
    image = image_of_kernels(places[0], monkeypatch)
    planted(image)
    kernel_folders(image)[0].chmod(0o777)
    with pytest.warns(RuntimeWarning, match="is not used: others can change"):
        run()
    assert kernel_folders(image.parent / "new")
