"""The pages in docs/ say what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import make_operations


def test_the_page_on_operations_is_up_to_date() -> None:
    assert make_operations.PAGE.read_text() == make_operations.page(), (
        "run python -m docs.make_operations"
    )


def test_the_page_on_cost_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(make_operations.PAGE).with_name("cost.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    names: dict[str, object] = {}
    exec(compile(code, "cost.md", "exec"), names)
    out = capsys.readouterr().out
    assert out.startswith("2 programs (messages per server)")
    assert "inner products of linear combinations follow from" in out
    assert "call site" in out and "\ntotal" in out
