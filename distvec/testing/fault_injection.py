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
    """What happens to the first messages of a session, one of ``FAULTS`` each; then nothing."""
    return st.lists(st.sampled_from(FAULTS), max_size=max_size)


def lossy_session(servers: int, faults: Sequence[str]) -> Session:
    """A session on in-process servers whose messages suffer ``faults``, in order of sending."""
    unknown = set(faults) - set(FAULTS)
    if unknown:
        raise ValueError(f"faults must be among {FAULTS}, got {sorted(unknown)}")
    remaining = iter(faults)
    transports = [_Lossy(inner, remaining) for inner in in_process_transports(servers)]
    return Session(Client(transports, retry=_AT_ONCE))


class _Lossy:
    """A transport that loses what it is told to."""

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
        # What opens and closes a session has no number, and is not repeated.
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
