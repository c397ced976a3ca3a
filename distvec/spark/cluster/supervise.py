"""The task that keeps one server running on an executor."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pyspark import TaskContext

from distvec.spark.cluster.registry import ANSWER_SECONDS, LEAVE, SERVE, SERVE_SECONDS, STOP, Claim
from ps_backend.arguments import NO_EXTENSIONS, Extensions, default_budget
from ps_backend.client import MessageClient, Tls
from ps_backend.errors import PSError
from ps_backend.processes.server_process import (
    START_SECONDS,
    KeptServer,
    Signer,
    Spares,
    WaitingProcess,
)

_STOP_SECONDS = 3.0
_MESSAGE_SECONDS = 2.0
_LEAST_SECONDS = 2 * ANSWER_SECONDS
"""A claim has so long, however little is left: the registry takes ANSWER_SECONDS to answer."""
_ALONE_SECONDS = 30.0
"""A task that cannot reach the driver's registry for so long fails."""
_RECONNECT_SECONDS = 0.2


@dataclass(frozen=True)
class ServerSpec:
    """What every supervisor is told, as plain data in a task's closure; it holds the token."""

    registry: tuple[str, int]
    token: str
    servers: int
    memory: int | None
    threads: int
    placement: int = 0
    tls: Tls | None = None
    """How servers and the registry are known: who signs their certificates. None: without TLS."""
    extensions: Extensions = NO_EXTENSIONS
    spares: int = 0
    """So many processes wait beside the server to take its place."""
    start_seconds: float = START_SECONDS
    """A server process that does not answer so long after its start is given up."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a supervisor is told: one of ``registry``'s words, and the life its server is to be."""

    state: str
    life: int


class RegistryClient:
    """Where a task claims its server's number: the registry on the driver."""

    def __init__(self, address: tuple[str, int], key: str, tls: Tls | None = None) -> None:
        self._address, self._key, self._tls = address, key, tls
        self._client: MessageClient | None = None

    def claim(self, claim: Claim, seconds: float) -> Grant:
        """What to do; the registry waits a moment if that is nothing new.

        Raises ``OSError``, also if there is no answer in so many seconds.
        """
        answer = self._ask({"claim": asdict(claim)}, seconds)
        return Grant(str(answer["state"]), int(answer["life"]))

    def certify(self, request: str) -> str:
        """A certificate for a new server's request (both PEM). Raises ``OSError``."""
        return str(self._ask({"certify": request}, _MESSAGE_SECONDS)["certificate"])

    def _ask(self, question: dict[str, Any], seconds: float) -> dict[str, Any]:
        try:
            if self._client is None:
                self._client = MessageClient(self._address, self._key, seconds, self._tls)
            return self._client.ask(question, seconds)
        except OSError:
            self.close()
            raise

    @property
    def host(self) -> str:
        """The address by which the driver reached this machine: others do, too."""
        return "127.0.0.1" if self._client is None else self._client.local_host

    def close(self) -> None:
        """Leave. Idempotent."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


def supervise(orders: ServerSpec, numbers: Iterable[int]) -> Iterator[int]:
    """For ``mapPartitions``: run the server whose number is the partition's element.

    It ends when the driver says so.
    """
    (server,) = list(numbers)  # what is left unread costs the next job a new Python worker
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("supervise runs inside a Spark task")
    desk = RegistryClient(orders.registry, orders.token, orders.tls)
    retry = context.attemptNumber() > 0
    Supervisor(orders, server, context.taskAttemptId(), desk, retry=retry).run()
    return iter(())


class Supervisor:
    """Runs a server process while it holds the lease on the server's number.

    A process that dies is replaced here, and so is one that gives no sign (``KeptServer``); a task
    that dies, by the driver. The lease is renewed also while a process starts, which takes many
    seconds on a busy machine. Each claim of a task that is granted lets the process answer for
    SERVE_SECONDS from when the claim was sent, and after that it is killed, as another task may
    take its place soon. It knows this moment itself: should it and the supervisor be stopped, and
    woken up when there is another server, it answers nothing more.
    """

    def __init__(
        self,
        orders: ServerSpec,
        server: int,
        attempt: int,
        desk: RegistryClient,
        *,
        retry: bool = False,
    ) -> None:
        self._orders, self._server, self._attempt = orders, server, attempt
        self._desk, self._retry = desk, retry
        self._until = 0.0
        """The server may answer until then, by the monotonic clock."""
        self._unanswered = False
        """Has the registry not answered the last claim?"""
        signer = None
        if orders.tls is not None:
            signer = Signer(orders.tls.authority.decode(), self._certify)
        memory = default_budget(orders.servers) if orders.memory is None else orders.memory

        def start_spare() -> WaitingProcess:
            return WaitingProcess(
                threads=orders.threads,
                memory=memory,
                host=desk.host,
                extensions=orders.extensions,
            )

        self._spares = Spares(orders.spares, start_spare)
        self._kept = KeptServer(
            f"server {server}",
            token=orders.token,
            threads=orders.threads,
            memory=memory,
            signer=signer,
            extensions=orders.extensions,
            start_seconds=orders.start_seconds,
            spares=self._spares,
        )

    def run(self) -> None:
        """Serve until the registry says stop; the process has ended when this returns.

        Raises ``PSError`` if the server does not come up or keeps dying, or the registry is gone.
        """
        try:
            while (told := self._renew()).state not in (STOP, LEAVE):
                kept = self._kept
                if told.state != SERVE or (kept.process is not None and kept.life != told.life):
                    self._end()
                    continue
                if kept.process is None:
                    kept.begin(self._desk.host, life=told.life, until=self._until)
                if kept.address or kept.comes_up(ANSWER_SECONDS):
                    kept.look_after(self._until)
        finally:
            self._spares.end()
            self._end()
            self._desk.close()

    def _renew(self) -> Grant:
        """Claim the number, with the present address; what the registry says to do."""
        since = time.monotonic()
        while True:
            sent = time.monotonic()
            left = self._until - sent
            if left <= 0 and self._unanswered:
                self._kept.end(0.0)
            patience = min(max(left, _LEAST_SECONDS), _MESSAGE_SECONDS)
            try:
                told = self._desk.claim(self._claim(), patience)
            except OSError as error:
                self._unanswered = True
                if time.monotonic() - since > _ALONE_SECONDS:
                    raise PSError(f"the driver's registry does not answer: {error}") from None
                time.sleep(_RECONNECT_SECONDS)
                continue
            self._unanswered = False
            if told.state == SERVE:
                self._until = sent + SERVE_SECONDS
            return told

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
            kept.life if kept.process is not None else 0,
        )

    def _end(self) -> None:
        self._kept.end(_STOP_SECONDS)
