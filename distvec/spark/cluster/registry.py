"""Who serves where: the driver's record of the servers that it has started.

Who supervises a server (a Spark task) holds a connection to the registry
and a lease on the server's number, which it renews. Each number has one owner. A second task for
the same number (a speculative copy) is told to wait, and becomes the owner when the first one's
connection breaks or its lease runs out.

A task that Spark repeats because the owner was lost is sent away instead: the driver places the
server anew, by a job of its own. So it decides whether there is room for it, and a lost task does
not count against the life of the job that others run in.

The registry behind a port of the driver, and the way to ask it from elsewhere.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from ps_backend.client import Location, Tls, ask_once
from ps_backend.errors import PSError, ServerLost

if TYPE_CHECKING:
    from ps_backend.processes.certificates import Authority
    from ps_backend.processes.message_server import Answer, MessageServer

LEASE_SECONDS = 8.0
"""Another may take the place of an owner that was not heard of for so long: longer than a busy
driver, whose interpreter is held by something else, is silent."""

SERVE_SECONDS = 0.8 * LEASE_SECONDS
"""So long after it sent a claim that was granted, a server may answer: it ends well before."""

ANSWER_SECONDS = 0.5
"""A claim that says nothing new is answered after so long, or when the servers are to stop."""

COMING_SECONDS = 15.0
"""A server that finds no room is waited for so long, as executors may be on their way."""

SERVE, WAIT, LEAVE, STOP = "serve", "wait", "leave", "stop"
"""What a task is told: to run the server, to run none for now, or to end: as another job runs this
server now, or as all is over."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a task says: ``server`` is its number, ``attempt`` the id of the task attempt.

    ``placement`` counts the jobs that were started for this server, ``retry`` says that Spark
    started the task again. ``address`` and ``pid`` are those of its server process, empty and 0
    while none answers; ``trouble`` says how the last one ended. ``life`` is the number of the life
    that the process was told to be.
    """

    server: int
    attempt: int
    address: str = ""
    pid: int = 0
    trouble: str = ""
    placement: int = 0
    retry: bool = False
    life: int = 0


@dataclass(slots=True)
class _Owner:
    claim: Claim
    connection: int
    connected: bool
    heard: float
    life: int
    """The number of its server's life: of the process that answers, or is to be started."""

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() - self.heard < LEASE_SECONDS

    @property
    def is_gone(self) -> bool:
        return not (self.connected and self.is_fresh)


class ServerDirectory(Protocol):
    """A ``Directory`` of servers that are kept running, and which processes they are."""

    def locate(self, server: int) -> Location | None:
        """Where ``server`` is; None if none serves right now. ``ServerLost`` if none ever will."""

    @property
    def generations(self) -> tuple[int, ...]:
        """How often each server was replaced."""

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids, on the servers' machines; 0 for a server that is being replaced."""

    def diagnose(self, address: str) -> str | None:
        """What is known of the server at ``address`` if it is lost."""


class Registry:
    """The owners of ``servers`` numbers; a ``Directory`` for clients. Thread-safe."""

    def __init__(self, servers: int) -> None:
        self.servers = servers
        self._owners: dict[int, _Owner] = {}
        self._lives = dict.fromkeys(range(servers), 0)
        self._generations = dict.fromkeys(range(servers), -1)
        self._placements = dict.fromkeys(range(servers), 0)
        self._served: set[int] = set()
        """Those whose server answered since they were placed last."""
        self._vacant: dict[int, float] = {}
        """Those that are to be placed anew, and since when."""
        self._no_room = ""
        self._troubles: dict[int, str] = {}
        self._connections = itertools.count()
        self._over = ""
        self._changed = threading.Condition()

    # --- for tasks --------------------------------------------------------------------------------

    def new_connection(self) -> int:
        """A number for a connection over which claims come."""
        return next(self._connections)

    def renew(self, claim: Claim, connection: int) -> str:
        """``claim``, but if it changes nothing, after a moment, or at once when all is over."""
        before = self._owners.get(claim.server)
        state = self.claim(claim, connection)
        # Without an address there is a server to start, or one that is awaited: no time to lose.
        # Nor when the address is new: its server may answer for as long as the task is told.
        is_news = before is None or before.claim != claim
        served = state == SERVE and (is_news or not claim.address)
        if not (served or state == LEAVE) and self.wait_for_stop(ANSWER_SECONDS):
            state = self.claim(claim, connection)
        return state

    def claim(self, claim: Claim, connection: int) -> str:
        """Claim, announce, or renew: SERVE to the owner, WAIT to others, or LEAVE; STOP at the end.

        Who repeats the task of a server that answered must LEAVE, and the number is vacant.
        """
        number = claim.server
        if not 0 <= number < self.servers:
            raise ValueError(f"server={number}; there are {self.servers}")
        with self._changed:
            if self._over:
                return STOP
            if claim.placement != self._placements[number]:
                return LEAVE
            owner = self._owners.get(number)
            mine = owner is not None and owner.claim.attempt == claim.attempt
            if owner is not None and not mine and owner.claim.placement == claim.placement:
                if not owner.is_gone:
                    return WAIT
                if claim.retry and number in self._served:
                    self._vacate(number)
                    return LEAVE
            if claim.trouble:
                self._troubles[number] = claim.trouble
            known = owner if mine else None
            if known is None or known.claim.address not in ("", claim.address):
                self._lives[number] += 1
            life = self._lives[number]
            if claim.address and claim.life not in (0, life):
                claim = replace(claim, address="", pid=0)  # a process of an older life
            if claim.address:
                self._generations[number] = life - 1
                self._served.add(number)
            self._owners[number] = _Owner(claim, connection, True, time.monotonic(), life)
            self._changed.notify_all()
            return SERVE

    def life(self, claim: Claim) -> int:
        """The number of the life that the server of this task is to be; 0 unless it is the owner.

        A process of another life is to end: the number has been somebody else's meanwhile.
        """
        with self._changed:
            owner = self._owners.get(claim.server)
            mine = owner is not None and owner.claim.attempt == claim.attempt
            return owner.life if owner is not None and mine else 0

    def let_go(self, connection: int) -> None:
        """The connection broke: what is claimed over it may be claimed by others at once."""
        with self._changed:
            for owner in self._owners.values():
                if owner.connection == connection:
                    owner.connected = False
            self._changed.notify_all()

    def wait_for_stop(self, seconds: float) -> bool:
        """Wait so long, or until the end; whether it is the end."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._over), seconds)

    # --- for clients ------------------------------------------------------------------------------

    def locate(self, server: int) -> Location | None:
        """Where ``server`` answers, or None if no owner has one now.

        ``ServerLost`` at the end, or if it has been waiting for room for long.
        """
        with self._changed:
            if self._over:
                raise ServerLost(self._over)
            since = self._vacant.get(server)
            if since is not None:
                if self._no_room and time.monotonic() - since > COMING_SECONDS:
                    raise ServerLost(f"server {server} was lost, and {self._no_room}")
                return None
            owner = self._owners.get(server)
            if owner is None or owner.claim.placement != self._placements[server]:
                return None
            if not owner.claim.address or not owner.is_fresh:
                return None
            return Location(owner.claim.address, self._generations[server])

    # --- for who places servers -------------------------------------------------------------------

    def vacancy(self) -> int | None:
        """Wait for a number that is to be placed anew; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._over or self._vacant))
            return None if self._over else min(self._vacant)

    def hold_back(self, reason: str) -> None:
        """Vacant numbers cannot be placed for now, and why."""
        with self._changed:
            self._no_room = reason

    def place(self, number: int) -> int:
        """A vacant number is being placed: the count of its placements, for its claims."""
        with self._changed:
            self._vacant.pop(number, None)
            self._no_room = ""
            return self._placements[number]

    def vacate(self, number: int, placement: int, *, served: bool = False) -> bool:
        """The job of this placement ended; the number is vacant, unless others know already.

        False if its server never answered: then nothing is done, unless it counts as ``served``.
        """
        with self._changed:
            if self._placements[number] != placement or self._over:
                return True
            if number not in self._served and not served:
                return False
            self._vacate(number)
            return True

    def _vacate(self, number: int) -> None:
        self._placements[number] += 1
        self._served.discard(number)
        self._vacant[number] = time.monotonic()
        if (owner := self._owners.get(number)) is not None:
            owner.connected = False
        self._changed.notify_all()

    # --- for the driver ---------------------------------------------------------------------------

    @property
    def generations(self) -> tuple[int, ...]:
        """How often each server was replaced: the number of its life before the present one."""
        with self._changed:
            return tuple(self._generations.values())

    @property
    def owned(self) -> int:
        """How many numbers have an owner, whose server may still be starting."""
        return len(self._owners)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the servers on their machines; 0 where none answers."""
        with self._changed:
            owners = [self._owners.get(k) for k in range(self.servers)]
        return tuple(owner.claim.pid if owner and owner.connected else 0 for owner in owners)

    def wait_until_serving(self, seconds: float) -> bool:
        """Wait until all servers answer; False if some do not in time, or at the end."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._over) or not self.missing(), seconds)
            return not self._over and not self.missing()

    def missing(self) -> str:
        """Which servers do not answer, and what was seen of each; empty if all do."""
        with self._changed:
            found = {k: self._why_missing(k) for k in range(self.servers)}
        return "; ".join(f"server {k}: {why}" for k, why in found.items() if why)

    def _why_missing(self, number: int) -> str:
        owner = self._owners.get(number)
        if owner is None:
            return "no task has claimed it yet"
        if number in self._vacant:
            why = self._no_room or "it was lost, and is placed on another executor"
        elif owner.is_gone:
            why = "the task that ran it was lost"
        elif owner.claim.address:
            return ""
        else:
            why = "its process is starting"
        trouble = self._troubles.get(number)
        return f"{why} ({trouble})" if trouble else why

    def diagnose(self, address: str) -> str | None:
        """What is known of the server that answered, or answers, at ``address``."""
        with self._changed:
            for number, owner in self._owners.items():
                if owner.claim.address == address and not owner.connected:
                    waits = self._no_room if number in self._vacant else ""
                    return f"the executor of server {number} was lost; " + (
                        waits or "Spark starts it elsewhere"
                    )
            found = [text for text in self._troubles.values() if address in text]
        return found[-1] if found else None

    def stop(self, reason: str) -> None:
        """End: tasks are told to stop, and clients, with ``reason``, that all servers are lost."""
        with self._changed:
            self._over = self._over or reason
            self._changed.notify_all()


_ASK_SECONDS = 2.0


def serve_registry(
    directory: ServerDirectory, host: str, bind: str, key: str, authority: Authority | None = None
) -> MessageServer:
    """Answer clients' questions, and where ``directory`` is a ``Registry``, tasks' claims.

    ``host``, ``bind`` and ``key`` as of ``MessageServer``. ``authority``: who signs the
    certificates of servers; then it is all encrypted.
    """

    @contextmanager
    def conversation() -> Iterator[Answer]:
        registry = directory if isinstance(directory, Registry) else None
        connection = 0 if registry is None else registry.new_connection()

        def answer(question: dict[str, Any]) -> dict[str, Any]:
            if "locate" in question:
                return _locate(directory, int(question["locate"]))
            if "certify" in question and authority is not None:
                return {"certificate": authority.sign(str(question["certify"]))}
            if registry is None:
                raise ValueError("no server is claimed here")
            claim = Claim(**question["claim"])
            return {"state": registry.renew(claim, connection), "life": registry.life(claim)}

        try:
            yield answer
        finally:
            if registry is not None:
                registry.let_go(connection)

    return serve_messages(conversation, host, bind, key, authority, silence=LEASE_SECONDS)


def serve_messages(
    conversation: Callable[[], Any],
    host: str,
    bind: str,
    key: str,
    authority: Authority | None,
    *,
    silence: float,
) -> MessageServer:
    """A service of the driver, encrypted where there is an ``authority``."""
    from ps_backend.processes.message_server import MessageServer  # all that servers consist of

    identity = None if authority is None else authority.new_identity()
    return MessageServer(conversation, host, bind, key, silence=silence, identity=identity)


def _locate(directory: ServerDirectory, server: int) -> dict[str, Any]:
    try:
        location = directory.locate(server)
    except ServerLost as error:
        return {"over": str(error)}
    return {} if location is None else asdict(location)


class RemoteDirectory:
    """A ``Directory`` that asks the registry on the driver, with one connection per question."""

    def __init__(self, address: tuple[str, int], key: str, tls: Tls | None = None) -> None:
        self._address, self._key, self._tls = address, key, tls

    def locate(self, server: int) -> Location | None:
        """Where ``server`` is; None also if the registry does not answer."""
        try:
            answer = ask_once(self._address, self._key, {"locate": server}, _ASK_SECONDS, self._tls)
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
