"""Another project's ``optim`` or ``ps_backend`` is named, before anything odd comes of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]


def imported(*path: Path, code: str = "import distvec") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))},
        cwd=path[0],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def another(name: str, folder: Path) -> Path:
    package = folder / name
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    return package


def test_ours_are_imported_silently(tmp_path: Path) -> None:
    done = imported(tmp_path, ROOT, code="import optim, distvec, ps_backend")
    assert (done.returncode, done.stderr) == (0, "")


def test_another_ps_backend_is_an_error_with_its_path(tmp_path: Path) -> None:
    other = another("ps_backend", tmp_path)
    done = imported(tmp_path, ROOT)
    assert done.returncode == 1
    assert "ImportError: 'import ps_backend' finds another package" in done.stderr
    assert f"{other / '__init__.py'} comes before distvec's own in {ROOT}" in done.stderr


@pytest.mark.parametrize("module", [False, True], ids=["package", "module"])
def test_another_optim_is_a_warning_with_its_path(tmp_path: Path, module: bool) -> None:
    if module:
        path = tmp_path / "optim.py"
        path.write_text("raise SystemExit('imported')\n")
    else:
        path = another("optim", tmp_path) / "__init__.py"
    done = imported(tmp_path, ROOT, code="import distvec; print(distvec.local)")
    assert done.returncode == 0, done.stderr
    assert f"RuntimeWarning: 'import optim' finds another package: {path}" in done.stderr


def test_one_installed_over_ours_is_noticed(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for name in ("distvec", "optim", "ps_backend"):
        shutil.copytree(ROOT / name, site / name, ignore=shutil.ignore_patterns("__pycache__"))
    assert imported(site).stderr == ""
    other = another("optim", site)
    assert f"{other} is not distvec's" in imported(site).stderr
