"""What can go wrong between a client and its servers.

Each class crosses the wire by its name (see ``wire.py``), so a failure on a server is raised on the
client as the same class with the same message.
"""

from __future__ import annotations


class PSError(RuntimeError):
    """Base class of all errors of the parameter servers."""


class ServerLost(PSError):
    """Raised if a server does not answer: it died, was stopped, or cannot be reached.

    Attributes
    ----------
    resume_from : str or None
        The last checkpoint of the session, for ``restore``; None without a checkpoint directory.
    """

    resume_from: str | None = None


class PeerLost(ServerLost):
    """Raised if a server cannot fetch data from another one, or the data are lost."""


class SessionUnknown(ServerLost):
    """Raised if a server does not have the session: it was closed, or the server was replaced."""


class ReplayDiverged(ServerLost):
    """Raised if a server that takes the place of a lost one computes other bits than that did."""


class BufferLost(PSError):
    """Raised if an array is not on its server: it was freed, or lost with the server."""


class OutOfBudget(PSError, MemoryError):
    """Raised if a request needs more memory than the server may use.

    The request changes no data on that server. Other servers may have carried out their part.

    Attributes
    ----------
    refused : numpy.ndarray or None
        For a write to rows of keys: the keys of the unchanged rows.
    """

    refused: object = None


class NothingToReduce(ValueError):
    """Raised if a reduction without identity gets an array that proves empty on the servers."""


class AuthenticationError(PSError, PermissionError):
    """Raised if the token of a request is missing or wrong."""


class InvalidProgram(PSError, ValueError):
    """Raised if a program breaks a rule of ``program.RULES``, or gets inputs of other types."""


class FunctionFailed(PSError):
    """Raised if a user's function on a server failed, timed out, or returned an invalid result.

    No data were changed on that server.
    """


class ProgramCancelled(PSError):
    """Raised if the client cancelled a program, for example by Ctrl-C; no data were changed."""


class LayoutChanged(PSError):
    """Raised if keys of a space were inserted or removed after an array was read.

    Read the array again and repeat the operation.
    """


class RoundClosed(PSError):
    """Raised if an update arrives for a round that is already committed or dropped."""


class MailboxClosed(PSError):
    """Raised if a task uses a mailbox that does not exist or was closed."""


class LoopClosed(PSError):
    """Raised if a task continues in a loop (``clocks.py``) that does not exist or was closed."""


class AttemptFenced(PSError):
    """Raised if a task attempt acts for a rank of a loop that a later attempt has taken over."""


class StaleRequest(PSError):
    """Raised if a repeated request is so old that the server has dropped its reply."""


class RoundLost(ServerLost):
    """Raised if a server that held updates of a round is lost; the round changed no data."""


class StoreFailed(PSError, OSError):
    """Raised if a file of arrays cannot be written or read."""


class StoreUnseen(StoreFailed):
    """Raised if a server cannot reach or read a store that its client uses.

    The values then pass through the client.
    """


class Corrupted(PSError, ValueError):
    """Raised if a file differs from its checksums: it is truncated, damaged, or another file."""


class CheckpointIncomplete(PSError, ValueError):
    """Raised if a directory contains no complete checkpoint."""


class EpochFenced(PSError):
    """Raised if a request is for an earlier or later incarnation of the server."""


class SessionFenced(PSError):
    """Raised if another driver has taken over the session."""


class ServerDraining(PSError):
    """Raised by a new session if a server was told to end, and only serves the sessions it has."""


class SessionExpired(SessionUnknown):
    """Raised if the lease of the session ran out, and the servers ended it."""


class NotDurable(RuntimeWarning):
    """Warns that a checkpoint could not be written; work continues, and the previous one stays."""
