"""A service on the driver for tasks: connections of signed lines, each in a thread of its own."""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distvec.spark.cluster.signed_lines import SignedLines

_POLL_SECONDS = 0.05
"""How long closing takes."""

_MOST_UNKNOWN = 128
"""Connections that have not shown the key yet; whoever comes then takes the place of the oldest."""

_MOST_CONNECTIONS = 4096
"""Each holds a thread of the driver."""

_LOG = logging.getLogger(__name__)


class SignedService(ABC):
    """Listens from the start until ``close``."""

    def __init__(self, host: str, bind: str, key: str, *, name: str, silence: float) -> None:
        """Listen on a free port of the address ``bind``; others reach it as ``host``.

        Who does not know the ``key``, or is silent for so many seconds, is sent away.
        """
        self._key, self._silence = key, silence
        self._server = _Server(bind, self._serve)
        self.address = (host, int(self._server.server_address[1]))
        threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": _POLL_SECONDS},
            name=name,
            daemon=True,
        ).start()

    @abstractmethod
    def converse(self, lines: SignedLines) -> None:
        """Serve one connection, until this returns or raises ``OSError``: the other side left."""

    def close(self) -> None:
        """Take no new connections, and break those that exist. Idempotent."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._server.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(self._silence)
        with suppress(OSError):
            lines = SignedLines(connection, self._key, asks=False)
            self._server.connections[connection] = lines
            self.converse(lines)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, bind: str, serve: Callable[[socket.socket], None]) -> None:
        self.address_family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self.connections: dict[socket.socket, SignedLines | None] = {}
        self._serve = serve
        super().__init__((bind, 0), socketserver.BaseRequestHandler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Make room for a connection that has come; whether there is any."""
        unknown = [
            connection
            for connection, lines in list(self.connections.items())
            if lines is None or not lines.known
        ]
        for connection in unknown[: max(0, len(unknown) + 1 - _MOST_UNKNOWN)]:
            self.connections.pop(connection, None)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        if len(self.connections) >= _MOST_CONNECTIONS:
            return False
        self.connections[request] = None
        return True

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, in its thread."""
        try:
            self._serve(request)
        finally:
            self.connections.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A stranger: no reason to write to the driver's terminal."""
        _LOG.debug("a connection from %s ended", client_address, exc_info=True)
