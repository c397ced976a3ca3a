"""Keeping one server running: on an executor by a task, beside the driver by a thread."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from pyspark import TaskContext

from distvec.spark.cluster.registry import LEASE_SECONDS, LEAVE, SERVE, STOP, Claim, Registry
from distvec.spark.cluster.signed_lines import SignedLines, connect
from ps_backend.errors import PSError
from ps_backend.memory_sizes import default_budget
from ps_backend.processes.kept_server import KeptServer
from ps_backend.processes.process import Signer

_STOP_SECONDS = 3.0
_MESSAGE_SECONDS = 2.0
_ALONE_SECONDS = 30.0
"""A task that cannot reach the driver's registry for so long fails."""
_RECONNECT_SECONDS = 0.2


@dataclass(frozen=True)
class ServerOrders:
    """What every supervisor is told, as plain data in a task's closure; it holds the token."""

    registry: tuple[str, int]
    token: str
    servers: int
    memory: int | None
    threads: int
    placement: int = 0
    authority: str = ""
    """The certificate (PEM) of who signs those of servers; without one they serve without TLS."""


class Desk(Protocol):
    """Where a supervisor claims its server's number."""

    def claim(self, claim: Claim) -> str:
        """What to do; waits a moment if it is nothing new. Raises ``OSError``."""

    def certify(self, request: str) -> str:
        """A certificate for a new server's request (both PEM). Raises ``OSError``."""

    @property
    def host(self) -> str:
        """The name of this machine for servers to listen at; after a claim."""

    def close(self) -> None:
        """Leave. Idempotent."""


class RemoteDesk:
    """The registry on the driver, for a task."""

    def __init__(self, address: tuple[str, int], key: str) -> None:
        self._address, self._key = address, key
        self._lines: SignedLines | None = None

    def claim(self, claim: Claim) -> str:
        """As ``Desk``; connects if need be."""
        return str(self._ask({"claim": asdict(claim)})["state"])

    def certify(self, request: str) -> str:
        """As ``Desk``; connects if need be."""
        return str(self._ask({"certify": request})["certificate"])

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        try:
            if self._lines is None:
                self._lines = connect(self._address, self._key, _MESSAGE_SECONDS)
            self._lines.send(question)
            return self._lines.receive()
        except OSError:
            self.close()
            raise

    @property
    def host(self) -> str:
        """The address by which the driver reached this machine: others do, too."""
        return "127.0.0.1" if self._lines is None else self._lines.local_host

    def close(self) -> None:
        """As ``Desk``."""
        lines, self._lines = self._lines, None
        if lines is not None:
            with suppress(OSError):
                lines.close()


class DriverDesk:
    """The registry of this process, for a thread of the driver."""

    host = "127.0.0.1"

    def __init__(self, registry: Registry, signer: Signer | None = None) -> None:
        self._registry, self._connection = registry, registry.new_connection()
        self._signer = signer

    def claim(self, claim: Claim) -> str:
        """As ``Desk``."""
        return self._registry.renew(claim, self._connection)

    def certify(self, request: str) -> str:
        """As ``Desk``."""
        if self._signer is None:
            raise PSError("the servers of this application have no certificates")
        return self._signer.sign(request)

    def close(self) -> None:
        """As ``Desk``."""
        self._registry.let_go(self._connection)


def supervise(orders: ServerOrders, numbers: Iterable[int]) -> Iterator[int]:
    """For ``mapPartitions``: run the server whose number is the partition's element.

    It ends when the driver says so.
    """
    (server,) = list(numbers)  # what is left unread costs the next job a new Python worker
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("supervise runs inside a Spark task")
    desk = RemoteDesk(orders.registry, orders.token)
    retry = context.attemptNumber() > 0
    Supervisor(orders, server, context.taskAttemptId(), desk, retry=retry).run()
    return iter(())


class Supervisor:
    """Runs a server process while it holds the lease on the server's number.

    A process that dies is replaced here, and so is one that gives no sign (``KeptServer``); a task
    that dies, by the driver. Without a word from the registry for the time of a lease the process
    is ended, since another task may have taken its place by then.
    """

    def __init__(
        self, orders: ServerOrders, server: int, attempt: int, desk: Desk, *, retry: bool = False
    ) -> None:
        self._orders, self._server, self._attempt = orders, server, attempt
        self._desk, self._retry = desk, retry
        self._kept = KeptServer(
            f"server {server}",
            token=orders.token,
            threads=orders.threads,
            memory=default_budget(orders.servers) if orders.memory is None else orders.memory,
            signer=Signer(orders.authority, self._certify) if orders.authority else None,
        )

    def run(self) -> None:
        """Serve until the registry says stop; the process has ended when this returns.

        Raises ``PSError`` if the server does not come up or keeps dying, or the registry is gone.
        """
        try:
            while (state := self._renew()) not in (STOP, LEAVE):
                if state != SERVE:
                    self._end()
                elif self._kept.process is None:
                    self._kept.start(self._desk.host)
                else:
                    self._kept.look_after()
        finally:
            self._end()
            self._desk.close()

    def _renew(self) -> str:
        """Claim the number, with the present address; what the registry says to do."""
        since = time.monotonic()
        while True:
            try:
                return self._desk.claim(self._claim())
            except OSError as error:
                alone = time.monotonic() - since
                if alone > LEASE_SECONDS:
                    self._end()
                if alone > _ALONE_SECONDS:
                    raise PSError(f"the driver's registry does not answer: {error}") from None
                time.sleep(_RECONNECT_SECONDS)

    def _certify(self, request: str) -> str:
        try:
            return self._desk.certify(request)
        except OSError:
            time.sleep(_RECONNECT_SECONDS)
        return self._desk.certify(request)  # over another connection

    def _claim(self) -> Claim:
        kept = self._kept
        return Claim(
            self._server,
            self._attempt,
            kept.address,
            kept.pid,
            kept.trouble,
            self._orders.placement,
            self._retry,
        )

    def _end(self) -> None:
        self._kept.end(_STOP_SECONDS)
