"""What tests of keyed spaces share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import distvec as dv


@contextmanager
def messages(ps: dv.Session, count: int) -> Iterator[None]:
    """So many messages are sent within the context, each to the servers that it concerns."""
    before = ps.counters.messages
    yield
    assert ps.counters.messages - before == count
