"""The registry behind a port of the driver, and the way to ask it from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from distvec.spark.cluster.registry import LEASE_SECONDS, Claim, Registry, ServerDirectory
from ps_backend.client import Location, Tls, ask_once
from ps_backend.errors import PSError, ServerLost

if TYPE_CHECKING:
    from ps_backend.processes.certificates import Authority
    from ps_backend.processes.message_server import Answer, MessageServer

_ASK_SECONDS = 2.0


def serve_registry(
    directory: ServerDirectory, host: str, bind: str, key: str, authority: Authority | None = None
) -> MessageServer:
    """Answer clients' questions, and where ``directory`` is a ``Registry``, tasks' claims.

    ``host``, ``bind`` and ``key`` as of ``MessageServer``. ``authority``: who signs the
    certificates of servers; then it is all encrypted.
    """

    @contextmanager
    def conversation() -> Iterator[Answer]:
        registry = directory if isinstance(directory, Registry) else None
        connection = 0 if registry is None else registry.new_connection()

        def answer(question: dict[str, Any]) -> dict[str, Any]:
            if "locate" in question:
                return _located(directory, int(question["locate"]))
            if "certify" in question and authority is not None:
                return {"certificate": authority.sign(str(question["certify"]))}
            if registry is None:
                raise ValueError("no server is claimed here")
            claim = Claim(**question["claim"])
            return {"state": registry.renew(claim, connection), "life": registry.life(claim)}

        try:
            yield answer
        finally:
            if registry is not None:
                registry.let_go(connection)

    return serve_messages(conversation, host, bind, key, authority, silence=LEASE_SECONDS)


def serve_messages(
    conversation: Callable[[], Any],
    host: str,
    bind: str,
    key: str,
    authority: Authority | None,
    *,
    silence: float,
) -> MessageServer:
    """A service of the driver, encrypted where there is an ``authority``."""
    from ps_backend.processes.message_server import MessageServer  # all that servers consist of

    identity = None if authority is None else authority.new_identity()
    return MessageServer(conversation, host, bind, key, silence=silence, identity=identity)


def _located(directory: ServerDirectory, server: int) -> dict[str, Any]:
    try:
        location = directory.locate(server)
    except ServerLost as error:
        return {"over": str(error)}
    return {} if location is None else asdict(location)


class RemoteDirectory:
    """A ``Directory`` that asks the registry on the driver, with one connection per question."""

    def __init__(self, address: tuple[str, int], key: str, tls: Tls | None = None) -> None:
        self._address, self._key, self._tls = address, key, tls

    def locate(self, server: int) -> Location | None:
        """Where ``server`` is; None also if the registry does not answer."""
        try:
            answer = ask_once(self._address, self._key, {"locate": server}, _ASK_SECONDS, self._tls)
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
