"""JSON messages to a process that answers them (``ps_backend/processes/message_server.py``).

Each is signed, as not all of these connections are encrypted, and reports of workers are unpickled.
"""

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
    Silent,
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

_SIGNATURE_BYTES = 32

_LOOK_SECONDS = 0.1


class SignedMessages:
    """Messages over a connection, of which each shows that its sender knows the key.

    The signature (HMAC-SHA256, by a key of this connection alone) is over the direction, the number
    and the bytes of the message. So who can change the traffic between the two sides can add,
    change, repeat and reorder none. It can leave out the last ones.
    """

    def __init__(self, framed: FramedConnection, key: str, nonces: bytes, *, asks: bool) -> None:
        """``nonces`` of who asks, and then of who answers."""
        self._framed = framed
        self._key = hmac.digest(key.encode(), b"messages " + nonces, "sha256")
        self._mine, self._theirs = (b"ask ", b"answer ") if asks else (b"answer ", b"ask ")
        self._sent = self._received = 0

    def send(self, message: bytes, silent: Silent) -> None:
        """Send one message."""
        signature = self._sign(self._mine, self._sent, message)
        self._sent += 1
        self._framed.send(signature + message, (), silent)

    def receive(self, silent: Silent) -> bytes | None:
        """The next message; None if the other side has ended.

        Raises ``ConnectionAbortedError`` for what the other side did not send, or not now.
        """
        came = self._framed.receive(silent)
        if came is None:
            return None
        signed, size = came
        signature, message = signed[:_SIGNATURE_BYTES], signed[_SIGNATURE_BYTES:]
        if size or len(message) > MOST_BYTES:
            raise ConnectionAbortedError(f"a message of {len(message)} bytes, {size} behind it")
        if not hmac.compare_digest(signature, self._sign(self._theirs, self._received, message)):
            raise ConnectionAbortedError(
                "a message has an invalid signature: it was changed, repeated or inserted on "
                "the way, so the network is not safe; the connection was closed"
            )
        self._received += 1
        return message

    def _sign(self, side: bytes, number: int, message: bytes) -> bytes:
        return hmac.digest(self._key, side + NUMBER.pack(number) + message, "sha256")


class MessageClient:
    """A connection over which one message after the other is asked. Not thread-safe.

    Raises ``OSError`` where the other side leaves, or does not answer in time, or what comes is not
    of it; the connection has ended then.
    """

    def __init__(
        self, address: tuple[str, int], key: str, seconds: float, tls: Tls | None = None
    ) -> None:
        """Connect; ``AuthenticationError`` if the other side does not know the ``key``."""
        self._until = time.monotonic() + seconds
        self._connection = socket.create_connection(address, seconds)
        try:
            self._messages = self._introduced(address[0], key, tls)
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
        question = json.dumps(message).encode()
        try:
            self._messages.send(question, self._silent)
            came = self._messages.receive(self._silent)
            if came is None:
                raise ConnectionResetError("the other side left")
        except BaseException:
            self.close()  # or the next question got the answer to this one
            raise
        answer: dict[str, Any] = json.loads(came)
        return answer

    def close(self) -> None:
        """End the connection. Idempotent."""
        self._connection.close()

    def _introduced(self, host: str, key: str, tls: Tls | None) -> SignedMessages:
        keep_alive(self._connection)
        plain = PlainStream(self._connection, _LOOK_SECONDS)
        stream: Stream = plain
        if tls is not None:
            stream = TlsStream(plain, client_context(tls), self._silent, server=tls.name or host)
        framed = FramedConnection(self._connection, stream, _SIGNATURE_BYTES + MOST_BYTES)
        mine, other = secrets.token_bytes(NONCE_BYTES), bytearray(NONCE_BYTES)
        framed.send_proof(mine, self._silent)
        framed.take(memoryview(other), self._silent)
        nonces = mine + bytes(other)
        ours, theirs = proofs_of(key, nonces)
        framed.send_proof(ours, self._silent)
        proof = bytearray(len(theirs) + NUMBER.size)
        framed.take(memoryview(proof), self._silent)
        if not hmac.compare_digest(proof[: len(theirs)], theirs):
            raise AuthenticationError(
                "the process at this address has another key; it may belong to another application"
            )
        return SignedMessages(framed, key, nonces, asks=True)

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
