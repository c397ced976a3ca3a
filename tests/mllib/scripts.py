"""The example scripts of Spark that use classes of ours, run with our import."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

from tests.mllib.sources import INSTALLED, change_imports

SOURCES = os.environ.get("PYSPARK_SOURCES")
FOLDER = Path(SOURCES or INSTALLED, "examples/src/main/python/ml")


def _changed() -> dict[str, str]:
    """The changed scripts by name."""
    found = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.py"))}
    changed = {name: change_imports(code) for name, code in found.items()}
    return {name: code for name, code in changed.items() if code != found[name]}


@pytest.mark.parametrize(
    ("name", "code"), [pytest.param(*one, id=one[0]) for one in _changed().items()]
)
def test_script(name, code, tmp_path):
    """It runs to its end; each one starts and stops a session."""
    path = tmp_path / f"{name}.py"
    path.write_text(code)
    runpy.run_path(str(path), run_name="__main__")
