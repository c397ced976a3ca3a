"""A parameter server without its sockets: requests in, replies out.

The same object stands behind the in-process transport and the gRPC server.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from ps_backend.arguments import NO_EXTENSIONS, Extensions, default_budget
from ps_backend.durability.stores import Store, open_store
from ps_backend.errors import EpochFenced, OutOfBudget, PSError
from ps_backend.kernels.reproducible import digests
from ps_backend.metrics import Sample, escape_label
from ps_backend.program.sweep import SweepCall
from ps_backend.server.bounds import verify_sender
from ps_backend.server.commands.command import Command, Payload, Response
from ps_backend.server.commands.programs import run_small
from ps_backend.server.commands.table import BUILT_IN, NAMED, load, table_of
from ps_backend.server.fair_lock import FairLock
from ps_backend.server.meters import SLOW_SECONDS, Meters, process_samples
from ps_backend.server.peers import Peers
from ps_backend.server.sessions import VERSION, Host, ServerSession, Sessions
from ps_backend.server.state.barriers import WaitingRoom
from ps_backend.server.state.memory import Memory
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import (
    Abandoned,
    PayloadBroken,
    UnknownSweep,
    UnknownView,
    encode_error,
)


class Incarnation:
    """The number of a server's life, and the moment until which it may answer.

    Whoever keeps servers running numbers their lives from 1, and clients say which life they mean.
    A process that was cut off or stopped, while another one took its place, may be there again, or
    still: it must do nothing any more. So it may answer for a limited time only, which whoever
    keeps it extends (as long as nobody else may have been started), by the clock
    ``time.monotonic``, which all processes of a machine share. Number 0 is of a server that nobody
    replaces: it answers all, for ever.
    """

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.until = math.inf
        """It may answer until then."""

    def refuse(self, meant: int, now: float) -> None:
        """Raise ``EpochFenced`` if a request that means life ``meant`` (0: any) must not be done.

        To be asked where ``meant`` is another number, or ``now`` is late.
        """
        if now > self.until:
            raise self.ended()
        if self.number and meant and meant != self.number:
            raise EpochFenced(
                f"the request is for incarnation {meant} of the server, but this is incarnation "
                f"{self.number}"
            )

    def ended(self) -> EpochFenced:
        """What is said to whom it may not answer any more."""
        return EpochFenced(
            f"life {self.number} of this server is over, or was not confirmed in time: another may "
            "have taken its place"
        )


_LOG = logging.getLogger(__name__)

_SOON = 1e-3
"""0 would say that the server stays."""
_OF_SERVER = frozenset(("open", "close", "status"))
"""Requests that are no command of a session."""
_EXPECTED = (PSError, ValueError, TypeError, IndexError, NotImplementedError, MemoryError)


class Service:
    """The sessions of one server and the memory they share. Thread-safe."""

    def __init__(
        self,
        *,
        memory: int | None = None,
        lease: float = math.inf,
        commands: Iterable[Command] = (),
        life: Incarnation | None = None,
        open_store: Callable[[str], Store] = open_store,
        extensions: Extensions = NO_EXTENSIONS,
    ) -> None:
        """``memory``: budget in bytes; 80 % of this machine's if not given.

        ``lease`` of sessions that ask for no other, in seconds. It runs by ``let_pass``.
        ``commands``: what ``Client.call`` may ask for besides those that every server knows.
        ``life``: of a server that others may replace, or have.
        ``open_store``: the store at a path or URL that a client names; by default any.
        ``extensions``: what the operator adds or chooses. ``ValueError`` where a plug-in cannot be
        had.
        """
        self.life = Incarnation() if life is None else life
        self.memory = Memory(default_budget(1) if memory is None else memory)
        self.meters = Meters()
        self.ready = True
        """Whether it takes requests: not once it ends."""
        self.peers = Peers()
        """The other servers, as those of a session fetch from each other."""
        loaded = load(extensions.plugins)
        self._host = Host(
            self.memory,
            self.meters,
            WaitingRoom(),
            FairLock(),
            self.peers,
            open_store,
            loaded,
            extensions,
        )
        self.sessions = Sessions(self._host, lease)
        self._registered = table_of(chain(NAMED, commands, loaded.commands))

    def handle(self, request: pb.Request, payload: Payload) -> Response:
        """Answer one request. Never raises: failures become replies that carry them.

        Frees that came along are applied even if the request fails.
        """
        began = time.monotonic()
        message = request.WhichOneof("body") or ""
        table, name = BUILT_IN, message
        if message == "custom":
            table, name = self._registered, request.custom.name
        command = table.get(name)
        life = self.life
        try:
            if request.life != life.number or began > life.until:
                self._check_life(request, began)
            if command is None:
                response = Response(self._of_server(message, request))
            else:
                command.verify(request, message)
                response = self._of_session(command, request, payload)
        except Exception as error:  # noqa: BLE001 - the boundary: whatever went wrong, the client hears of it
            response = Response(self._failure(error))
        ended = time.monotonic()
        if ended > life.until:  # the process was stopped meanwhile
            response = Response(self._failure(life.ended()))
        if self.sessions.leaves_at != math.inf:
            response.reply.leaves_in = max(_SOON, self.sessions.leaves_at - ended)
        waits, reply, seconds = command is not None and command.waits, response.reply, ended - began
        if command is None and message not in _OF_SERVER:
            name = "unknown"
        failed = reply.HasField("error")
        self.meters.count(name, seconds, payload.size, reply.payload, failed=failed, waits=waits)
        if not waits:
            reply.seconds = seconds
            if seconds > SLOW_SECONDS:
                size = payload.size + reply.payload
                self.meters.note_slow(name, seconds, size, request.session)
        return response

    def _check_life(self, request: pb.Request, now: float) -> None:
        """Raise ``EpochFenced`` if the request must not be done in this life, or any more.

        Who has joined a session, and knows of a newer life, is believed for that session alone: it
        must not end the work of others.
        """
        if 0 < self.life.number < request.life:
            self.sessions.fence(request)
        self.life.refuse(request.life, now)

    def _of_server(self, message: str, request: pb.Request) -> pb.Reply:
        verify_sender(request)
        match message:
            case "open":
                return pb.Reply(opened=self.sessions.open(request))
            case "close":
                self.sessions.close(request)
                return pb.Reply()
            case "status":
                status = self.sessions.status(request)
                if request.status.metrics:
                    self._add_metrics(status)
                return pb.Reply(status=status)
            case "custom":
                raise PSError(
                    f"this server has no command {request.custom.name[:40]!r}: load its module "
                    "with distvec serve --plugin package.module, or pass it to "
                    "Service(commands=...)"
                )
        raise PSError(
            "this server does not support the request; install the same distvec on the client "
            "and the servers"
        )

    def _of_session(self, command: Command, request: pb.Request, payload: Payload) -> Response:
        session = self.sessions.get(request.session)
        if session.fenced:
            raise self.life.ended()
        session.receive(request)
        try:
            with session.lease:
                if command.repeatable:
                    return command.run(session, request, payload)
                return Response(self._recorded(command, session, request, payload))
        finally:
            if session.is_taken:  # meanwhile: the sender is no client any more
                session.admit(request.client, request.key)

    def _recorded(
        self, command: Command, session: ServerSession, request: pb.Request, payload: Payload
    ) -> pb.Reply:
        def run() -> tuple[pb.Reply, bool]:
            if not command.keeps_undo:
                session.rounds.settle()
            try:
                return command.run(session, request, payload).reply, True
            except (UnknownSweep, UnknownView, PayloadBroken, Abandoned) as error:
                return _encode_error(error), False  # the client will repeat it, in full
            except Exception as error:  # noqa: BLE001 - as in handle
                return self._failure(error), True

        return session.reply_log(request.client).once(request.sequence, request.settled, run)

    def run_small(
        self, sender: pb.Request, calls: Sequence[SweepCall], frees: Sequence[int]
    ) -> list[npt.NDArray[np.generic]] | None:
        """Free, then run a program of a client in this process: its partial results.

        None, and nothing done, unless this server has run each of the calls before, and they are
        small: a message says all of it. Raises as the command does, and then no output exists.
        """
        session = self.sessions.get(sender.session)
        if session.fenced or self.life.number:
            return None
        session.admit(sender.client, sender.key)
        found = session.call_cache.find_calls(calls, is_alone=session.servers == 1)
        if found is None:
            return None
        if frees:
            session.free(frees)
        if not found:
            return []
        session.rounds.settle()
        began = time.monotonic()
        with session.lease:
            partials = run_small(session, found)
        self.meters.count("run", time.monotonic() - began, 0, 0, failed=False, waits=False)
        return partials

    def attached(self, request: pb.Request) -> dict[str, object]:
        """What is held for the clients of a session; raises unless the sender is one of them."""
        session = self.sessions.get(request.session)
        session.admit(request.client, request.key)
        return session.attached

    def all_attached(self) -> list[dict[str, object]]:
        """The same of all sessions."""
        return [session.attached for session in self.sessions.all()]

    def let_pass(self, seconds: float) -> None:
        """So much time has passed: sessions whose lease is over are closed, unused memory freed."""
        self.sessions.let_pass(seconds)
        self.memory.let_pass(seconds)

    def status(self) -> pb.Status:
        """What this server holds right now."""
        return self.sessions.status()

    def _add_metrics(self, status: pb.Status) -> None:
        for one in self.samples():
            status.samples.add(name=one.name, value=one.value, labels=one.labels)
        for slow in self.meters.slow:
            status.slow.add(
                ended=slow.ended,
                command=slow.command,
                seconds=slow.seconds,
                bytes=slow.nbytes,
                session=slow.session,
            )

    def samples(self) -> Iterator[Sample]:
        """The metrics of this server: those of ``ps_backend.metrics.SERVER``."""
        yield from self.meters.samples()
        turns, memory = self._host.fair_lock, self.memory
        yield Sample("distvec_turn_waits_total", turns.waits)
        yield Sample("distvec_turn_wait_seconds_total", turns.wait_seconds)
        yield Sample("distvec_turns_queued", turns.queued)
        yield Sample("distvec_waiting", self._host.room.waiting)
        for kind in ("used", "kept", "peak"):
            yield Sample("distvec_memory_bytes", getattr(memory, kind), f'kind="{kind}"')
        yield Sample("distvec_memory_budget_bytes", memory.budget)
        yield Sample("distvec_memory_refused_total", memory.refused)
        sessions = self.sessions.all()
        yield Sample("distvec_buffers", sum(len(one.store) for one in sessions))
        spaces = [space for one in sessions for space in list(one.keyed.by_number.values())]
        yield Sample("distvec_keys", sum(len(space.index) for space in spaces))
        yield Sample("distvec_sessions", len(sessions))
        left = min((one.lease.left for one in sessions), default=math.inf)
        yield Sample("distvec_session_lease_min_seconds", left)
        yield Sample("distvec_incarnation", self.life.number)
        yield Sample("distvec_ready", self.ready)
        build = {"version": VERSION, "bits": digests().bits, "functions": digests().functions}
        labels = ",".join(f'{name}="{escape_label(text)}"' for name, text in build.items())
        yield Sample("distvec_build_info", 1, labels)
        yield from process_samples(self.sessions.started_at)

    def _failure(self, error: Exception) -> pb.Reply:
        if isinstance(error, OutOfBudget):
            self.meters.note_event("out_of_budget")
        if not isinstance(error, _EXPECTED):
            self.meters.note_event("internal_error")
            _LOG.error("a request failed", exc_info=error)
        return _encode_error(error)

    def drain(self, seconds: float) -> None:
        """Take no new sessions; replies tell clients when the server will be gone."""
        self.ready = False
        self.meters.note_event("draining")
        self.sessions.leaves_at = time.monotonic() + seconds

    def end_waits(self) -> None:
        """Answer all that wait or compute, with what there is; from now on nothing does."""
        self.ready = False
        self._host.room.close()
        self._host.fair_lock.stopped = True
        for session in self.sessions.all():
            session.barriers.wake_all()
        self.peers.close()


def _encode_error(error: Exception) -> pb.Reply:
    """The reply that says so.

    Futures keep errors, and errors the frames that they came through, where the futures are: such a
    circle would hold a failed program's memory until the next collection of garbage.
    """
    reply = encode_error(error)
    link: BaseException | None = error
    while link is not None and link.__traceback__ is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return reply
