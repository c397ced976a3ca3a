"""The interface of transports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ps_backend.errors import PSError
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import Parts


class Unavailable(ConnectionError):
    """The server could not be reached, or went away before it answered. Repeating may help."""


class Forgotten(Unavailable):
    """The server runs, but what was sent over this connection does not arrive any more."""


class Closed(PSError):
    """The connection was closed here, maybe by another thread."""


class Busy(Unavailable):
    """The server runs, and takes no more requests just now; it did not look at this one."""


BUSY = "too many calls wait on this server; ask again later"
"""What a server says then."""

TOKEN_MISSING = "a token is needed; pass token=..., the content of the server's token file"
TOKEN_WRONG = "the token is wrong; pass the content of the server's token file"


@dataclass(slots=True)
class Answer:
    """A reply and the sizes of both messages, payload included."""

    reply: pb.Reply
    sent: int
    received: int


class Pending(Protocol):
    """An answer on its way."""

    def result(self) -> Answer:
        """Wait for the answer. Raises ``Unavailable`` or ``PSError``."""


class Transport(Protocol):
    """A connection to one server.

    ``payload`` goes with the request; the payload of the reply is written to ``into``, which must
    have its size. Both are flat bytes. Failures that the server reports are in the reply; what
    is raised is ``Unavailable``, ``AuthenticationError``, or ``PSError`` for a broken connection.
    """

    @property
    def address(self) -> str:
        """Where the server is, for people."""

    @property
    def bulk_way(self) -> str:
        """How bulk data went to it last, for people; empty before it was needed."""

    @property
    def generation(self) -> int:
        """How often the server was replaced by an empty one; 0 where none can be."""

    @property
    def is_replaced(self) -> bool:
        """Does another server take the place of this one if it is lost?"""

    def begin_anew(self, generation: int) -> bool:
        """The server that was replaced so often knows nothing of the session any more: whether
        that is since another one has its place, whom requests reach from now on."""

    def call(
        self, request: pb.Request, payload: Parts = (), into: memoryview | None = None
    ) -> Answer:
        """Send and wait, on the calling thread."""

    def start(
        self, request: pb.Request, payload: Parts = (), into: memoryview | None = None
    ) -> Pending:
        """Send now, wait later."""

    def close(self) -> None:
        """End the connection. Idempotent."""
