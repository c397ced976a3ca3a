"""Servers that supervisors keep running: what those on executors and beside the driver share."""

from __future__ import annotations

import importlib.util
import logging
import secrets
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from distvec.spark.cluster.registry import Registry
from distvec.spark.cluster.registry_service import RegistryService
from distvec.spark.cluster.supervise import ServerSpec
from ps_backend.arguments import NO_EXTENSIONS, Extensions, is_loopback
from ps_backend.client import Client, Tls
from ps_backend.errors import PSError, ServerLost
from ps_backend.processes.server_process import START_SECONDS

if TYPE_CHECKING:
    from ps_backend.processes.certificates import Authority

_LOG = logging.getLogger(__name__)


def authority_for(asked: bool | None, host: str) -> Authority | None:
    """Who signs for servers that others reach as they reach ``host``; None: they serve without TLS.

    ``asked`` None: with TLS where others than this machine reach them, if it can be had. Raises
    ``ValueError`` if it is asked for and cannot.
    """
    possible = importlib.util.find_spec("cryptography") is not None
    wanted = not is_loopback(host) if asked is None else asked
    if not wanted:
        return None
    if not possible and asked:
        raise ValueError(
            "tls=True needs the package cryptography, here and on the executors: "
            "pip install 'distvec[tls]'"
        )
    if not possible:
        _LOG.warning(
            "between tasks and parameter servers the token and all values travel as they are, as "
            "the package cryptography is missing: pip install 'distvec[tls]', or say tls=False"
        )
        return None
    from ps_backend.processes.certificates import Authority

    return Authority()


_CONNECT_SECONDS = 5.0
"""Servers that came up just in time have so long to open the session."""

_TRY_SECONDS = 10.0
"""After so long without an answer it is looked again whether all servers are there."""


class SupervisedServers(ABC):
    """``servers`` running servers; one that is lost is replaced by an empty one."""

    def __init__(
        self,
        servers: int,
        *,
        host: str,
        bind: str,
        memory: int | None,
        threads: int,
        tls: bool | None,
        extensions: Extensions = NO_EXTENSIONS,
    ) -> None:
        """Nothing runs yet but the registry, which tasks reach as ``host``; see ``start``.

        ``tls`` as of ``authority_for``.
        """
        if servers < 1:
            raise ValueError(f"servers must be 1 or more, got {servers}")
        if threads < 1:
            raise ValueError(f"cores must be 1 or more, got {threads}")
        self.token = secrets.token_urlsafe(32)
        self.registry = Registry(servers)
        self.authority = authority_for(tls, host)
        """Who signs the servers' certificates; None if they serve without TLS."""
        self.failure = ""
        """Why no server will ever run again, if so."""
        self._stopping = threading.Event()
        signer = None if self.authority is None else self.authority.signer
        sign, authority = (None, "") if signer is None else (signer.sign, signer.authority)
        self._service = RegistryService(self.registry, host, bind, self.token, sign)
        self._orders = ServerSpec(
            self.registry_address,
            self.token,
            servers,
            memory,
            threads,
            authority=authority,
            extensions=extensions,
        )

    @property
    def registry_address(self) -> tuple[str, int]:
        """Where the registry answers who knows the token."""
        return self._service.address

    @property
    def tls(self) -> Tls | None:
        """How clients reach the servers."""
        return None if self.authority is None else self.authority.tls

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids, on the servers' machines; 0 for a server that is being replaced."""
        return self.registry.pids

    def diagnose(self, address: str) -> str | None:
        """What is known of the server at ``address`` if it is lost."""
        return self.failure or self.registry.diagnose(address)

    def start(self, timeout: float) -> Client:
        """Start all; a client with a session on them, when all have answered it.

        ``PSError``, and no servers, if that takes more than so many seconds. One that is lost
        before the session is open is waited for until then: another takes its place. What a
        server wrote is part of the error if it ended.
        """
        deadline = time.monotonic() + timeout
        self._orders = replace(self._orders, start_seconds=max(timeout, START_SECONDS))
        try:
            self._begin(deadline)
            seen = ""
            while self.registry.wait_until_serving(max(0.0, deadline - time.monotonic())):
                try:
                    return self._connect(max(_CONNECT_SECONDS, deadline - time.monotonic()))
                except ServerLost as error:
                    seen = f". When they were there last: {error}"
                    if time.monotonic() > deadline:
                        break
            missing = self.registry.missing()
            raise PSError(self.failure or f"{self._not_all_up(timeout)}. Seen: {missing}{seen}")
        except BaseException:
            self.stop()
            raise

    def _connect(self, seconds: float) -> Client:
        return Client.follow(
            self.registry,
            self.registry.servers,
            token=self.token,
            timeout=min(seconds, _TRY_SECONDS),
            tls=self.tls,
            diagnose=self.diagnose,
        )

    def stop(self) -> None:
        """End all servers and wait for them; idempotent.

        Costs at most some seconds, also if the SparkContext has stopped or the JVM is gone.
        """
        if self._stopping.is_set():
            return
        self._stopping.set()
        self.registry.stop("the servers were stopped; start some: PSContext.get_or_create(spark)")
        self._end()
        self._service.close()

    @abstractmethod
    def _begin(self, deadline: float) -> None:
        """Start the supervisors."""

    @abstractmethod
    def _end(self) -> None:
        """Wait for the supervisors, who were told to stop."""

    def _not_all_up(self, timeout: float) -> str:
        return (
            f"not all of the {self.registry.servers} servers answered in {timeout:g} s; pass a "
            "longer timeout"
        )

    def _give_up(self, reason: str) -> None:
        self.failure = self.failure or f"{reason}; start again: PSContext.get_or_create(spark)"
        self.registry.stop(self.failure)
