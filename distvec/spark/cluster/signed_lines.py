"""JSON messages over a socket between two sides that know one key.

Each message is a line: a signature (HMAC-SHA256) and the JSON. It is checked before anything is
parsed, and covers both sides' nonces, the direction and a count, so that no line can be replayed.
Nothing is encrypted, so the key itself never travels here.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import time
from typing import Any

from ps_backend.errors import AuthenticationError

_MOST_BYTES = 1 << 16
_PIECE_BYTES = 1 << 12
_NONCE_BYTES = 32


class SignedLines:
    """One end of such a connection. Not thread-safe."""

    def __init__(self, connection: socket.socket, key: str, *, asks: bool) -> None:
        """Exchange nonces; ``asks`` on one side, and not on the other.

        Raises ``OSError`` (as all methods do) if the other side leaves or is silent for longer than
        the timeout of ``connection``, ``AuthenticationError`` if it does not know the key.
        """
        self._connection = connection
        self.seconds = connection.gettimeout()
        """That the other side may be silent."""
        self._read = bytearray()
        self.known = False
        """Whether the other side has shown that it knows the key."""
        self._key = key.encode()
        nonce = secrets.token_hex(_NONCE_BYTES)
        connection.sendall(nonce.encode() + b"\n")
        other = self._line(2 * _NONCE_BYTES + 1).decode("ascii", "replace")
        first, second = (nonce, other) if asks else (other, nonce)
        self._nonces = f"{first} {second}"
        self._mine, self._theirs = ("ask", "answer") if asks else ("answer", "ask")
        self._sent = self._received = 0

    @property
    def local_host(self) -> str:
        """The address of this machine as the other side sees it."""
        return str(self._connection.getsockname()[0])

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self._connection.settimeout(self.seconds)
        body = json.dumps(message).encode()
        self._sent += 1
        self._connection.sendall(self._sign(self._mine, self._sent, body) + b" " + body + b"\n")

    def receive(self) -> dict[str, Any]:
        """Wait for one message."""
        signature, _, body = self._line(_MOST_BYTES).partition(b" ")
        self._received += 1
        if not hmac.compare_digest(signature, self._sign(self._theirs, self._received, body)):
            raise AuthenticationError(
                "a message with a wrong signature came: its sender has another key, as servers and "
                "tasks of another application have"
            )
        self.known = True
        message = json.loads(body)
        if not isinstance(message, dict):
            raise AuthenticationError("a message that is not an object came")
        return message

    def close(self) -> None:
        """End the connection. Idempotent."""
        self._connection.close()

    def _sign(self, direction: str, count: int, body: bytes) -> bytes:
        text = f"{self._nonces} {direction} {count} ".encode() + body
        return hmac.digest(self._key, text, "sha256").hex().encode()

    def _line(self, most: int) -> bytes:
        """A line of at most so many bytes, all of which has the timeout, not each byte of it."""
        deadline = None if self.seconds is None else time.monotonic() + self.seconds
        while (end := self._read.find(b"\n")) < 0:
            if len(self._read) >= most:
                raise ConnectionError(f"a line of more than {most} bytes came")
            if deadline is not None:
                self._connection.settimeout(max(1e-3, deadline - time.monotonic()))
            piece = self._connection.recv(min(_PIECE_BYTES, most - len(self._read)))
            if not piece:
                raise ConnectionError("the other side left")
            self._read += piece
        line = bytes(self._read[:end])
        del self._read[: end + 1]
        return line


def ask_once(address: tuple[str, int], key: str, message: dict[str, Any], timeout: float) -> Any:
    """Connect, ask one question, and return the answer. Raises as ``SignedLines`` does."""
    lines = connect(address, key, timeout)
    try:
        lines.send(message)
        return lines.receive()
    finally:
        lines.close()


def connect(address: tuple[str, int], key: str, timeout: float) -> SignedLines:
    """Connect to who answers at ``address``; ``timeout`` in seconds, also for each message."""
    connection = socket.create_connection(address, timeout)
    try:
        return SignedLines(connection, key, asks=True)
    except BaseException:
        connection.close()
        raise
