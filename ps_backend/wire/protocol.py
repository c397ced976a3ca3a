"""The numbers, names and secrets that client and server must agree on, also at barriers.

Whoever opens a session makes a secret. The session's name follows from it and may be known to all:
to open or join the session one shows the secret, and a server needs to remember nothing to see that
it is the right one, also a server that took the place of a lost one. Each client makes a key as it
joins, and its later requests carry it, so nobody speaks for another client.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ps_backend.errors import AuthenticationError
from ps_backend.program.types import ArrayType

PROTOCOL = 9
"""Version of the messages; a client and a server of different versions refuse to talk."""

CLIENT_BITS = 20
"""A session numbers so many clients, anew after each replacement of the server that does it."""

COUNTER_BITS = 36
"""The low bits of a buffer's id: what the client whose number the others are has counted."""

_NAME_DIGITS = 32
_EPOCH = "#"


def new_secret() -> str:
    """A secret for a new session."""
    return secrets.token_urlsafe(24)


def titled_secret(title: str, token: str | None) -> str:
    """The secret of the session with this title: who knows the servers' token can have it.

    The token cannot be found from it, so who was let into one session may not open others.
    """
    return hmac.digest((token or "").encode(), b"distvec title " + title.encode(), "sha256").hex()


def join_by(secret: str, epoch: int) -> str:
    """What lets others join a session as long as it has this driver."""
    return f"{secret}{_EPOCH}{epoch}"


def split_secret(given: str) -> tuple[str, int]:
    """A secret, and the epoch that ``join_by`` has added; 0 if there is none."""
    secret, _, epoch = given.partition(_EPOCH)
    return secret, int(epoch or 0)


def new_key() -> bytes:
    """A key for a new client."""
    return secrets.token_bytes(16)


def session_name(secret: str) -> str:
    """The name of the session with this secret, from which it cannot be found."""
    return hashlib.sha256(b"distvec session " + secret.encode()).hexdigest()[:_NAME_DIGITS]


def check_secret(name: str, secret: str) -> None:
    """Raise ``AuthenticationError`` unless it is that of the session ``name``."""
    if not hmac.compare_digest(session_name(secret).encode(), name.encode()):
        raise AuthenticationError(
            "the secret of the session is wrong; pass session=..., the .secret of the client that "
            "opened it"
        )


def check_key(joined: bytes, given: bytes) -> None:
    """Raise ``AuthenticationError`` unless a request carries the key that its client joined with.

    Costs less than a microsecond.
    """
    if not hmac.compare_digest(joined, given):
        raise AuthenticationError(
            "the request names a client of the session, but not with the key that it joined with"
        )


LONGEST_WAIT_SECONDS = 10.0
"""A wait ends after so long at most, as does the thread of one whose sender is gone."""

MOST_VALUE_BYTES = 1 << 16
MOST_ANSWER_BYTES = 32 << 20
"""Of the answers to one question: they go out in one message."""


def check_size(value: bytes) -> None:
    """Raise ``ValueError`` for a question or answer that is too large for a mailbox."""
    if len(value) > MOST_VALUE_BYTES:
        raise ValueError(
            f"a value of {len(value)} bytes; a mailbox takes up to {MOST_VALUE_BYTES}: put it into "
            "an array, and ask about the array"
        )


OPERATIONS: Mapping[str, np.ufunc] = MappingProxyType(
    {"add": np.add, "min": np.minimum, "max": np.maximum}
)
"""How a contribution can be combined with what is there."""


class ReleaseStep(IntEnum):
    """What is to become of a round: in one step, or of keyed spaces in two."""

    ARRAYS = 0
    """Make the totals, and end the round."""
    RESERVE = 1
    """Reserve room for the keys that the totals of keyed spaces insert."""
    KEYS = 2
    """Apply what was reserved, and end the round."""
    UNDO = 3
    """Take back ``ARRAYS``, which another server refused."""


class Key(NamedTuple):
    """A staged contribution: whose it is, to which slot, and which of this attempt's to it."""

    partition: int
    attempt: int
    slot: int = 0
    number: int = 0


class Winner(NamedTuple):
    """An attempt that is to count, and how many contributions to a slot it staged."""

    partition: int
    attempt: int
    contributions: int = 1

    def keys(self, slot: int) -> Iterator[Key]:
        """Its contributions to ``slot``, in order."""
        for number in range(self.contributions):
            yield Key(self.partition, self.attempt, slot, number)


@dataclass(frozen=True, slots=True)
class Total:
    """What a commit makes of a slot: a new buffer ``target``.

    It is the buffer ``source`` (or zeros), combined by ``op`` of ``OPERATIONS`` with what the
    ``winners`` staged, in their order.
    """

    target: int
    type: ArrayType
    winners: Sequence[Winner]
    source: int | None = None
    op: str = "add"
    slot: int = 0
