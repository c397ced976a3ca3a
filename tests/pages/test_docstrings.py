"""The examples in the docstrings of everything that users import run, and print what they show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import distvec as dv
from distvec.session import Session
from ps_backend.processes.launcher import LocalServers, launch_local
from tests.pages import docstrings


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


@pytest.mark.parametrize("name", sorted({*docstrings.EXAMPLES} - {*docstrings.NEEDS_SPARK}))
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
    names: dict[str, object] = {"ps": ps}
    examples = docstrings.EXAMPLES[name].__doc__ or ""
    if "(addresses, token" in examples or ", addresses, token" in examples:
        running: LocalServers = request.getfixturevalue("servers")
        names |= {"addresses": running.addresses, "token": running.token}
    docstrings.run(name, names)
