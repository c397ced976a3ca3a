"""The task that keeps one server running on an executor."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass

from pyspark import TaskContext

from distvec.spark.servers.registry import LEASE_SECONDS, SERVE, STOP, Claim
from distvec.spark.servers.signed_lines import SignedLines, connect
from ps_backend.errors import PSError
from ps_backend.memory import default_budget
from ps_backend.process import ServerProcess

_START_SECONDS = 30.0
_STOP_SECONDS = 3.0
_MESSAGE_SECONDS = 2.0
_ALONE_SECONDS = 30.0
"""A task that cannot reach the driver's registry for so long fails."""
_RECONNECT_SECONDS = 0.2
_SHORT_LIFE_SECONDS = 10.0
_MOST_SHORT_LIVES = 3


@dataclass(frozen=True)
class Orders:
    """What every supervising task is told, as plain data in its closure; it holds the token."""

    registry: tuple[str, int]
    token: str
    servers: int
    memory: int | None
    threads: int


def supervise(orders: Orders, server: int, rows: Iterable[int]) -> Iterator[int]:
    """For ``mapPartitionsWithIndex``: run server number ``server`` until the driver says stop."""
    list(rows)  # what is left unread costs the next job a new Python worker
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("supervise runs inside a Spark task")
    Supervisor(orders, server, context.taskAttemptId()).run()
    return iter(())


class Supervisor:
    """Runs a server process while it holds the lease on the server's number.

    A process that dies is replaced here; a task that dies, by Spark. Without a word from the
    registry for the time of a lease the process is ended, since another task may have taken its
    place by then.
    """

    def __init__(self, orders: Orders, server: int, attempt: int) -> None:
        self._orders, self._server, self._attempt = orders, server, attempt
        self._lines: SignedLines | None = None
        self._process: ServerProcess | None = None
        self._started = 0.0
        self._short_lives = 0
        self._trouble = ""

    def run(self) -> None:
        """Serve until the registry says stop; the process has ended when this returns.

        Raises ``PSError`` if the server does not come up or keeps dying, or the registry is gone.
        """
        try:
            while (state := self._renew()) != STOP:
                if state != SERVE:
                    self._end()
                elif self._process is None:
                    self._start()
                else:
                    self._look_after(self._process)
        finally:
            self._end()
            self._disconnect()

    def _renew(self) -> str:
        """Claim the number, with the present address; what the registry says to do."""
        since = time.monotonic()
        while True:
            try:
                return self._ask()
            except OSError as error:
                self._disconnect()
                alone = time.monotonic() - since
                if alone > LEASE_SECONDS:
                    self._end()
                if alone > _ALONE_SECONDS:
                    raise PSError(f"the driver's registry does not answer: {error}") from None
                time.sleep(_RECONNECT_SECONDS)

    def _ask(self) -> str:
        if self._lines is None:
            self._lines = connect(self._orders.registry, self._orders.token, _MESSAGE_SECONDS)
        process = self._process
        claim = Claim(
            self._server,
            self._attempt,
            "" if process is None else process.address,
            0 if process is None else process.pid,
            self._trouble,
        )
        self._lines.send({"claim": asdict(claim)})
        return str(self._lines.receive()["state"])

    def _start(self) -> None:
        if self._lines is None:
            return
        orders = self._orders
        budget = default_budget(orders.servers) if orders.memory is None else orders.memory
        self._started = time.monotonic()
        self._process = ServerProcess(
            f"server {self._server}",
            token=orders.token,
            threads=orders.threads,
            memory=budget,
            host=self._lines.local_host,  # where the driver reaches this machine, others do
        )
        self._process.wait_until_up(self._started + _START_SECONDS)

    def _look_after(self, process: ServerProcess) -> None:
        """Note how the process died, if it did; the next turn starts another."""
        death = process.death()
        if death is None:
            return
        self._trouble = f"server {self._server} at {process.address}: {death}"
        short = time.monotonic() - self._started < _SHORT_LIFE_SECONDS
        self._short_lives = self._short_lives + 1 if short else 0
        if self._short_lives >= _MOST_SHORT_LIVES:
            raise PSError(f"{self._trouble}, soon after its start; it wrote:\n{process.log_tail()}")
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.stop(time.monotonic() + _STOP_SECONDS)

    def _disconnect(self) -> None:
        lines, self._lines = self._lines, None
        if lines is not None:
            with suppress(OSError):
                lines.close()
