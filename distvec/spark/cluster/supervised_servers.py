"""Servers that supervisors keep running: what those on executors and beside the driver share."""

from __future__ import annotations

import importlib.util
import logging
import secrets
import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from distvec.spark.cluster.registry import ServerDirectory, serve_registry
from ps_backend.arguments import is_loopback
from ps_backend.client import Client, Tls
from ps_backend.errors import PSError, ServerLost

if TYPE_CHECKING:
    from ps_backend.processes.certificates import Authority
    from ps_backend.processes.message_server import MessageServer

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

    directory: ServerDirectory
    """Where they are, once they are being started."""

    def __init__(self, servers: int, *, host: str, threads: int, tls: bool | None) -> None:
        """Nothing runs yet; see ``start``. Others reach this machine as ``host``.

        ``tls`` as of ``authority_for``.
        """
        if servers < 1:
            raise ValueError(f"servers must be 1 or more, got {servers}")
        if threads < 1:
            raise ValueError(f"cores must be 1 or more, got {threads}")
        self.servers, self.threads, self._host = servers, threads, host
        self.token = secrets.token_urlsafe(32)
        self.authority = authority_for(tls, host)
        """Who signs the servers' certificates; None if they serve without TLS."""
        self.signer = None if self.authority is None else self.authority.signer
        self._stopping, self._failure = threading.Event(), ""
        self._service: MessageServer | None = None

    def serve_directory(self, directory: ServerDirectory, bind: str) -> None:
        """Let tasks ask ``directory``, at the address ``bind`` of this machine."""
        self.directory = directory
        self._service = serve_registry(directory, self._host, bind, self.token, self.authority)

    @property
    def registry_address(self) -> tuple[str, int]:
        """Where the registry answers who knows the token."""
        if self._service is None:
            raise RuntimeError("the servers were not started")
        return self._service.address

    @property
    def failure(self) -> str:
        """Why no server will ever run again, if so."""
        return self._failure

    @property
    def tls(self) -> Tls | None:
        """How clients reach the servers."""
        return None if self.authority is None else self.authority.tls

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids, on the servers' machines; 0 for a server that is being replaced."""
        return self.directory.pids

    def diagnose(self, address: str) -> str | None:
        """What is known of the server at ``address`` if it is lost."""
        return self.failure or self.directory.diagnose(address)

    def start(self, timeout: float, former: Client | None = None) -> Client:
        """Start all; a client with a session on them, when all have answered it.

        It is for the arrays of ``former``, if that is given.

        ``PSError``, and no servers, if that takes more than so many seconds. One that is lost
        before the session is open is waited for until then: another takes its place. What a
        server wrote is part of the error if it ended.
        """
        deadline = time.monotonic() + timeout
        try:
            self._begin(timeout)
            seen = ""
            while self._wait_until_serving(max(0.0, deadline - time.monotonic())):
                try:
                    left = deadline - time.monotonic()
                    return self._connect(max(_CONNECT_SECONDS, left), former)
                except ServerLost as error:
                    seen = f". When they were there last: {error}"
                    if time.monotonic() > deadline:
                        break
            raise PSError(self.failure or f"{self._not_all_up(timeout)}{seen}")
        except BaseException:
            self.stop()
            raise

    def _connect(self, seconds: float, former: Client | None) -> Client:
        return Client.follow(
            self.directory,
            self.servers,
            token=self.token,
            timeout=min(seconds, _TRY_SECONDS),
            tls=self.tls,
            diagnose=self.diagnose,
            former=former,
        )

    def stop(self) -> None:
        """End all servers and wait for them; idempotent.

        Costs at most some seconds, also if the SparkContext has stopped or the JVM is gone.
        """
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._end()
        if self._service is not None:
            self._service.close()

    @abstractmethod
    def _begin(self, timeout: float) -> None:
        """Start them, and ``serve_directory``; they have so many seconds."""

    @abstractmethod
    def _end(self) -> None:
        """End them, and wait."""

    @abstractmethod
    def _wait_until_serving(self, seconds: float) -> bool:
        """Wait until all servers answer, or did; False if some do not in time, or never will."""

    def _not_all_up(self, timeout: float) -> str:
        return (
            f"not all of the {self.servers} servers answered in {timeout:g} s; pass a longer "
            "timeout"
        )
