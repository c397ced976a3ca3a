"""A process that answers JSON messages of those who know its key, over framed connections."""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ps_backend.server.commands.command import Payload, Response
from ps_backend.server.endpoints.framed_server import FramedServer
from ps_backend.server.endpoints.tls_identity import Identity
from ps_backend.server.endpoints.tokens import Tokens
from ps_backend.transport.framed import FramedConnection, Silent
from ps_backend.transport.messages import NONCE_BYTES, SignedMessages
from ps_backend.wire import ps_pb2 as pb

_LOG = logging.getLogger(__name__)

_MOST_CONNECTIONS = 4096
"""Each holds a thread."""

_LOOK_SECONDS = 0.5

Message = dict[str, Any]
Answer = Callable[[Message], Message]


class MessageServer(FramedServer):
    """Listens from the start until ``close``.

    Who connects shows by nonces of both sides that it knows the key, before anything else of it is
    read, and by a signature that each message is its own, before that is parsed. Nothing is
    encrypted without an identity.
    """

    def __init__(
        self,
        conversation: Callable[[], AbstractContextManager[Answer]],
        host: str,
        bind: str,
        key: str,
        *,
        silence: float,
        identity: Identity | None = None,
    ) -> None:
        """Listen on a free port of the address ``bind``; others reach it as ``host``.

        ``conversation``: what answers the messages of one connection, which ends where it raises.
        Who is silent for ``silence`` seconds is sent away. Raises ``OSError``.
        """
        super().__init__(
            _refuse,
            Tokens(key),
            None if identity is None else identity.context,
            most=_MOST_CONNECTIONS,
        )
        self._conversation, self._silence, self._key = conversation, silence, key
        self._level = logging.WARNING
        self.bind(bind, 0)
        if not self.port:
            raise OSError(f"cannot listen at {bind}")
        self.address = (host, self.port)
        self.start(unix=False)
        threading.Thread(target=self._look_after, name="distvec-porter", daemon=True).start()

    def close(self) -> None:
        """Take no new connections, and end those that exist. Idempotent."""
        self.end(time.monotonic())

    def _look_after(self) -> None:
        while not self._ending.wait(_LOOK_SECONDS):
            self.send_away_strangers()

    def _admission_to(self, framed: FramedConnection) -> bytes:
        other, mine = bytearray(NONCE_BYTES), secrets.token_bytes(NONCE_BYTES)
        framed.take(memoryview(other), _wait)
        framed.send_proof(mine, _wait)
        framed.nonces = bytes(other) + mine
        return framed.nonces

    def _converse(self, framed: FramedConnection) -> None:
        def silent(_: bool) -> None:
            if framed.waits > self._silence:
                raise TimeoutError(f"no data arrived for {framed.waits:.0f} s")

        messages = SignedMessages(framed, self._key, framed.nonces, asks=False)
        with self._conversation() as answer:
            while (message := self._next(messages, silent)) is not None:
                try:
                    reply = json.dumps(answer(json.loads(message)))
                except Exception as error:  # who knows the key speaks nonsense
                    raise ConnectionAbortedError(f"no answer: {error!r}") from error
                messages.send(reply.encode(), silent)

    def _next(self, messages: SignedMessages, silent: Silent) -> bytes | None:
        try:
            return messages.receive(silent)
        except ConnectionAbortedError as error:  # the other side had shown that it knows the key
            level, self._level = self._level, logging.DEBUG  # or it could fill the log
            _LOG.log(level, "a connection to %s:%d: %s", *self.address, error)
            raise


def _refuse(_: pb.Request, __: Payload) -> Response:
    raise ConnectionAbortedError("this listener accepts messages, not requests to servers")


def _wait(_: bool) -> None:
    """Strangers are sent away in time."""
