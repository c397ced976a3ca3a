"""What one iteration of a solver sends, reads and computes is what it was."""

from __future__ import annotations

import difflib

import pytest

from tests.golden.plans import FOLDER, RENEW, SOLVERS, path_of, plans_of_an_iteration


@pytest.mark.parametrize("name", SOLVERS)
def test_plans_are_those_of_the_file(name: str) -> None:
    path = path_of(name)
    before = path.read_text() if path.exists() else ""
    after = plans_of_an_iteration(SOLVERS[name]())
    change = difflib.unified_diff(
        before.splitlines(), after.splitlines(), path.name, "now", lineterm=""
    )
    assert before == after, "\n".join(
        ["the plans have changed; if that is meant, renew the files:", RENEW, *change]
    )


def test_every_file_has_its_solver() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(SOLVERS)
