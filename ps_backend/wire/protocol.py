"""What client and server must agree on besides messages: numbers, names, secrets, errors, chunks.

Whoever opens a session makes a secret. The session's name follows from it and may be known to all:
to open or join the session one shows the secret, and a server needs to remember nothing to see that
it is the right one, also a server that took the place of a lost one. Each client makes a key as it
joins, and its later requests carry it, so nobody speaks for another client.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ps_backend import errors
from ps_backend.errors import AuthenticationError
from ps_backend.program.types import ArrayType
from ps_backend.wire import ps_pb2 as pb

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


_MOST_ERROR_TEXT = 2000
"""Characters: an error may quote a program of any size, and a server keeps its latest replies."""


class UnknownSweep(errors.PSError):
    """A program names a sweep that the server has not seen; the client then sends it whole."""


class PayloadBroken(errors.PSError):
    """The payload of a request is shorter or longer than announced, mostly as the sender left."""


class GoneBefore(errors.BufferLost):
    """A buffer was made before this server took the place of one that was lost."""


class Abandoned(errors.PSError):
    """A program was ended before its time, as nobody waits for it any more."""


class NothingShared(errors.PSError):
    """The server cannot share memory with the client; it did not look at the request."""


class Crowded(errors.PSError):
    """So many requests wait on a server that it takes no more; the client then asks later."""


class TooEarly(errors.PSError):
    """What a request waits for has not happened in time; the client then asks again."""


class UnknownView(errors.PSError):
    """A request names keys by a view that is not here; the client then sends the keys."""


class NotAlong(errors.PSError):
    """A question is not about an array of the type that was to come along with it."""


_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        errors.PSError,
        errors.ServerLost,
        errors.PeerLost,
        errors.SessionUnknown,
        errors.BufferLost,
        errors.OutOfBudget,
        errors.AuthenticationError,
        errors.InvalidProgram,
        errors.FunctionFailed,
        errors.ProgramCancelled,
        errors.LayoutChanged,
        errors.RoundClosed,
        errors.StaleRequest,
        errors.MailboxClosed,
        errors.LoopClosed,
        errors.AttemptFenced,
        errors.RoundLost,
        errors.StoreFailed,
        errors.StoreUnseen,
        errors.Corrupted,
        errors.CheckpointIncomplete,
        errors.EpochFenced,
        errors.SessionFenced,
        errors.ServerDraining,
        errors.SessionExpired,
        Crowded,
        TooEarly,
        NotAlong,
        NothingShared,
        UnknownSweep,
        UnknownView,
        GoneBefore,
        Abandoned,
        PayloadBroken,
        ValueError,
        IndexError,
        TypeError,
        NotImplementedError,
        MemoryError,
        OverflowError,
    )
}


def encode_error(error: Exception) -> pb.Reply:
    """A reply that makes ``decode_error`` raise the same, or what it is a case of.

    Of classes that are nothing known it makes ``PSError``.
    """
    text = str(error)
    if len(text) > _MOST_ERROR_TEXT:
        text = text[:_MOST_ERROR_TEXT] + " ..."
    kind = type(error).__name__
    if kind not in _KINDS:
        known = (one.__name__ for one in type(error).__mro__ if _KINDS.get(one.__name__) is one)
        kind = next(known, "")
    if kind:
        return pb.Reply(error=pb.Error(kind=kind, message=text))
    text = f"the server failed with {type(error).__name__}: {text}"
    return pb.Reply(error=pb.Error(kind=errors.PSError.__name__, message=text))


def decode_error(error: pb.Error, address: str) -> Exception:
    """The exception that ``error`` describes; failures of the servers also name the server."""
    kind = _KINDS.get(error.kind, errors.PSError)
    where = f" (server {address})" if issubclass(kind, errors.PSError) else ""
    return kind(error.message + where)


CHUNK_BYTES = 1 << 20
"""Bulk data goes in pieces of this size, which is where loopback and HTTP/2 are fastest."""

SMALL_BYTES = 1 << 18
"""A payload up to this size travels inside one unary call, a larger one as a stream of chunks."""

Parts = Sequence[memoryview]
"""Payload as it lies in memory: flat byte views, sent one after the other."""

_CHUNK_TAG = 15 << 3 | 2  # field 15 (`chunk` of Request and of Reply), length-delimited


def byte_view(array: np.ndarray) -> memoryview:
    """The memory of a C-contiguous array as flat bytes, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def chunk_frames(parts: Parts) -> Iterator[bytes]:
    """``parts`` as serialized messages with nothing but a chunk: one copy, and none by protobuf."""
    for part in parts:
        for start in range(0, len(part), CHUNK_BYTES):
            piece = part[start : start + CHUNK_BYTES]
            yield b"".join((_chunk_header(len(piece)), piece))


def chunk_field(parts: Parts) -> bytes:
    """``parts`` as one chunk, to be appended to a serialized message that has none."""
    return b"".join((_chunk_header(sum(map(len, parts))), *parts))


def chunk_of(frame: bytes) -> memoryview:
    """The chunk in a serialized message of ``chunk_frames``, without a copy."""
    size = position = 0
    if frame[:1] == bytes((_CHUNK_TAG,)):
        for position in range(1, min(len(frame), 11)):
            byte = frame[position]
            size |= (byte & 0x7F) << 7 * (position - 1)
            if byte < 0x80:
                break
        if len(frame) == position + 1 + size:
            return memoryview(frame)[position + 1 :]
    raise PayloadBroken("expected a message with a chunk of payload alone")


def _chunk_header(size: int) -> bytes:
    header = bytearray((_CHUNK_TAG,))
    while size > 0x7F:
        header.append(size & 0x7F | 0x80)
        size >>= 7
    header.append(size)
    return bytes(header)


def copy_chunks(chunks: Iterable[memoryview], target: memoryview) -> int:
    """Copy ``chunks`` one after the other into ``target``; ``PayloadBroken`` unless they fill it.

    Returns the number of bytes.
    """
    position = 0
    for chunk in chunks:
        end = position + len(chunk)
        if end > len(target):
            raise PayloadBroken(f"more than the announced {len(target)} bytes of payload came")
        target[position:end] = chunk
        position = end
    if position != len(target):
        raise PayloadBroken(f"{position} of {len(target)} bytes of payload came")
    return position
