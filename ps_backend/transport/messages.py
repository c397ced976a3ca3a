"""JSON messages to a process that answers them (``ps_backend/processes/message_server.py``)."""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import time
from typing import Any

from ps_backend.errors import AuthenticationError
from ps_backend.transport.framed import (
    NUMBER,
    FramedConnection,
    PlainStream,
    Stream,
    TlsStream,
    keep_alive,
    proofs_of,
)
from ps_backend.transport.tls import Tls, client_context

MOST_BYTES = 1 << 16
"""Of a message."""

NONCE_BYTES = 32
"""Each side sends so many: what one connection has shown is of no use for another one."""

_LOOK_SECONDS = 0.1


class MessageClient:
    """A connection over which one message after the other is asked. Not thread-safe.

    Raises ``OSError`` where the other side leaves, or does not answer in time.
    """

    def __init__(
        self, address: tuple[str, int], key: str, seconds: float, tls: Tls | None = None
    ) -> None:
        """Connect; ``AuthenticationError`` if the other side does not know the ``key``."""
        self._until = time.monotonic() + seconds
        self._connection = socket.create_connection(address, seconds)
        try:
            self._framed = self._introduced(address[0], key, tls)
        except BaseException:
            self.close()
            raise

    @property
    def local_host(self) -> str:
        """The address of this machine as the other side sees it."""
        return str(self._connection.getsockname()[0])

    def ask(self, message: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The answer, which has so many seconds."""
        self._until = time.monotonic() + seconds
        self._framed.send(json.dumps(message).encode(), (), self._silent)
        came = self._framed.receive(self._silent)
        if came is None:
            raise ConnectionResetError("the other side left")
        answer: dict[str, Any] = json.loads(came[0])
        return answer

    def close(self) -> None:
        """End the connection. Idempotent."""
        self._connection.close()

    def _introduced(self, host: str, key: str, tls: Tls | None) -> FramedConnection:
        keep_alive(self._connection)
        plain = PlainStream(self._connection, _LOOK_SECONDS)
        stream: Stream = plain
        if tls is not None:
            stream = TlsStream(plain, client_context(tls), self._silent, server=tls.name or host)
        framed = FramedConnection(self._connection, stream, MOST_BYTES)
        mine, other = secrets.token_bytes(NONCE_BYTES), bytearray(NONCE_BYTES)
        framed.send_proof(mine, self._silent)
        framed.take(memoryview(other), self._silent)
        ours, theirs = proofs_of(key, mine + bytes(other))
        framed.send_proof(ours, self._silent)
        proof = bytearray(len(theirs) + NUMBER.size)
        framed.take(memoryview(proof), self._silent)
        if not hmac.compare_digest(proof[: len(theirs)], theirs):
            raise AuthenticationError("who listens there has another key, as other applications do")
        return framed

    def _silent(self, _: bool) -> None:
        if time.monotonic() > self._until:
            raise TimeoutError("the other side did not answer in time")


def ask_once(
    address: tuple[str, int],
    key: str,
    message: dict[str, Any],
    seconds: float,
    tls: Tls | None = None,
) -> dict[str, Any]:
    """Connect, ask one message, and return the answer."""
    client = MessageClient(address, key, seconds, tls)
    try:
        return client.ask(message, seconds)
    finally:
        client.close()
