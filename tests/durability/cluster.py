"""Servers, drivers and messages in one process, all of which may fail at any moment of a seed."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ps_backend.client import Client
from ps_backend.client.server_link import RetryPolicy
from ps_backend.durability.stores import Directory
from ps_backend.server.commands.command import Payload
from ps_backend.server.service import Incarnation, Service
from ps_backend.transport import Answer, Unavailable, follow_all
from ps_backend.transport.failover import Location
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import Parts, copy_chunks
from tests.durability.disk import Disk

MEMORY = 1 << 28
MOST_LOST = 2
"""Messages that are lost one after the other; more of them are a server that is gone."""


class DriverKilled(BaseException):
    """The driver's process ends here."""


class ServerKilled(BaseException):
    """A server's process ends here."""


@dataclass(frozen=True)
class Steady(RetryPolicy):
    """Repeats that no clock counts."""

    def pauses(self) -> Iterator[float]:
        """As many as messages are lost, and a few for servers that are replaced."""
        return iter([0.0] * (MOST_LOST + 6))


@dataclass(frozen=True)
class Chances:
    """How likely things are, each time that they may happen."""

    lost: float = 0.02
    """A request, or its answer."""
    repeated: float = 0.02
    server: float = 0.004
    driver: float = 0.001
    """Both at a message, before or after it is worked on, and at each call of the disk."""


NONE = Chances(0, 0, 0, 0)


@dataclass
class Steps:
    """The writer of a checkpoint: a thread that runs only while the driver waits for it."""

    pick: random.Random
    thread: threading.Thread | None = None
    _go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _back: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def start(self, write: Callable[[], Any]) -> Future[Any]:
        """As ``distvec.durability.checkpoints.in_thread``, but that it waits for its steps."""
        future: Future[Any] = _Awaited(self)

        def run() -> None:
            self._go.acquire()
            try:
                future.set_result(write())
            except BaseException as error:  # noqa: BLE001 - handed over to who waits
                future.set_exception(error)
            self.thread = None
            self._back.release()

        self.finish()
        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        return future

    def step(self) -> None:
        """Let it go on to one of its next calls."""
        if self.thread is not None:
            self._go.release()
            self._back.acquire()

    def finish(self) -> None:
        """Let it go on to its end."""
        while self.thread is not None:
            self.step()

    def moment(self) -> None:
        """In the writer: the driver may go on."""
        if threading.current_thread() is self.thread and self.pick.random() < 0.3:
            self._back.release()
            self._go.acquire()


class _Awaited(Future[Any]):
    """Who waits for it lets the writer go on."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._steps.finish()
        return super().exception(timeout)

    def result(self, timeout: float | None = None) -> Any:
        self._steps.finish()
        return super().result(timeout)


class Driver:
    """A driver's process: what it sends fails with it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.is_dead = cluster, False
        self.steps = Steps(cluster.pick)
        self.disk = cluster.disk.seen_by(lambda name, path: self.moment())

    def moment(self) -> None:
        """Something may happen here."""
        if self.is_dead:
            raise DriverKilled
        self.steps.moment()
        if self.cluster.happens("driver"):
            self.is_dead = True
        if self.is_dead:
            raise DriverKilled
        self.cluster.maybe_kill()

    def connect(self, former: Client | None = None) -> Client:
        """A client of the cluster's servers."""
        cluster = self.cluster
        lines = follow_all(
            cluster, cluster.servers, lambda at: Line(self, at, cluster), iter([0.0])
        )
        return Client(lines, retry=Steady(), patience=Steady(), former=former)

    def open_store(self, url: str) -> Directory:
        """The directory on the cluster's disk."""
        return Directory(url, system=self.disk)


class Cluster:
    """Servers that are replaced at once when they die, by empty ones, and the disk of all."""

    def __init__(self, servers: int, disk: Disk, pick: random.Random, chances: Chances) -> None:
        self.servers, self.disk, self.pick, self.chances = servers, disk, pick, chances
        self.kills = 0
        self.lives = [1] * servers
        self.services = [self._service(k) for k in range(servers)]

    def happens(self, what: str) -> bool:
        """Whether it happens now."""
        chance = getattr(self.chances, what)
        return bool(chance) and self.pick.random() < chance

    def maybe_kill(self) -> None:
        """A server may die now."""
        if self.happens("server"):
            self.kill(self.pick.randrange(self.servers))

    def kill(self, server: int) -> None:
        """Another one, empty, takes the place of that server."""
        self.kills += 1
        self.lives[server] += 1
        self.services[server] = self._service(server)

    def locate(self, server: int) -> Location:
        """As ``ps_backend.transport.Directory``."""
        life = self.lives[server]
        return Location(f"{server}:{life}", life - 1)

    def _service(self, server: int) -> Service:
        life = self.lives[server]

        def before(name: str, path: Path) -> None:
            driver = self.driver_at_work
            if driver is not None:
                driver.steps.moment()
            self.maybe_kill()
            if self.lives[server] != life:
                raise ServerKilled

        disk = self.disk.seen_by(before)
        made = Service(
            memory=MEMORY,
            life=Incarnation(life),
            open_store=lambda url: Directory(url, system=disk),
        )
        made.peers.reach_by(lambda address: Line(None, address, self))
        return made

    driver_at_work: Driver | None = None
    """Whose request is worked on, for the steps of its writer."""


class Line:
    """A connection of a driver to one life of a server, on which messages get lost."""

    def __init__(self, driver: Driver | None, address: str, cluster: Cluster) -> None:
        """Without a driver: that of a server to another one, which loses none."""
        self.driver, self.address, self.cluster = driver, address, cluster
        self._server, self._life = map(int, address.split(":"))
        self._lost = 0
        self.bulk_way = ""

    def call(
        self, request: pb.Request, payload: Parts = (), into: memoryview | None = None
    ) -> Answer:
        """Send and wait."""
        if self.driver is None:
            return self._work(request, payload, into)
        kind = "unpin" if request.pin.over else request.WhichOneof("body")
        self._moment(kind)
        if self._loses("lost"):
            raise Unavailable("the request was lost")
        answer = self._work(request, payload, into)
        if kind not in ("open", "close") and self.cluster.happens("repeated"):
            answer = self._work(request, payload, into)
        self._moment(kind)
        if self._loses("lost"):
            raise Unavailable("the answer was lost")
        self._lost = 0
        return answer

    def start(
        self, request: pb.Request, payload: Parts = (), into: memoryview | None = None
    ) -> Future[Answer]:
        """Send now; what goes wrong is in the answer."""
        answer: Future[Answer] = Future()
        try:
            answer.set_result(self.call(request, payload, into))
        except Unavailable as error:
            answer.set_exception(error)
        return answer

    promise = start

    def close(self) -> None:
        """Nothing to end."""

    def _moment(self, kind: str | None) -> None:
        """The driver or a server may die; the writer may wait, where it holds no locks."""
        if kind in ("save", "unpin") or self.driver.is_dead:
            self.driver.moment()
        else:
            steps, self.driver.steps = self.driver.steps, Steps(self.cluster.pick)
            try:
                self.driver.moment()
            finally:
                self.driver.steps = steps
        self._check()

    def _check(self) -> None:
        if self.cluster.lives[self._server] != self._life:
            raise Unavailable(f"server {self.address} is gone")

    def _loses(self, what: str) -> bool:
        if self._lost < MOST_LOST and self.cluster.happens(what):
            self._lost += 1
            return True
        return False

    def _work(self, request: pb.Request, payload: Parts, into: memoryview | None) -> Answer:
        self._check()
        service = self.cluster.services[self._server]
        size = request.payload = sum(map(len, payload))
        before, self.cluster.driver_at_work = self.cluster.driver_at_work, self.driver
        try:
            response = service.handle(request, Payload(size, payload))
        except ServerKilled:
            raise Unavailable(f"server {self.address} died") from None
        finally:
            self.cluster.driver_at_work = before
        self._check()
        received = response.reply.ByteSize()
        if into is not None and not response.reply.HasField("error"):
            received += copy_chunks(response.parts, into)
        return Answer(response.reply, request.ByteSize() + size, received)
