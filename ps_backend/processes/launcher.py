"""Server processes on this machine that end when the process that launched them does."""

from __future__ import annotations

import os
import secrets
import time
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from ps_backend.arguments import server_count
from ps_backend.memory_sizes import default_budget
from ps_backend.processes.process import ServerProcess


def launch_local(
    servers: int,
    *,
    memory: int | None = None,
    token: str | None = None,
    timeout: float = 30.0,
    threads: int | None = None,
) -> LocalServers:
    """Start ``servers`` server processes on the loopback and wait until all of them listen.

    ``memory``: budget of each in bytes; an equal share of 80 % of the machine's by default.
    ``token``: a random one by default. ``threads`` of each: by default they share the machine's
    cores equally. They end with this process even if it is killed. Raises ``PSError`` with what a
    server wrote if one is not up in ``timeout`` seconds.
    """
    servers = server_count(servers)
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be 1 or more, got {threads}")
    return LocalServers(
        servers,
        memory=default_budget(servers) if memory is None else memory,
        token=token or secrets.token_urlsafe(32),
        timeout=timeout,
        threads=threads or max(1, (os.cpu_count() or 1) // servers),
    )


class LocalServers:
    """Running server processes. A context manager that stops them at the end.

    Without it they are stopped when the interpreter ends, or nobody holds this object.
    """

    def __init__(
        self, servers: int, *, memory: int, token: str, timeout: float, threads: int
    ) -> None:
        """As ``launch_local``, which fills in the defaults."""
        self.token = token
        self._processes: list[ServerProcess] = []
        self._stop = weakref.finalize(self, _stop, os.getpid(), self._processes)
        self.addresses: tuple[str, ...] = ()
        try:
            for number in range(servers):
                process = ServerProcess(
                    f"server {number}",
                    token=token,
                    threads=threads,
                    memory=memory,
                )
                self._processes.append(process)
            deadline = time.monotonic() + timeout
            self.addresses = tuple(one.wait_until_up(deadline) for one in self._processes)
        except BaseException:
            self.stop()
            raise

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids, in the order of the addresses."""
        return tuple(process.pid for process in self._processes)

    def diagnose(self, address: str) -> str | None:
        """What is known of the server at ``address`` if it died: how, and the end of its log."""
        if address not in self.addresses:
            return None
        process = self._processes[self.addresses.index(address)]
        death, wrote = process.death(), process.log_tail().strip()
        return f"{death}; it wrote:\n{wrote}" if death and wrote else death

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


def _stop(launched_by: int, processes: Sequence[ServerProcess]) -> None:
    if os.getpid() != launched_by:
        return  # a fork of the process that they belong to
    for process in processes:
        process.ask_to_end()
    deadline = time.monotonic() + 3.0
    for process in processes:
        process.stop(deadline)
