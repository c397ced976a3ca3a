"""The tokens that let clients in: one, or several while one replaces another."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence

from ps_backend.transport.grpc_transport import check_token


class Tokens:
    """Those that a server accepts now. Without any it serves anybody. Thread-safe."""

    def __init__(self, *tokens: str) -> None:
        self._all: tuple[str, ...] = ()
        self.replace(tokens)

    @property
    def first(self) -> str | None:
        """The one that this server shows to other servers of a session."""
        return self._all[0] if self._all else None

    def replace(self, tokens: Sequence[str]) -> None:
        """Accept these from now on, and no others; ``ValueError`` if one cannot be sent."""
        for token in tokens:
            check_token(token)
        self._all = tuple(tokens)

    def accepts(self, given: bytes) -> bool:
        """Whether ``given`` is one of them."""
        return any(hmac.compare_digest(given, token.encode()) for token in self._all)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __bool__(self) -> bool:
        return bool(self._all)
