"""The cells of the notebooks in ``examples/`` print the outputs that are stored with them."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted(Path(__file__).resolve().parents[2].joinpath("examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_cell_prints_its_output(path: Path) -> None:
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4
    names: dict[str, Any] = {}
    try:
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                shown = "".join(text for one in cell["outputs"] for text in one["text"])
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec("".join(cell["source"]), names)
                assert printed.getvalue() == shown
    finally:
        names["ps"].close()


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS
