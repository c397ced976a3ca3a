"""A session that Spark tasks can join."""

from __future__ import annotations

from pyspark import SparkContext

from distvec.durability.policy import Durability
from distvec.session import Session
from distvec.spark.access import Access
from distvec.spark.cluster.parent_watch import SupervisedServers
from distvec.spark.joined import JoinedSession
from distvec.spark.rounds.contribute import CollectReports, Reports
from ps_backend.client import Client, Tls


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
    ) -> None:
        super().__init__(client, owner=servers, durability=durability)
        self.spark_context = spark_context
        nothing: Reports = {}
        self.reports = spark_context.accumulator(nothing, CollectReports())
        """What tasks said of their contributions to the rounds that are open."""
        self._token, self._tls = token, tls
        self._servers = servers

    @property
    def generations(self) -> tuple[int, ...]:
        """How often each server was replaced; empty where none is. No message."""
        if self._servers is not None:
            return self._servers.registry.generations
        return self.client.lives if self.client.is_replaced else ()

    def joinable(self) -> JoinedSession:
        """What keyed arrays have as their session in tasks. It holds the token, as ``access``."""
        return JoinedSession(self.access)

    @property
    def access(self) -> Access:
        """What a task needs to join this session; it holds the token, so keep it in closures."""
        client, servers = self.client, self._servers
        registry = None if servers is None else servers.registry_address
        return Access(
            tuple(client.addresses),
            self._token,
            client.secret,
            registry,
            tls=self._tls,
            lives=() if registry is not None else client.lives,
        )
