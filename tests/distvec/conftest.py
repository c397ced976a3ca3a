"""Sessions shared by the tests of this folder: opening one is not what they test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import distvec as dv
from ps_backend import kernels

SERVER_COUNTS = (1, 2, 3, 7)


@pytest.fixture(scope="session")
def sessions() -> Iterator[dict[int, dv.Session]]:
    """Sessions on 1, 2, 3 and 7 in-process servers, by number of servers."""
    opened = {count: dv.local(servers=count, in_process=True) for count in SERVER_COUNTS}
    yield opened
    for session in opened.values():
        session.close()


CLIENT = 0
"""In place of a number of servers: small arrays are on the client."""


@pytest.fixture(scope="session")
def places(sessions: dict[int, dv.Session]) -> Iterator[dict[int, dv.Session]]:
    """These sessions, and one that stores small arrays on the client."""
    with dv.local(in_process=True) as small:
        small.client_limit = 1 << 20
        yield {**sessions, CLIENT: small}


@pytest.fixture(autouse=True)
def _counts_of_sessions_begin_at_zero(request: pytest.FixtureRequest) -> None:
    """Messages are those to the busiest server: which one that is, no earlier test decides."""
    if "sessions" in request.fixturenames:
        for session in request.getfixturevalue("sessions").values():
            session.counters.reset()


@pytest.fixture
def small_arrays_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """In-process servers compile kernels from 131,072 elements: fewer than where it pays."""
    monkeypatch.setattr(kernels, "NUMBA_FROM_LENGTH", 1 << 17)


@pytest.fixture
def ps() -> Iterator[dv.Session]:
    """A fresh session on two in-process servers."""
    with dv.local(servers=2, in_process=True) as session:
        yield session
