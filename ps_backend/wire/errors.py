"""Errors as messages, and those that only client and server see."""

from __future__ import annotations

from ps_backend import errors
from ps_backend.wire import ps_pb2 as pb

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
