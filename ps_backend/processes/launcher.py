"""Server processes on this machine that end when the process that launched them does."""

from __future__ import annotations

import os
import secrets
import threading
import time
import weakref
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Self

from ps_backend.arguments import NO_EXTENSIONS, Extensions, default_budget, server_count
from ps_backend.errors import PSError, ServerLost
from ps_backend.machine import usable_cores
from ps_backend.processes.server_process import KeptServer, Signer, Spares, WaitingProcess
from ps_backend.transport import Location

_LOOK_SECONDS = 1.0
"""So often a server is asked for a sign; that it died is seen at once."""

_STOP_SECONDS = 3.0
_JOIN_SECONDS = 10.0


def launch_local(
    servers: int,
    *,
    memory: int | None = None,
    token: str | None = None,
    timeout: float = 30.0,
    threads: int | None = None,
    restart: bool = False,
    signer: Signer | None = None,
    extensions: Extensions = NO_EXTENSIONS,
    spares: int = 0,
) -> LocalServers:
    """Start ``servers`` server processes on the loopback and wait until all of them listen.

    ``memory``: budget of each in bytes; an equal share of 80 % of the machine's by default.
    ``token``: a random one by default. ``threads`` of each: by default they share the machine's
    cores equally. ``restart``: one that dies, or gives no sign for ten seconds, is followed by
    another one, empty and at another address: ``Client.follow`` finds it. ``spares``: so many
    processes wait to be such ones, so that no request waits for a start. ``signer`` of
    their certificates; None: they serve without TLS. ``extensions`` of all of them. They end with
    this process even if it is killed. Raises ``PSError`` with what a server wrote if one is not up
    in ``timeout`` seconds.
    """
    servers = server_count(servers)
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be 1 or more, got {threads}")
    return LocalServers(
        servers,
        memory=default_budget(servers) if memory is None else memory,
        token=token or secrets.token_urlsafe(32),
        timeout=timeout,
        threads=threads or max(1, usable_cores() // servers),
        restart=restart,
        signer=signer,
        extensions=extensions,
        spares=spares,
    )


class LocalServers:
    """Running server processes, and a ``Directory`` of them. A context manager that stops them.

    Without it they are stopped when the interpreter ends, or nobody holds this object.
    """

    def __init__(
        self,
        servers: int,
        *,
        memory: int,
        token: str,
        timeout: float,
        threads: int,
        restart: bool = False,
        signer: Signer | None = None,
        extensions: Extensions = NO_EXTENSIONS,
        spares: int = 0,
    ) -> None:
        """As ``launch_local``, which fills in the defaults."""
        self.token = token
        start = partial(WaitingProcess, threads=threads, memory=memory, extensions=extensions)
        self.spares = Spares(spares, start)
        self._seats = [
            _Seat(
                KeptServer(
                    f"server {number}",
                    token=token,
                    threads=threads,
                    memory=memory,
                    signer=signer,
                    extensions=extensions,
                    spares=self.spares,
                )
            )
            for number in range(servers)
        ]
        self._watch = _Watch()
        parts = self._seats, self._watch, self.spares
        self._stop = weakref.finalize(self, _stop, os.getpid(), *parts)
        try:
            deadline = time.monotonic() + timeout
            started = [seat.kept.begin() for seat in self._seats]
            for seat, process in zip(self._seats, started, strict=True):
                seat.location = Location(process.wait_until_up(deadline), 0)
            self.spares.fill()
            if restart:
                self._watch.begin(self._seats)
        except BaseException:
            self.stop()
            raise

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the servers answer, or answered last."""
        return tuple(seat.location.address for seat in self._seats if seat.location is not None)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids, in the order of the addresses; 0 while a server starts, and at the end."""
        return tuple(seat.kept.pid for seat in self._seats)

    @property
    def generations(self) -> tuple[int, ...]:
        """How often each server was replaced."""
        return tuple(0 if one.location is None else one.location.generation for one in self._seats)

    @property
    def failure(self) -> str:
        """Why a server never comes back, if so."""
        return next((seat.failure for seat in self._seats if seat.failure), "")

    def locate(self, server: int) -> Location | None:
        """Where ``server`` is, also if it died just now; ``ServerLost`` if it never comes back."""
        seat = self._seats[server]
        if seat.failure or self._watch.over:
            raise ServerLost(seat.failure or "the servers were stopped; start new ones")
        return seat.location

    def diagnose(self, address: str) -> str | None:
        """What is known of the server at ``address`` if it died: how, and the end of its log."""
        found = (seat.kept.diagnose(address) for seat in self._seats)
        return next(filter(None, found), None)

    def stop(self) -> None:
        """End all servers and wait for them; whatever they hold is gone. Idempotent."""
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class _Seat:
    """A server's number: the process that has it, and where clients find that."""

    def __init__(self, kept: KeptServer) -> None:
        self.kept = kept
        self.location: Location | None = None
        self.failure = ""
        """Why no process will ever have it again, if so."""

    def look(self, unless: int) -> None:
        """Wait a moment, or until the process dies; see to it that there is one."""
        try:
            if self.kept.process is None:
                self._start(unless)
                return
            self.kept.process.wait_for_death(_LOOK_SECONDS, unless=unless)
            self.kept.look_after()
        except PSError as error:
            self.failure = f"{error}\nIt is not started again: close the session, and open another"

    def _start(self, unless: int) -> None:
        try:
            self.kept.start(unless=unless)
        except PSError:
            self.kept.bury(f"its process {self.kept.pid} did not come up")
        else:
            self.location = Location(self.kept.address, self.kept.life - 1)


class _Watch:
    """The threads that look after seats, one each, until ``end``."""

    def __init__(self) -> None:
        self.over = False
        self._wake = os.eventfd(0)  # readable for all from the end on
        self._threads: list[threading.Thread] = []

    def begin(self, seats: Sequence[_Seat]) -> None:
        for seat in seats:
            name = f"distvec-{seat.kept.name.replace(' ', '-')}"
            thread = threading.Thread(target=self._run, args=(seat,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def end(self) -> None:
        """Also for one of the threads, should it be the one that collects garbage."""
        self.over = True
        os.eventfd_write(self._wake, 1)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_JOIN_SECONDS)
        if not any(thread.is_alive() for thread in self._threads):
            os.close(self._wake)

    def _run(self, seat: _Seat) -> None:
        while not (self.over or seat.failure):
            seat.look(self._wake)
        seat.kept.end(_STOP_SECONDS)


def _stop(launched_by: int, seats: Sequence[_Seat], watch: _Watch, spares: Spares) -> None:
    if os.getpid() != launched_by:
        return  # a fork of the process that they belong to
    spares.end()
    watch.end()
    for seat in seats:
        if seat.kept.process is not None:
            seat.kept.process.ask_to_end()
    deadline = time.monotonic() + _STOP_SECONDS
    for seat in seats:
        seat.kept.end(deadline - time.monotonic())
