"""What can go wrong between a client and its servers.

Each class crosses the wire by its name (see ``wire.py``), so a failure on a server is raised on the
client as the same class with the same message.
"""

from __future__ import annotations


class PSError(RuntimeError):
    """Base class of every failure of the parameter servers."""


class ServerLost(PSError):
    """A server does not answer: it died, was stopped, or the network is gone."""

    resume_from: str | None = None
    """The last checkpoint of the session, if it has a directory for them: ``restore`` takes it."""


class PeerLost(ServerLost):
    """A server that was to fetch from another one got no answer, or found its part gone."""


class SessionUnknown(ServerLost):
    """A server knows nothing of the session: it was closed there, or the server was replaced."""


class BufferLost(PSError):
    """A buffer that a request names is not on the server: freed, or lost with its server."""


class OutOfBudget(PSError, MemoryError):
    """A request needs more memory than the server may use; nothing was changed."""

    refused: object = None
    """Of a change to rows of keys: those that are as they were, an array. A server has room for
    its own keys or not, so others may have been changed."""


class NothingToReduce(ValueError):
    """A reduction of nothing has no result; that there is nothing was known only on the servers."""


class AuthenticationError(PSError, PermissionError):
    """The token that came with a request is missing or wrong."""


class InvalidProgram(PSError, ValueError):
    """A program breaks a rule of ``program.RULES``, or its inputs do not have the stated types."""


class FunctionFailed(PSError):
    """A function of users on a server raised, took too long, or made what it may not make.

    Nothing was changed on that server.
    """


class ProgramCancelled(PSError):
    """A program was ended at its client's wish, as by Ctrl-C; it has changed nothing."""


class LayoutChanged(PSError):
    """Keys of a space were inserted or removed while somebody worked with it as it was."""


class RoundClosed(PSError):
    """A contribution came for a round that was committed or dropped."""


class MailboxClosed(PSError):
    """Somebody waits at, or answers, a mailbox that is not there (any more)."""


class LoopClosed(PSError):
    """Somebody works on in a loop (``clocks.py``) that is not there (any more)."""


class AttemptFenced(PSError):
    """An attempt speaks for a rank of a loop after a later attempt has joined."""


class StaleRequest(PSError):
    """A repeated request is so old that its reply is no longer on record."""


class RoundLost(ServerLost):
    """A round died with a server on which contributions to it were; nothing was changed."""


class StoreFailed(PSError, OSError):
    """A file of arrays could not be written or read."""


class StoreUnseen(StoreFailed):
    """A server does not see what its client does, or may not: values then go through the client."""


class Corrupted(PSError, ValueError):
    """A file is not what was written: cut off, damaged, or something else altogether."""


class CheckpointIncomplete(PSError, ValueError):
    """A directory holds no checkpoint that was written to its end."""


class EpochFenced(PSError):
    """A request is meant for another life of the server than the one that got it."""


class SessionFenced(PSError):
    """Another driver has taken over the session."""


class SessionExpired(SessionUnknown):
    """The session outlived its client by the time of its lease, and was ended."""


class NotDurable(RuntimeWarning):
    """A checkpoint could not be written; the work goes on, and the one before it stays."""
