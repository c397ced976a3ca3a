"""Floods by who has no token, beside clients at work: a server must not grow, nor let them wait.

A failure: the server has grown by a tenth, or is gone; a request of a client went wrong; one in a
hundred of a kind took more than a quarter of a second. (On the slowest of all the load of the
machine decides: the row shows it, beside those without strangers.)
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.synchronize
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import numpy as np

from ps_backend.client import Client
from ps_backend.processes.launcher import LocalServers, launch_local
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from tests.fuzz.http2 import abuse
from tests.fuzz.live import resident
from tests.ps_backend.far_away import FarAway
from tests.ps_backend.stranger import let_in
from tests.stress.row import Row

MEMORY = 512 << 20
FLOOD_SECONDS, OTHER_SECONDS = 600.0, 60.0
FLOOD_BYTES = 350 << 20
"""Of one connection, as far as it gets."""
PROCESSES = 2
"""That attack at the same time."""
MOST_GROWTH = 1.1
LATE_SECONDS = 0.25
_HALF_OPEN = 2000
_EACH_SECONDS = 0.01
_NICE = 19
"""Attackers have machines of their own: these do not take the processors from server and clients,
but when they are idle."""

_SPACE = DenseSpace(1000)
_VALUES = np.random.default_rng(5).normal(size=_SPACE.length)
_Spawned = multiprocessing.get_context("spawn")

Barrier = multiprocessing.synchronize.Barrier
Queue = multiprocessing.SimpleQueue


def run(scale: float) -> Iterator[Row]:
    """A row for each attack, and one for all of them at once."""
    for what, attacks, seconds in (
        ("continuation floods", [_continuations], FLOOD_SECONDS),
        ("rapid resets", [_resets], OTHER_SECONDS),
        ("half-open connections", [_half_open], OTHER_SECONDS),
        ("wrong tokens", [_wrong_tokens], OTHER_SECONDS),
        ("all at once", [_continuations, _resets, _half_open, _wrong_tokens], OTHER_SECONDS),
    ):
        yield _row(f"strangers: {what}", attacks, max(1.0, seconds * scale))


# --- attacks: each for so many seconds, by a process of its own -----------------------------------

Attack = Callable[[str, float], int]
"""By an address and an end (``time.time``); how many connections were made."""


def _continuations(address: str, until: float) -> int:
    return _abuses(address, until, ("a text without end", "endless headers", "headers that refer"))


def _resets(address: str, until: float) -> int:
    return _abuses(address, until, ("rapid reset", "settings flood", "ping flood", "many streams"))


def _abuses(address: str, until: float, names: tuple[str, ...]) -> int:
    made = 0
    while time.time() < until:
        with suppress(OSError):  # sent away before it could begin
            name = names[made % len(names)]
            abuse(address, name, (), listens=made % 2 == 0, seconds=1.0, most=FLOOD_BYTES)
        made += 1
    return made


def _half_open(address: str, until: float) -> int:
    """As many as a process may have open; who is sent away comes again."""
    host, port = address.rsplit(":", 1)
    made = 0
    with ExitStack() as stack:
        while time.time() < until:
            if made % _HALF_OPEN == 0:
                stack.close()
            with suppress(OSError):
                connection = socket.create_connection((host, int(port)), 1.0)
                stack.callback(connection.close)
                connection.sendall(b"CONNECT distvec HTTP/1.1\r\n"[: made % 3])
            made += 1
    return made


def _wrong_tokens(address: str, until: float) -> int:
    made = 0
    while time.time() < until:
        with suppress(OSError):
            let_in(address, f"wrong {made}", 1.0)
        made += 1
    return made


def _attack(attack: Attack, address: str, seconds: float, ready: Barrier, made: Queue) -> None:
    os.nice(_NICE)
    ready.wait(60)
    made.put(attack(address, time.time() + seconds))


@contextmanager
def _attacked(attacks: list[Attack], address: str, seconds: float) -> Iterator[list[int]]:
    """Meanwhile; afterwards it is known how many connections were made."""
    connections, made = [], _Spawned.SimpleQueue()
    all_of_them = [one for one in attacks for _ in range(max(1, PROCESSES // len(attacks)))]
    ready = _Spawned.Barrier(len(all_of_them) + 1)
    processes = [
        _Spawned.Process(target=_attack, args=(one, address, seconds, ready, made))
        for one in all_of_them
    ]
    for process in processes:
        process.start()
    ready.wait(60)
    yield connections
    for process in processes:
        process.join(seconds + 60)
        connections.append(made.get() if process.exitcode == 0 else -1)


# --- good clients ---------------------------------------------------------------------------------


class _Clients:
    """Who works meanwhile: over gRPC, over the Unix socket, and by a connection for each time."""

    def __init__(self, servers: LocalServers) -> None:
        self._servers = servers
        self.seconds: dict[str, list[float]] = {"gRPC": [], "a socket": [], "connecting": []}
        self.wrong: list[str] = []

    @contextmanager
    def at_work(self) -> Iterator[None]:
        over = threading.Event()
        (address,), token = self._servers.addresses, self._servers.token
        with (
            Client([FarAway(address, token=token, near=False)]) as far,
            Client.connect([address], token=token) as near,
        ):
            works = {
                "gRPC": self._reads(far),
                "a socket": self._reads(near),
                "connecting": self._connect,
            }
            threads = [
                threading.Thread(target=self._work, args=(*work, over)) for work in works.items()
            ]
            for thread in threads:
                thread.start()
            yield
            over.set()
            for thread in threads:
                thread.join()

    def _reads(self, client: Client) -> Callable[[], bool]:
        client.write(x := client.new_id(), _SPACE, _VALUES)
        return lambda: np.array_equal(client.read(x, array_type(_SPACE, float)), _VALUES)

    def _connect(self) -> bool:
        (address,), token = self._servers.addresses, self._servers.token
        with Client.connect([address], token=token) as client:
            return self._reads(client)()

    def _work(self, kind: str, work: Callable[[], bool], over: threading.Event) -> None:
        while not over.wait(_EACH_SECONDS):
            began = time.perf_counter()
            try:
                if not work():
                    self.wrong.append(f"{kind}: other values")
            except Exception as error:  # noqa: BLE001 - whatever it is, it should not be
                self.wrong.append(f"{kind}: {error!r}")
            self.seconds[kind].append(time.perf_counter() - began)

    @property
    def late(self) -> int:
        """Of the three kinds, those that were kept waiting."""
        return sum(bool(np.quantile(one, 0.99) > LATE_SECONDS) for one in self.seconds.values())

    def __str__(self) -> str:
        return ", ".join(
            f"{kind} {1e3 * np.median(seconds):.1f} / {1e3 * np.quantile(seconds, 0.99):.0f} / "
            f"{1e3 * max(seconds):.0f} ms of {len(seconds)}"
            for kind, seconds in self.seconds.items()
            if seconds
        )


def _row(what: str, attacks: list[Attack], seconds: float) -> Row:
    with launch_local(1, memory=MEMORY) as servers:
        (pid,), alone, beside = servers.pids, _Clients(servers), _Clients(servers)
        with alone.at_work():
            time.sleep(min(seconds, 10.0))
        before = resident(pid)
        with beside.at_work():
            with _attacked(attacks, servers.addresses[0], seconds) as connections:
                pass
            (now,) = servers.pids
            grown = resident(pid) / before
    wrong = list(dict.fromkeys(beside.wrong))[:3]
    failures = len(beside.wrong) + beside.late + int(grown >= MOST_GROWTH) + int(now != pid)
    failures += int(min(connections) <= 0)
    detail = (
        f"{before >> 20} MiB before, {grown:.2f} of it after {seconds:.0f} s; clients "
        f"(median / 99 % / slowest) {beside}; without strangers {alone}"
    )
    return Row(what, sum(connections), failures, "; ".join((*wrong, detail)))
