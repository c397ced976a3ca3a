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
from ps_backend.processes.launcher import LocalServers, launch_local

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


@pytest.fixture(scope="module")
def servers() -> Iterator[LocalServers]:
    """Two processes, as ``distvec serve`` starts them."""
    started = launch_local(2)
    yield started
    started.stop()


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs(
    name: str,
    ps: Session,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """With ``np``, ``dv``, ``optim`` and a session ``ps`` of two servers.

    Examples that connect get the ``addresses`` and the ``token`` of running servers.
    """
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"np": np, "dv": dv, "optim": optim, "ps": ps}
    examples = EXAMPLES[name].__doc__ or ""
    if "(addresses, token" in examples or ", addresses, token" in examples:
        running: LocalServers = request.getfixturevalue("servers")
        names |= {"addresses": running.addresses, "token": running.token}
    test = doctest.DocTestParser().get_doctest(examples, names, name, None, None)
    runner = doctest.DebugRunner(optionflags=FLAGS)
    try:
        runner.run(test)
    except doctest.DocTestFailure as failure:
        pytest.fail(
            f"{name}: {failure.example.source}expected:\n{failure.example.want}got:\n{failure.got}"
        )
