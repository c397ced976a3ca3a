"""The registry behind a socket on the driver, and the way to ask it from elsewhere."""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from distvec.spark.servers.registry import LEASE_SECONDS, SERVE, Claim, Registry
from distvec.spark.servers.signed_lines import SignedLines, ask_once
from ps_backend.errors import PSError, ServerLost
from ps_backend.transport import Location

ANSWER_SECONDS = 0.5
"""A claim that says nothing new is answered after so long, or when the servers are to stop."""

_ASK_SECONDS = 2.0

_LOG = logging.getLogger(__name__)


class RegistryService:
    """Answers tasks' claims and clients' questions, each in a thread of its connection."""

    def __init__(self, registry: Registry, host: str, bind: str, key: str) -> None:
        """Listen on a free port of the address ``bind``; others reach it as ``host``."""
        self._server = _Listener(bind, registry, key)
        self.address = (host, int(self._server.server_address[1]))
        threading.Thread(
            target=self._server.serve_forever, name="distvec-registry", daemon=True
        ).start()

    def close(self) -> None:
        """Take no new connections, and break those that exist. Idempotent."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._server.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Listener(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, bind: str, registry: Registry, key: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self.registry, self.key = registry, key
        self.connections: set[socket.socket] = set()
        super().__init__((bind, 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A stranger, or somebody who left: no reason to write to the driver's terminal."""
        _LOG.debug("a connection from %s ended", client_address, exc_info=True)


class _Handler(socketserver.BaseRequestHandler):
    server: _Listener

    def handle(self) -> None:
        """Answer one question after the other, until the other side leaves."""
        self.request.settimeout(LEASE_SECONDS)
        registry = self.server.registry
        connection = registry.new_connection()
        self.server.connections.add(self.request)
        try:
            lines = SignedLines(self.request, self.server.key, asks=False)
            with suppress(OSError):
                while True:
                    lines.send(self._answer(lines.receive(), connection))
        finally:
            registry.let_go(connection)
            self.server.connections.discard(self.request)

    def _answer(self, question: dict[str, Any], connection: int) -> dict[str, Any]:
        registry = self.server.registry
        if "locate" in question:
            return _located(registry, int(question["locate"]))
        claim = Claim(**question["claim"])
        state = registry.claim(claim, connection)
        # What follows from SERVE without an address is a server to start: no time to lose.
        if (state != SERVE or claim.address) and registry.wait_for_stop(ANSWER_SECONDS):
            state = registry.claim(claim, connection)
        return {"state": state}


def _located(registry: Registry, server: int) -> dict[str, Any]:
    try:
        location = registry.locate(server)
    except ServerLost as error:
        return {"over": str(error)}
    return {} if location is None else asdict(location)


class RemoteDirectory:
    """A ``Directory`` that asks the registry on the driver, with one connection per question."""

    def __init__(self, address: tuple[str, int], key: str) -> None:
        self._address, self._key = address, key

    def locate(self, server: int) -> Location | None:
        """Where ``server`` is; None also if the registry does not answer."""
        try:
            answer = ask_once(self._address, self._key, {"locate": server}, _ASK_SECONDS)
        except OSError:
            return None
        if "over" in answer:
            raise ServerLost(answer["over"])
        if not answer:
            return None
        try:
            return Location(str(answer["address"]), int(answer["generation"]))
        except KeyError as error:
            raise PSError(f"the registry's answer lacks {error}") from None
