"""The pages in docs/ say what is so."""

from __future__ import annotations

import re

import pytest

from docs import make_operations


def test_the_page_on_operations_is_up_to_date() -> None:
    assert make_operations.PAGE.read_text() == make_operations.page(), (
        "run python -m docs.make_operations"
    )


def run(page: str) -> None:
    """The code of a page, from top to bottom."""
    text = (make_operations.PAGE.parents[1] / page).read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    exec(compile(code, page, "exec"), {})


def test_the_page_on_cost_runs(capsys: pytest.CaptureFixture[str]) -> None:
    run("how-to/make_it_fast.md")
    out = capsys.readouterr().out
    assert out.startswith("2 programs (messages per server)")
    assert "inner products of linear combinations follow from" in out
    assert "call site" in out and "\ntotal" in out


def test_the_page_on_keyed_spaces_runs(capsys: pytest.CaptureFixture[str]) -> None:
    run("how-to/keys.md")
    assert capsys.readouterr().out.splitlines() == [
        "[5. 2. 0.] 3",
        "(1, 16) [False]",
        "(1, 16) 88",
        "1002.0",
        "[4.95] 2.96875",
        "4.0",
        "5",
        "0 1",
        "True (1, 16)",
        "[0.] False",
    ]


def test_the_page_on_data_that_moves_runs(capsys: pytest.CaptureFixture[str]) -> None:
    run("how-to/sort_and_scatter.md")
    out = capsys.readouterr().out.splitlines()
    assert out[0].endswith(" 100000")
    assert "1.0 961 [841  75  84]" in out
    assert "0.67 -0.0 True 10" in out


def test_the_page_on_linear_algebra_runs(capsys: pytest.CaptureFixture[str]) -> None:
    run("how-to/linear_algebra.md")
    components, cost, precise, fit, solved, white = capsys.readouterr().out.splitlines()
    assert components == "(100000, 3) True [0.64 0.2  0.13]"
    assert cost == "2 2 True"
    assert precise == "True True"
    assert fit == "[0 1 2 3 4 5 6 7] 8"
    assert solved == "0 [0 1 2 3 4 5 6 7] 1"
    assert white == "True"


def test_the_page_on_gradients_runs(capsys: pytest.CaptureFixture[str]) -> None:
    run("how-to/autodiff.md")
    first, solved, newton, *others = capsys.readouterr().out.splitlines()
    assert first == "0.693147 (20,)" and solved == "True 0.25" and newton == "True"
    assert others[:2] == ["(20, 3) (3, 20)", "True"]
    assert others[3:] == ["[-1.  0.  1.]", "[-0.881  0.622] [0.105 0.235]"]


def test_the_page_on_rows_runs(capsys: pytest.CaptureFixture[str]) -> None:
    run("how-to/rows.md")
    assert capsys.readouterr().out.splitlines() == [
        "[2. 2. 2.] [2 0]",
        "this brings together the rows of all keys, or needs them at the client",
        "row program of score: one message to each server that holds some of the keys",
        "[2 1 0]",
        "3 [3 1]",
        "[0 1 1 0 0 0 0 0] [0.82 0.15 0.03 0.01]",
        "True",
        "6.0 3.871201010907891",
    ]
