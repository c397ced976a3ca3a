"""The examples in the docstrings of everything that users import run, and print what they show."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distvec as dv
import optim
from distvec.session import Session
from docs.public import documented

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
EXAMPLES = {
    name: thing
    for name, thing in documented().items()
    if ">>>" in (thing.__doc__ or "") and "spark" not in (thing.__doc__ or "")
}


@pytest.fixture(scope="module")
def ps() -> Iterator[Session]:
    with dv.local(2, in_process=True) as session:
        yield session


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs(
    name: str, ps: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``np``, ``dv``, ``optim`` and a session ``ps`` of two servers."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"np": np, "dv": dv, "optim": optim, "ps": ps}
    test = doctest.DocTestParser().get_doctest(
        EXAMPLES[name].__doc__ or "", names, name, None, None
    )
    runner = doctest.DebugRunner(optionflags=FLAGS)
    try:
        runner.run(test)
    except doctest.DocTestFailure as failure:
        pytest.fail(
            f"{name}: {failure.example.source}expected:\n{failure.example.want}got:\n{failure.got}"
        )
