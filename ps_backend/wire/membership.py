"""Who may use a session.

Whoever opens a session makes a secret. The session's name follows from it and may be known to all:
to open or join the session one shows the secret, and a server needs to remember nothing to see that
it is the right one, also a server that took the place of a lost one. Each client makes a key as it
joins, and its later requests carry it, so nobody speaks for another client.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from ps_backend.errors import AuthenticationError

_NAME_DIGITS = 32


def new_secret() -> str:
    """A secret for a new session."""
    return secrets.token_urlsafe(24)


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
