"""The other servers of a session, and what this one fetches from them while it runs a program.

A fetch needs neither a turn nor a thread that a program of the other server may hold, so servers
that fetch from each other at once do not wait for each other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any, Protocol

from ps_backend.errors import EpochFenced, PeerLost, PSError, SessionUnknown
from ps_backend.transport import Busy, Unavailable
from ps_backend.transport.base import Answer
from ps_backend.transport.timeouts import REPEAT_SECONDS
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import GoneBefore, Parts, decode_error

_LOOK_SECONDS = 0.05
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_MOST_CONNECTIONS = 1024


class Peer(Protocol):
    """A connection to another server: what of a transport is needed here."""

    def call(
        self, request: pb.Request, payload: Parts = (), into: memoryview | None = None
    ) -> Answer:
        """Send and wait, on the calling thread."""

    def promise(
        self, request: pb.Request, payload: Parts = (), into: memoryview | None = None
    ) -> Future[Answer]:
        """Send now; the answer will be in the future."""

    def close(self) -> None:
        """End the connection."""


Connect = Callable[[str], Peer]
"""Connects to the server at an address."""


class Peers:
    """The connections of one server to others, each opened when it is needed. Thread-safe."""

    def __init__(self) -> None:
        self._connect: Connect | None = None
        self._transports: dict[str, Peer] = {}
        self._former: list[Peer] = []
        self._closed = False
        self._lock = threading.Lock()

    def reach_by(self, connect: Connect) -> None:
        """How others are reached."""
        self._connect = connect

    def at(self, address: str) -> Peer:
        """The connection to the server at ``address``."""
        with self._lock:
            found = self._transports.get(address)
            if found is None:
                if self._connect is None or self._closed:
                    raise PSError(
                        f"this server cannot connect to the server at {address}: it was stopped, "
                        "or runs alone"
                    )
                if len(self._transports) >= _MOST_CONNECTIONS:
                    self._transports.pop(next(iter(self._transports))).close()
                found = self._transports[address] = self._connect(address)
            return found

    def drop(self, address: str) -> None:
        """End the connection to ``address``, where nobody answers."""
        with self._lock:
            found = self._transports.pop(address, None)
        if found is not None:
            found.close()

    def renew(self) -> None:
        """Open others from now on. Those of now end at the next time: they may be in use."""
        with self._lock:
            former, self._former = self._former, [*self._transports.values()]
            self._transports.clear()
        for transport in former:
            transport.close()

    def close(self) -> None:
        """End all connections; there will be no others."""
        with self._lock:
            self._closed = True
            for transport in (*self._transports.values(), *self._former):
                transport.close()
            self._transports.clear()


class Neighbours:
    """The servers of a session, as a program reaches them in the name of the client that sent it.

    ``messages`` and ``bytes`` count requests, and their payload both ways.
    """

    def __init__(self, peers: Peers, request: pb.Request) -> None:
        self._peers, self._sender = peers, request
        self._over = threading.Event()
        self.messages = self.bytes = 0

    def ask(
        self,
        server: int,
        kind: str,
        body: Any,
        into: memoryview,
        *,
        payload: Parts = (),
        keep: object = None,
    ) -> Asked:
        """Send a request of that kind to ``server``; its answer will come ``into`` memory that
        ``keep`` holds."""
        sender, addresses, lives = self._sender, self._sender.run.peers, self._sender.run.lives
        if server >= len(addresses):
            raise PSError(
                f"the program has the addresses of {len(addresses)} servers, but not of server "
                f"{server}"
            )
        request = pb.Request(
            session=sender.session, client=sender.client, key=sender.key, **{kind: body}
        )
        if server < len(lives):
            request.life = lives[server]
        self.messages += 1
        self.bytes += len(into) + sum(map(len, payload))
        asked = Asked(keep)
        arguments = (asked, addresses[server], request, payload, into)
        promise = self._peers.at(addresses[server]).promise(request, payload, into)
        promise.add_done_callback(lambda promise: self._came(promise, arguments))
        return asked

    def _came(self, promise: Future[Answer], arguments: _Arguments) -> None:
        """The first answer is here; where there is none, a thread goes on asking."""
        asked, address, *_ = arguments
        try:
            _verify(promise.result().reply, address)
            asked.answer.set_result(None)
        except Unavailable:
            thread = threading.Thread(target=self._fetch, args=arguments, name="distvec-fetch")
            thread.daemon = True
            thread.start()
        except Exception as error:  # noqa: BLE001 - handed over to who waits
            asked.answer.set_exception(error.with_traceback(None))  # whose frames hold the answer

    def leave(self) -> None:
        """Nobody waits for answers any more."""
        self._over.set()

    def _fetch(
        self,
        asked: Asked,
        address: str,
        request: pb.Request,
        payload: Parts,
        into: memoryview,
    ) -> None:
        try:
            self._deliver(address, request, payload, into)
            asked.answer.set_result(None)
        except Exception as error:  # noqa: BLE001 - handed over to who waits
            asked.answer.set_exception(error.with_traceback(None))  # whose frames hold the answer

    def _deliver(self, address: str, request: pb.Request, payload: Parts, into: memoryview) -> None:
        deadline, pause = float("inf"), _FIRST_PAUSE
        while True:
            try:
                reply = self._peers.at(address).call(request, payload, into).reply
                break
            except Unavailable as error:
                now = time.monotonic()
                is_there = isinstance(error, Busy)
                deadline = float("inf") if is_there else min(deadline, now + REPEAT_SECONDS)
                if now >= deadline or self._over.wait(min(pause, deadline - now)):
                    self._peers.drop(address)
                    raise PeerLost(f"server {address} does not answer ({error})") from None
                pause = min(2 * pause, _LONGEST_PAUSE)
        _verify(reply, address)


def _verify(reply: pb.Reply, address: str) -> None:
    """Raise the error that another server reports."""
    if reply.HasField("error"):
        failure = decode_error(reply.error, address)
        if isinstance(
            failure, SessionUnknown | EpochFenced | GoneBefore
        ):  # of the other, not of us
            raise PeerLost(f"server {address} has lost its data: {failure}")
        raise failure


class Asked:
    """An answer on its way, which keeps the memory that it comes into until it has come."""

    def __init__(self, keep: object) -> None:
        self.answer: Future[None] = Future()
        self._keep = keep

    def wait(self, look: Callable[[], None]) -> None:
        """Until it has come, calling ``look``, which may raise, every now and then.

        Raises ``PeerLost``, or what the other server reports.
        """
        while not wait_for((self.answer,), _LOOK_SECONDS).done:
            look()
        self.answer.result()


_Arguments = tuple[Asked, str, pb.Request, Parts, memoryview]


def wait_for_all(asked: Iterable[Asked], look: Callable[[], None]) -> None:
    """Until all have come."""
    for one in asked:
        one.wait(look)
