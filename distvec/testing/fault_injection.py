"""Sessions whose messages get lost, as a strategy says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future

import hypothesis.strategies as st

from distvec.session import Session
from ps_backend.client import Client
from ps_backend.client.server_link import RetryPolicy
from ps_backend.in_process import in_process_transports
from ps_backend.transport import Answer, Transport, Unavailable
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import Parts

FAULTS = ("none", "lose request", "lose reply")
"""What may happen to a message; after a lost reply the server has done the work."""

_AT_ONCE = RetryPolicy(total=5.0, first=1e-4, longest=1e-3)


def faults(max_size: int = 40) -> st.SearchStrategy[list[str]]:
    """Return a strategy for the faults of the first requests of a session.

    Parameters
    ----------
    max_size : int, default 40
        Largest number of requests; later requests have no fault.

    Returns
    -------
    hypothesis.strategies.SearchStrategy
        Lists of strings from ``FAULTS``: "none", "lose request" and "lose reply".

    Examples
    --------
    >>> from hypothesis import find
    >>> from distvec.testing import faults
    >>> find(faults(), lambda drawn: len(drawn) == 2)
    ['none', 'none']
    """
    return st.lists(st.sampled_from(FAULTS), max_size=max_size)


def lossy_session(servers: int, faults: Sequence[str]) -> Session:
    """Open a session on in-process servers that loses requests or replies.

    Parameters
    ----------
    servers : int
        Number of servers.
    faults : sequence of str
        Fault of each request in order of sending: "none", "lose request" or "lose reply". After a
        lost reply the server has done the work. Repeated requests count, too.

    Returns
    -------
    Session
        The session.

    Raises
    ------
    ValueError
        If a fault is unknown.

    Examples
    --------
    >>> from distvec.testing import lossy_session
    >>> with lossy_session(2, ["none", "none", "lose reply", "lose request"]) as session:
    ...     x = session.array([1.0, 2.0])
    ...     x += 1  # is added once
    ...     print(x.numpy())
    [2. 3.]
    """
    unknown = set(faults) - set(FAULTS)
    if unknown:
        raise ValueError(f"faults must be among {FAULTS}, got {sorted(unknown)}")
    remaining = iter(faults)
    transports = [_Lossy(inner, remaining) for inner in in_process_transports(servers)]
    return Session(Client(transports, retry=_AT_ONCE))


class _Lossy:
    """A transport that loses requests and replies as ``faults`` say."""

    def __init__(self, inner: Transport, faults: Iterable[str]) -> None:
        self._inner, self._faults = inner, iter(faults)

    @property
    def address(self) -> str:
        """Where the server is."""
        return self._inner.address

    @property
    def bulk_way(self) -> str:
        """How bulk data went to it last."""
        return self._inner.bulk_way

    @property
    def generation(self) -> int:
        """How often the server was replaced."""
        return self._inner.generation

    @property
    def is_replaced(self) -> bool:
        """Does another take its place if it is lost?"""
        return self._inner.is_replaced

    def begin_anew(self, generation: int) -> bool:
        """Has another taken its place?"""
        return self._inner.begin_anew(generation)

    def call(
        self, request: pb.Request, payload: Parts = (), into: memoryview | None = None
    ) -> Answer:
        """Send and wait, unless one of both is lost; repeated requests are messages too."""
        # Requests that open or close a session have no number, and are not repeated.
        fault = next(self._faults, "none") if request.sequence else "none"
        if fault == "lose request":
            raise Unavailable("the request was lost")
        answer = self._inner.call(request, payload, into)
        if fault == "lose reply":
            raise Unavailable("the reply was lost")
        return answer

    def start(
        self, request: pb.Request, payload: Parts = (), into: memoryview | None = None
    ) -> Future[Answer]:
        """The same, with what is raised in the answer."""
        answer: Future[Answer] = Future()
        try:
            answer.set_result(self.call(request, payload, into))
        except Unavailable as error:
            answer.set_exception(error)
        return answer

    def close(self) -> None:
        """End the connection."""
        self._inner.close()
