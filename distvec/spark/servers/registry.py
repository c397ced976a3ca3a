"""Who serves where: the driver's record of the servers on executors.

The task that supervises a server holds a connection to the registry and a lease on the server's
number, which it renews. Each number has one owner. A second task for the same number (a speculative
copy, or one that Spark started before it saw the first one fail) is told to wait, and becomes the
owner when the first one's connection breaks or its lease runs out.
"""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass

from ps_backend.errors import ServerLost
from ps_backend.transport import Location

LEASE_SECONDS = 5.0
"""An owner that was not heard of for so long ends its server, and another may take its place."""

SERVE, WAIT, STOP = "serve", "wait", "stop"
"""What a task is told: to run the server, to run none for now, or to end."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a task says: ``server`` is its number, ``attempt`` the id of the task attempt.

    ``address`` and ``pid`` are those of its server process, empty and 0 while none answers;
    ``trouble`` says how the last one ended.
    """

    server: int
    attempt: int
    address: str = ""
    pid: int = 0
    trouble: str = ""


@dataclass(slots=True)
class _Owner:
    claim: Claim
    connection: int
    connected: bool
    heard: float

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() - self.heard < LEASE_SECONDS


class Registry:
    """The owners of ``servers`` numbers; a ``Directory`` for clients. Thread-safe."""

    def __init__(self, servers: int) -> None:
        self.servers = servers
        self._owners: dict[int, _Owner] = {}
        self._generations = dict.fromkeys(range(servers), -1)
        self._troubles: dict[int, str] = {}
        self._connections = itertools.count()
        self._over = ""
        self._complete = False
        self._changed = threading.Condition()

    # --- for tasks --------------------------------------------------------------------------------

    def new_connection(self) -> int:
        """A number for a connection over which claims come."""
        return next(self._connections)

    def claim(self, claim: Claim, connection: int) -> str:
        """Claim, announce, or renew: SERVE to the owner, WAIT to others, STOP at the end."""
        if not 0 <= claim.server < self.servers:
            raise ValueError(f"server={claim.server}; there are {self.servers}")
        with self._changed:
            if self._over:
                return STOP
            owner = self._owners.get(claim.server)
            mine = owner is not None and owner.claim.attempt == claim.attempt
            if owner is not None and not mine and owner.connected and owner.is_fresh:
                return WAIT
            if claim.trouble:
                self._troubles[claim.server] = claim.trouble
            known = owner.claim if owner is not None and mine else None
            if claim.address and (known is None or known.address != claim.address):
                self._generations[claim.server] += 1
            self._owners[claim.server] = _Owner(claim, connection, True, time.monotonic())
            self._complete = self._complete or self._all_serve()
            self._changed.notify_all()
            return SERVE

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
        """Where ``server`` answers, or None if no owner has one now; ``ServerLost`` at the end."""
        with self._changed:
            if self._over:
                raise ServerLost(self._over)
            owner = self._owners.get(server)
            if owner is None or not owner.claim.address or not owner.is_fresh:
                return None
            return Location(owner.claim.address, self._generations[server])

    # --- for the driver ---------------------------------------------------------------------------

    @property
    def owned(self) -> int:
        """How many numbers have an owner, whose server may still be starting."""
        return len(self._owners)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the servers on their machines; 0 where none answers."""
        with self._changed:
            owners = [self._owners.get(k) for k in range(self.servers)]
        return tuple(0 if owner is None else owner.claim.pid for owner in owners)

    def wait_until_serving(self, seconds: float) -> bool:
        """Wait until all servers answer; False if some do not in time, or at the end."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._over) or self._all_serve(), seconds)
            return not self._over and self._all_serve()

    def begin_again(self) -> bool:
        """The job that runs the tasks ended. Had all servers been up since it began?"""
        with self._changed:
            complete, self._complete = self._complete, False
            return complete

    def diagnose(self, address: str) -> str | None:
        """What is known of the server that answered, or answers, at ``address``."""
        with self._changed:
            for number, owner in self._owners.items():
                if owner.claim.address == address and not owner.connected:
                    return f"the executor of server {number} was lost; Spark starts it elsewhere"
            found = [text for text in self._troubles.values() if address in text]
        return found[-1] if found else None

    def stop(self, reason: str) -> None:
        """End: tasks are told to stop, and clients, with ``reason``, that all servers are lost."""
        with self._changed:
            self._over = self._over or reason
            self._changed.notify_all()

    def _all_serve(self) -> bool:
        addresses = [owner.claim.address for owner in self._owners.values()]
        return len(addresses) == self.servers and all(addresses)
