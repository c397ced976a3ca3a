"""A session that Spark tasks can join: how the driver hands it out, and how a task joins it."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, Protocol, TypeVar

from pyspark import AccumulatorParam, SparkContext, TaskContext

from distvec.durability.policy import Durability
from distvec.session import Opener, Session
from distvec.spark.cluster.registry import RemoteDirectory
from distvec.spark.cluster.supervised_servers import SupervisedServers, authority_for
from ps_backend.client import Client, Counters, Tls
from ps_backend.errors import ServerLost

if TYPE_CHECKING:
    from ps_backend.processes.certificates import Authority

T = TypeVar("T")

_SINGLETONS: dict[tuple[int, type], Any] = {}


def singleton(kind: type[T]) -> T:
    """This process's object of that class, made without arguments at the first call."""
    key = os.getpid(), kind
    if key not in _SINGLETONS:
        _SINGLETONS[key] = kind()
    found: T = _SINGLETONS[key]
    return found


_MOST_CLIENTS = 4
_JOIN_SECONDS = 5.0


@dataclass(frozen=True)
class SessionTicket:
    """How a task joins the driver's session.

    ``registry``, if there is one, knows where servers are that were replaced meanwhile. ``eager``:
    make a connection past gRPC to each server, as is worth it for a task that stays. ``tls``: how
    servers are known that serve with it; no secret. ``lives``: where there is no registry, those of
    the servers: who joined them in other lives joins anew.
    """

    addresses: tuple[str, ...]
    token: str
    secret: str
    registry: tuple[str, int] | None = None
    eager: bool | None = None
    tls: Tls | None = None
    lives: tuple[int, ...] = ()


def join(access: SessionTicket) -> Client:
    """This process's client of the session; connects at the first call.

    Raises ServerLost after some seconds, and then at once for as long again: a job has many tasks,
    and they are not to wait one after the other.
    """
    return singleton(_TicketClients).join(access)


def leave(access: SessionTicket) -> None:
    """Close this process's client of the session, if it joined; returns at once."""
    singleton(_TicketClients).leave(access)


class _TicketClients:
    """The clients of a process, and the sessions that it could not join."""

    def __init__(self) -> None:
        self._joined: dict[SessionTicket, Client] = {}
        self._not_joined: dict[SessionTicket, tuple[float, ServerLost]] = {}

    def join(self, access: SessionTicket) -> Client:
        if access not in self._joined:
            until, error = self._not_joined.pop(access, (0.0, None))
            if error is not None and time.monotonic() < until and not _is_located(access):
                self._not_joined[access] = until, error
                raise error
            while len(self._joined) >= _MOST_CLIENTS:
                oldest = self._joined.pop(next(iter(self._joined)))
                # Its servers may be gone, and closing waits for them.
                threading.Thread(target=oldest.close, daemon=True).start()
            try:
                self._joined[access] = _connect(access)
            except ServerLost as lost:
                self._not_joined[access] = time.monotonic() + 2 * _JOIN_SECONDS, lost
                raise
            _freeze_loaded_modules()
        return self._joined[access]

    def leave(self, access: SessionTicket) -> None:
        """Disconnect; returns at once."""
        client = self._joined.pop(access, None)
        if client is not None:  # its servers may be gone, and closing waits for them
            threading.Thread(target=client.close, daemon=True).start()


def _freeze_loaded_modules() -> None:
    """Collections of garbage leave out what this process of Spark has loaded by now.

    Spark collects after each task in a process that is used again: some 100,000 objects of loaded
    modules, which takes 30 to 80 ms of a core that the next job, or resident tasks, could have.
    """
    if TaskContext.get() is not None:
        gc.freeze()


def _is_located(access: SessionTicket) -> bool:
    """Does the registry know of all servers where they are now?"""
    if access.registry is None:
        return False
    directory = RemoteDirectory(access.registry, access.token, access.tls)
    return all(directory.locate(server) for server in range(len(access.addresses)))


def _connect(access: SessionTicket) -> Client:
    if access.registry is None:
        return Client.connect(
            access.addresses,
            token=access.token,
            session=access.secret,
            timeout=_JOIN_SECONDS,
            tls=access.tls,
            eager=access.eager,
        )
    return Client.follow(
        RemoteDirectory(access.registry, access.token, access.tls),
        len(access.addresses),
        token=access.token,
        session=access.secret,
        timeout=_JOIN_SECONDS,
        tls=access.tls,
        eager=access.eager,
    )


@dataclass(frozen=True)
class WorkerSession:
    """What rows of keys need of a session; this process joins it with the first message.

    All that computes with whole arrays is the driver's.
    """

    access: SessionTicket
    make_room: ClassVar[None] = None
    """Checkpoints are the driver's."""

    @property
    def client(self) -> Client:
        """This process's client of the session. Raises ``ServerLost``."""
        return join(self.access)

    @property
    def counters(self) -> Counters:
        """What this process has sent, in all."""
        return self.client.counters

    def joinable(self) -> WorkerSession:
        """For a copy in one more process."""
        return self

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f".{name} is not available in a task; tasks can pull, push, assign, apply to and "
            "remove chosen keys; evaluate expressions over whole arrays, such as w @ w, on the "
            "driver",
            name=name,
            obj=self,
        )


class Report(NamedTuple):
    """What one run of a task staged: ``counts[k]`` contributions to slot ``k``."""

    closure: int
    stage: int
    partition: int
    attempt: int
    run: int
    counts: list[int]


Reports = dict[str, list[Report]]
"""By round; one whose tasks had nothing to contribute has none."""


class CollectReports(AccumulatorParam[Reports]):
    """The accumulator's rule: all reports, in the order in which they come."""

    def zero(self, value: Reports) -> Reports:
        """Nothing reported."""
        return {}

    def addInPlace(self, value1: Reports, value2: Reports) -> Reports:
        """``value1`` with the reports of ``value2`` at the end."""
        for name, reports in value2.items():
            value1.setdefault(name, []).extend(reports)
        return value1


class ReportCollector(Protocol):
    """Tasks add to it; the driver reads it. An ``Accumulator`` is one."""

    value: Reports

    def add(self, term: Reports) -> None:
        """Add reports."""


class TaskSession(Session):
    """The session of a SparkContext as rounds and tasks know it; ``PSContext`` starts it."""

    def __init__(
        self,
        spark_context: SparkContext,
        client: Client,
        token: str,
        servers: SupervisedServers | None = None,
        tls: Tls | None = None,
        durability: Durability | None = None,
        opener: Opener | None = None,
    ) -> None:
        super().__init__(client, owner=servers, durability=durability, opener=opener)
        self.spark_context = spark_context
        self.reports = self._new_reports()
        """What tasks said of their contributions to the rounds that are open."""
        self._given_token, self._given_tls = token, tls
        self._work: list[str] = []

    @property
    def _servers(self) -> SupervisedServers | None:
        """Those that were started for this session."""
        return self._owner if isinstance(self._owner, SupervisedServers) else None

    @property
    def _token(self) -> str:
        return self._given_token if self._servers is None else self._servers.token

    @property
    def _tls(self) -> Tls | None:
        return self._given_tls if self._servers is None else self._servers.tls

    @contextmanager
    def _at_work(self, name: str) -> Iterator[None]:
        """Tasks use the servers of now in the block, which ``name`` is called by."""
        self._work.append(name)
        try:
            yield
        finally:
            self._work.remove(name)

    def _new_reports(self) -> ReportCollector:
        nothing: Reports = {}
        return self.spark_context.accumulator(nothing, CollectReports())

    @property
    def generations(self) -> tuple[int, ...]:
        """How often each server was replaced; empty if servers are not replaced.

        Reading it sends no request.
        """
        if self._servers is not None:
            return self._servers.directory.generations
        return self.client.lives if self.client.is_replaced else ()

    def joinable(self) -> WorkerSession:
        """Return the session that keyed arrays have in tasks.

        Returns
        -------
        WorkerSession
            It contains the token, as ``access`` does.
        """
        return WorkerSession(self.access)

    def _authority(self, host: str) -> Authority | None:
        """Who signs for what the driver serves to tasks, which reach it as ``host``: as for the
        servers that were started here."""
        return authority_for(None, host) if self._servers is None else self._servers.authority

    @property
    def access(self) -> SessionTicket:
        """The data that a task needs to join this session.

        It contains the token: keep it in closures.
        """
        client, servers = self.client, self._servers
        registry = None if servers is None else servers.registry_address
        return SessionTicket(
            tuple(client.addresses),
            self._token,
            client.secret,
            registry,
            tls=self._tls,
            lives=() if registry is not None else client.lives,
        )
