"""The lines from one client to all servers of a session: opening, taking over, sending, closing."""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self

from ps_backend.arguments import check_lease
from ps_backend.client.counters import Counters
from ps_backend.client.fan_out import FanOut, Replies
from ps_backend.client.programs import Dispatcher, Ended
from ps_backend.client.requests import Messages, Requests
from ps_backend.client.server_link import Diagnose, Message, Reopen, RetryPolicy, ServerLink
from ps_backend.client.status import ServerStatus, ask_status, decode_status
from ps_backend.errors import PSError, SessionFenced
from ps_backend.transport import Transport
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import (
    COUNTER_BITS,
    join_by,
    new_key,
    new_secret,
    session_name,
    split_secret,
)

_RENEWALS = 4
"""In the time of a lease, by an idle client that opened the session."""

_ATTEMPTS = 8
_PAUSE_SECONDS = 0.2
"""To take over a session: further attempts follow after a pause by chance."""


def renew_in_background(
    lease: float, owner: object, renew: Callable[[], None], ended: threading.Event
) -> None:
    """Call ``renew`` a few times in each ``lease``, until ``ended`` or nobody holds ``owner``.

    ``renew`` must not hold the owner, either. The thread sleeps in between; a fork has none.
    """
    alive = weakref.ref(owner, lambda _: ended.set())

    def run() -> None:
        while not ended.wait(lease / _RENEWALS):
            if alive() is not None:
                renew()

    threading.Thread(target=run, name="distvec-lease", daemon=True).start()


def take_over(
    send: Callable[[Messages], Replies], requests: Requests, generations: Sequence[int]
) -> tuple[Replies, int]:
    """Become the driver of the session on all servers; the replies, and the number of the driver.

    Two messages a server. Whoever comes last is the driver: of two that come at once each may get
    some servers first, and then both try again, after a pause by chance. Raises ``SessionUnknown``,
    ``SessionFenced`` if another one was faster again and again.
    """

    def attach(epoch: int) -> Messages:
        return {
            server: Message(requests.attach(server, generation, epoch))
            for server, generation in enumerate(generations)
        }

    for attempt in range(1, _ATTEMPTS + 1):
        known = send(attach(0))
        epoch = 1 + max(reply.opened.epoch for reply in known.values())
        try:
            return send(attach(epoch)), epoch
        except SessionFenced:
            if attempt == _ATTEMPTS:
                raise
        time.sleep(random.uniform(0.0, _PAUSE_SECONDS))
    raise SessionFenced(
        "other drivers have taken over this session at the same time; stop them, then call "
        "distvec.attach(name, addresses, token=...) again"
    )


_NUMBER_BITS = 63 - COUNTER_BITS


_OBSERVER = RetryPolicy(5.0)

_OF_A_SESSION = (
    "client_id", "engine", "secret", "servers", "session",
    "_ended", "_fan_out", "_numbers", "_programs", "_requests", "_transports",
)  # fmt: skip
"""The attributes of a connection that belong to its session on the servers of now."""


class Connection:
    """A client's connection to its servers, without what it can ask of them."""

    def __init__(
        self,
        transports: Sequence[Transport],
        *,
        session: str | None = None,
        retry: RetryPolicy | None = None,
        patience: RetryPolicy | None = None,
        diagnose: Diagnose | None = None,
        lease: float | None = None,
        titled: str | None = None,
        attach: bool = False,
        former: Connection | None = None,
    ) -> None:
        """Open a session over ``transports``, or join that with the secret ``session``.

        ``titled``: the secret of a session with a title, which must be a new one; or one that is
        there, to be taken over, with ``attach``. One message per server, two with ``attach``.
        ``retry``: how long a silent server is asked again; ``patience``: the same while opening.
        ``lease``: how many seconds the session outlives its opener, the servers' default if not
        given. ``diagnose`` says what is known of a server, by its address, when it does not answer.
        ``former``: whose arrays are to come here, under their ids; both count in its counters.
        """
        if not transports:
            raise ValueError("a client needs the address of at least one server")
        self.servers = len(transports)
        self.client_id = uuid.uuid4().hex
        secret, epoch = split_secret(titled or session or new_secret())
        self.session = session_name(secret)
        """The session's name, which is no secret."""
        self.origin: str = self.session if former is None else former.origin
        """The name of the first session whose arrays, with their ids, have come here."""
        self.counters: Counters = Counters(self.servers) if former is None else former.counters
        if former is not None:
            self.counters.resize(max(former.servers, self.servers))
        self._owner = session is None
        self._pid = os.getpid()
        self._closed = False
        self.closed_message = "the client is closed; connect again"
        """What ``PSError`` says to those who use it all the same; its owner may know better."""
        self._transports = transports
        self._requests = Requests(
            self.session,
            self.client_id,
            self.servers,
            key=new_key(),
            secret=secret,
            lease=0.0 if lease is None else check_lease(lease),
            epoch=epoch,
            first_number=0 if former is None else former._number_of_another(),
        )
        self._ended = threading.Event()
        links = self._links(patience or RetryPolicy(), diagnose, self._requests.open_again)
        first = FanOut(links, self.counters)
        if attach:
            generations = [transport.generation for transport in transports]
            send = partial(first.send, recorded=False)
            opened, epoch = take_over(send, self._requests, generations)
        else:
            opened, epoch = self._open(first, fresh=titled is not None), 1
        self.secret = secret if titled is None else join_by(secret, epoch)
        """Who knows it may join the session, and do whatever this client may."""
        self.engine = opened[0].opened.engine
        """What runs the kernels of the servers: one of ``arguments.ENGINES``."""
        # the first server counts the clients of a session, so no two make the same buffer ids
        number = opened[0].opened.number
        if number >> _NUMBER_BITS:
            raise PSError(
                "the first server of the session was replaced too often; open a new session"
            )
        self._numbers = itertools.count((number << COUNTER_BITS) + 1)  # 0 names none
        reopen = partial(_open_again, self._requests, self._numbers)
        links = self._links(retry or RetryPolicy(), diagnose, reopen)
        self._fan_out = FanOut(links, self.counters)
        self._programs = Dispatcher(self._requests, self._fan_out, self.counters)
        if former is None:
            self.counters.reset()
        leases = [reply.opened.lease for reply in opened.values() if reply.opened.lease]
        if self._owner and leases:
            renew = partial(_renew, tuple(transports), self._requests)
            renew_in_background(min(leases), self._fan_out, renew, self._ended)

    def _number_of_another(self) -> int:
        """A number that no client of the session has had. Two messages to the first server."""
        requests = self._requests.of_another(uuid.uuid4().hex, new_key())
        links = self._links(RetryPolicy(), None, requests.open_again)
        fan_out = FanOut(links[:1], self.counters)
        request = requests.open(0, self._transports[0].generation, create=False)
        replies = fan_out.send({0: Message(request)}, recorded=False)
        fan_out.send(requests.each([0], "close", session=False), recorded=False)
        return replies[0].opened.number

    def exchange(self, other: Connection) -> None:
        """Have the session of ``other``, and ``other`` this one: it is closed with it. No message.

        The journal, and where the session has a checkpoint, stay here. No other thread may use
        either of the two meanwhile.
        """
        for name in _OF_A_SESSION:
            mine, others = getattr(self, name), getattr(other, name)
            setattr(self, name, others)
            setattr(other, name, mine)
        self._fan_out.succeed(other._fan_out)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the servers are, or were when they answered last."""
        return tuple(transport.address for transport in self._transports)

    @property
    def lost(self) -> bool:
        """Whether a server did not answer the last time it was asked. No message."""
        return any(link.lost for link in self._fan_out.links)

    @property
    def is_replaced(self) -> bool:
        """Does another server take the place of one that is lost?"""
        return all(transport.is_replaced for transport in self._transports)

    def greet(self) -> None:
        """Ask all servers for a sign, and open the session on those that took the place of others.

        One message a server. Raises ``ServerLost``.
        """
        self._send(self._requests.to_all("renew"), recorded=False)

    @property
    def leaving(self) -> dict[str, float]:
        """By address of each server that was told to end the seconds until it will be gone.

        As of its newest reply; no message is sent.
        """
        now = time.monotonic()
        return {
            link.transport.address: max(0.0, link.leaving[1] - now)
            for link in self._fan_out.links
            if link.leaving is not None and link.leaving[0] == link.transport.generation
        }

    def observe(self) -> list[ServerStatus]:
        """Return the state and the metrics of each server, for an observer in another thread.

        One message a server, which the counters leave out. Awaits no program, so it raises no error
        of one; ``ServerLost`` if a server does not answer within some seconds.
        """
        self._check_usable()
        statuses = ask_status(self._transports, _OBSERVER, metrics=True)
        ways = [transport.bulk_way for transport in self._transports]
        return list(map(decode_status, self.addresses, statuses, ways))

    def status(self) -> list[ServerStatus]:
        """What each server holds. One message a server."""
        replies = self._send(self._requests.to_all("status"), recorded=False)
        ways = [transport.bulk_way for transport in self._transports]
        statuses = [replies[k].status for k in range(self.servers)]
        return list(map(decode_status, self.addresses, statuses, ways))

    def wait(self) -> None:
        """Wait for programs that were run with ``wait=False``; raises their first error."""
        self._check_usable()
        self._fan_out.await_all()

    @property
    def is_closed(self) -> bool:
        """Whether it was disconnected: then it holds nothing any more."""
        return self._closed

    def close(self, *, leave: bool = False) -> None:
        """Disconnect. Whoever opened the session ends it too: its buffers are freed. Idempotent.

        ``leave``: the session goes on, until its lease is over.
        """
        if self._closed:
            return
        self._closed = True
        self._fan_out.journal = None  # what is lost now need not come back
        self._ended.set()
        try:
            if os.getpid() == self._pid:
                self._fan_out.await_all(quietly=True)
                there = [k for k, link in enumerate(self._fan_out.links) if not link.lost]
                ends = self._owner and not leave
                messages = self._requests.each(there, "close", session=ends)
                self._fan_out.send(messages, recorded=False)
        except PSError:
            pass  # the server is gone, and what it held with it
        finally:
            for transport in self._transports:
                transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        name = type(self).__name__
        return f"<{name} of {', '.join(self.addresses)}, session {self.session[:8]}, {state}>"

    def _open(self, fan_out: FanOut, *, fresh: bool) -> Replies:
        """Open or join on all servers, or on none; ``fresh``: only what is on none of them."""
        there: list[int] = []
        messages = {
            server: Message(self._requests.open(server, transport.generation, create=self._owner))
            for server, transport in enumerate(self._transports)
        }
        for message in messages.values():
            message.request.open.fresh = fresh
        try:
            return fan_out.send(
                messages, recorded=False, after=lambda replies, _: there.extend(replies)
            )
        except Exception:
            with suppress(PSError):
                messages = self._requests.each(there, "close", session=self._owner)
                fan_out.send(messages, recorded=False)
            raise

    def new_id(self) -> int:
        """A buffer id that nobody else in the session uses. No message."""
        return next(self._numbers)

    def _links(
        self, retry: RetryPolicy, diagnose: Diagnose | None, reopen: Reopen
    ) -> list[ServerLink]:
        return [
            ServerLink(
                transport,
                server,
                self.counters,
                retry=retry,
                diagnose=diagnose,
                reopen=reopen,
            )
            for server, transport in enumerate(self._transports)
        ]

    def _send(
        self,
        messages: Messages,
        *,
        recorded: bool = True,
        made: Sequence[int] = (),
        ended: Ended | None = None,
        answered: Callable[[Replies], None] | None = None,
    ) -> Replies:
        """Send and wait; if that fails on one server, what was ``made`` on others is freed.

        ``answered`` is told of the replies that came, also where another server failed.
        """
        self._check_usable()

        def take_back(replies: Replies, error: Exception | None) -> None:
            if ended is not None:
                ended(error)
            if answered is not None:
                answered(replies)
            if error is not None:
                self._fan_out.take_back(made, replies)

        return self._fan_out.send(messages, recorded=recorded, after=take_back)

    def _check_usable(self) -> None:
        if self._closed:
            raise PSError(self.closed_message)
        if os.getpid() != self._pid:
            raise PSError("this connection was opened before a fork; connect again in this process")


def _open_again(
    requests: Requests, numbers: Iterator[int], server: int, generation: int
) -> pb.Request:
    return requests.open_again(server, generation, newest=next(numbers))


def _renew(transports: Sequence[Transport], requests: Requests) -> None:
    """Renew the lease of the session on all servers that answer."""
    for transport in transports:
        with suppress(PSError, ConnectionError, ValueError):  # gRPC's ValueError: closed just now
            transport.call(requests.request(renew={}))
