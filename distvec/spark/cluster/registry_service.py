"""The registry behind a socket on the driver, and the way to ask it from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from distvec.spark.cluster.registry import LEASE_SECONDS, Claim, Registry, ServerDirectory
from distvec.spark.cluster.signed_lines import SignedLines, ask_once
from distvec.spark.cluster.signed_service import SignedService
from ps_backend.client import Location
from ps_backend.errors import PSError, ServerLost

Sign = Callable[[str], str]
"""Makes a certificate of a request for one; both PEM."""

_ASK_SECONDS = 2.0


class RegistryService(SignedService):
    """Answers tasks' claims and clients' questions."""

    def __init__(
        self, directory: ServerDirectory, host: str, bind: str, key: str, sign: Sign | None = None
    ) -> None:
        """As ``SignedService``; ``sign`` makes the certificates of servers.

        Servers are claimed where ``directory`` is a ``Registry``.
        """
        self._directory, self._sign = directory, sign
        super().__init__(host, bind, key, name="distvec-registry", silence=LEASE_SECONDS)

    def converse(self, lines: SignedLines) -> None:
        """Answer one question after the other."""
        registry = self._directory if isinstance(self._directory, Registry) else None
        connection = 0 if registry is None else registry.new_connection()
        try:
            while True:
                question = lines.receive()
                if "locate" in question:
                    answer = _located(self._directory, int(question["locate"]))
                elif "certify" in question and self._sign is not None:
                    answer = {"certificate": self._sign(str(question["certify"]))}
                elif registry is not None:
                    claim = Claim(**question["claim"])
                    state = registry.renew(claim, connection)
                    answer = {"state": state, "life": registry.life(claim)}
                else:
                    return
                lines.send(answer)
        finally:
            if registry is not None:
                registry.let_go(connection)


def _located(directory: ServerDirectory, server: int) -> dict[str, Any]:
    try:
        location = directory.locate(server)
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
