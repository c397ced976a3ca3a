"""Sessions shared by the tests of this folder: opening one is not what they test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import distvec as dv

SERVER_COUNTS = (1, 2, 3, 7)


@pytest.fixture(scope="session")
def sessions() -> Iterator[dict[int, dv.Session]]:
    """Sessions on 1, 2, 3 and 7 in-process servers, by number of servers."""
    opened = {count: dv.local(servers=count, in_process=True) for count in SERVER_COUNTS}
    yield opened
    for session in opened.values():
        session.close()


@pytest.fixture
def ps() -> Iterator[dv.Session]:
    """A fresh session on two in-process servers."""
    with dv.local(servers=2, in_process=True) as session:
        yield session
