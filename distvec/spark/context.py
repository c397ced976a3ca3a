"""A session whose servers live beside a Spark application."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Sequence
from typing import ClassVar

from pyspark import SparkContext
from pyspark.sql import SparkSession

from distvec.session import Session
from distvec.spark.application import context_of, has_stopped, is_local, use_this_python
from distvec.spark.evaluate import Access
from ps_backend.client import Client
from ps_backend.launcher import LocalServers, launch_local
from ps_backend.memory import parse_size

_DEFAULT_SERVERS = 2
_WATCH_SECONDS = 1.0


class PSContext(Session):
    """Parameter servers for one SparkContext; everything a Session does, and Spark tasks may join.

    There is one a SparkContext: get it by ``PSContext.get_or_create(spark)``. It ends by
    ``stop()``, with the SparkContext, or with the interpreter.
    """

    _active: ClassVar[PSContext | None] = None
    _lock: ClassVar[threading.RLock] = threading.RLock()

    def __init__(
        self,
        spark_context: SparkContext,
        client: Client,
        token: str,
        servers: LocalServers | None = None,
    ) -> None:
        super().__init__(client, owner=servers)
        use_this_python(spark_context)
        self.spark_context = spark_context
        self._token = token
        self._servers = servers
        self._stopped = threading.Event()
        atexit.register(self.stop)
        threading.Thread(target=self._watch, name="distvec-spark-watch", daemon=True).start()

    @classmethod
    def get_or_create(
        cls,
        spark: SparkSession | SparkContext,
        *,
        servers: int | None = None,
        addresses: str | Sequence[str] | None = None,
        token: str | None = None,
        memory: int | str | None = None,
    ) -> PSContext:
        """The context of this SparkContext, started if there is none.

        With a ``local[N]`` master, ``servers`` (2 unless given) processes are started under the
        driver, each with ``memory`` at most (bytes, or "2g"). With ``addresses``
        ("host:port,host:port") and their ``token`` it connects to servers that ``distvec serve``
        started, which the executors must reach under the same names. ValueError if a running
        context has other servers than those asked for; a context whose SparkContext has stopped
        is discarded.
        """
        spark_context = context_of(spark)
        wanted = _addresses(addresses)
        if wanted is not None and servers is not None and servers != len(wanted):
            raise ValueError(f"servers={servers} but {len(wanted)} addresses; leave servers out")
        with cls._lock:
            running = cls._active
            if running is not None:
                if running.spark_context is spark_context and not running.is_stopped:
                    running._refuse_change(servers, wanted)
                    return running
                running.stop()
            cls._active = cls._start(spark_context, servers, wanted, token, memory)
            return cls._active

    @classmethod
    def active(cls) -> PSContext:
        """The running context; RuntimeError that says how to start one if there is none."""
        running = cls._active
        if running is None or running.is_stopped:
            raise RuntimeError(
                "no PSContext is running; start one first: PSContext.get_or_create(spark)"
            )
        return running

    @classmethod
    def _start(
        cls,
        spark_context: SparkContext,
        servers: int | None,
        addresses: tuple[str, ...] | None,
        token: str | None,
        memory: int | str | None,
    ) -> PSContext:
        if addresses is not None:
            if token is None:
                raise ValueError("addresses need the servers' token: pass token=...")
            return cls(spark_context, Client.connect(addresses, token=token), token)
        if not is_local(spark_context.master):
            raise NotImplementedError(
                f"master {spark_context.master!r}: servers on executors are not available yet; "
                "start some by hand (distvec serve --port PORT --token-file FILE) and pass "
                'addresses="host:port,host:port", token=...'
            )
        launched = launch_local(
            _DEFAULT_SERVERS if servers is None else servers,
            memory=None if memory is None else parse_size(memory),
        )
        try:
            client = Client.connect(
                launched.addresses, token=launched.token, diagnose=launched.diagnose
            )
            return cls(spark_context, client, launched.token, launched)
        except BaseException:
            launched.stop()
            raise

    @property
    def is_stopped(self) -> bool:
        """Has ``stop`` run, or has the SparkContext stopped?"""
        return self._stopped.is_set() or has_stopped(self.spark_context)

    @property
    def access(self) -> Access:
        """What a task needs to join this session; it holds the token, so keep it in closures."""
        client = self.client
        return Access(tuple(client.addresses), self._token, client.session)

    @property
    def server_pids(self) -> list[int]:
        """Process ids of the servers that this context started itself; none with addresses."""
        return [] if self._servers is None else list(self._servers.pids)

    def stop(self) -> None:
        """Close the session and stop the servers this context started; twice is harmless."""
        self.close()

    def close(self) -> None:
        """The same as ``stop``."""
        cls = type(self)
        with cls._lock:
            if cls._active is self:
                cls._active = None
            if self._stopped.is_set():
                return
            self._stopped.set()
        atexit.unregister(self.stop)
        super().close()

    def _watch(self) -> None:
        """Servers must not outlive the SparkContext; it tells nobody in Python that it stopped."""
        while not self._stopped.wait(_WATCH_SECONDS):
            if has_stopped(self.spark_context):
                self.stop()

    def _refuse_change(self, servers: int | None, addresses: tuple[str, ...] | None) -> None:
        have = tuple(self.client.addresses)
        if servers is not None and servers != len(have):
            raise ValueError(
                f"servers={servers}, but a PSContext with {len(have)} is running; "
                "call stop() on it first, or leave servers out to use it"
            )
        if addresses is not None and addresses != have:
            raise ValueError(
                f"addresses={','.join(addresses)!r}, but a PSContext with {','.join(have)!r} is "
                "running; call stop() on it first, or leave addresses out to use it"
            )


def _addresses(addresses: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if addresses is None:
        return None
    parts = addresses.split(",") if isinstance(addresses, str) else addresses
    return tuple(part.strip() for part in parts)
