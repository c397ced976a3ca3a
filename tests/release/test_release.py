"""The version, the packages in an archive, and files that services read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import distvec
from tests.release.__main__ import PACKAGES, REPOSITORY, oldest_versions

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def test_the_version_is_in_one_place() -> None:
    assert PROJECT["dynamic"] == ["version"]
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    assert citation["version"] == distvec.__version__
    assert f"## {distvec.__version__} " in (REPOSITORY / "CHANGELOG.md").read_text()


def test_all_packages_that_are_needed_have_an_oldest_version() -> None:
    assert len(oldest_versions(PROJECT)) == len(PROJECT["dependencies"])


PROGRAM = """
import distvec
from distvec.dashboard.dashboard import _template
from distvec.objectives.skip_gram import _huffman
from ps_backend.kernels.collectives import compiled
from ps_backend.kernels.compiled.machine_code import row_source, tile_loop

assert ".zip" in distvec.__file__
assert "<html" in _template() and "def " in row_source()
tile_loop()
with distvec.local(1) as ps:
    print(float(ps.arange(10.0).sum()))
"""


def test_packages_work_in_an_archive_as_executors_get_it(tmp_path: Path) -> None:
    root = Path(distvec.__file__).parents[1]
    archive = tmp_path / "packages.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in (path for package in PACKAGES for path in root.joinpath(package).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                file.write(path, path.relative_to(root))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "45.0\n", done.stderr


def workflows() -> list[Path]:
    """The workflows for GitHub."""
    return sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ("vendor.github-workflows", workflows()),
        ("vendor.github-issue-forms", sorted((REPOSITORY / ".github").glob("ISSUE*/[!c]*.yml"))),
    ],
)
def test_files_for_github_have_its_schema(schema: str, paths: list[Path]) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", workflows(), ids=lambda path: path.name)
def test_workflows_have_few_rights_and_pinned_actions(path: Path) -> None:
    text = path.read_text()
    for line in re.findall(r"uses: (.*)", text):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v[\d.]+", line), line
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    targets = re.findall(r"make ([a-z-]+)", text)
    makefile = (REPOSITORY / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
