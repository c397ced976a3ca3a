"""Sessions on one server: each with its buffers, rounds, loops, sweeps and clients; who opens,
finds and ends them.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from ps_backend import limits
from ps_backend.arguments import NO_EXTENSIONS, Extensions, check_lease
from ps_backend.durability.stores import Store as FileStore
from ps_backend.errors import (
    InvalidProgram,
    OutOfBudget,
    PSError,
    ServerDraining,
    SessionExpired,
    SessionFenced,
    SessionUnknown,
)
from ps_backend.kernels import Kernel, compile_sweep
from ps_backend.kernels.reproducible import digests
from ps_backend.limits import check
from ps_backend.plugins import RowPlugin
from ps_backend.program.rules import verify_sweep
from ps_backend.program.spaces import Space
from ps_backend.program.sweep import Sweep
from ps_backend.program.types import Row, dtype_of, stored_type
from ps_backend.server.fair_lock import FairLock
from ps_backend.server.meters import Meters
from ps_backend.server.peers import Peers
from ps_backend.server.reply_log import ReplyLog
from ps_backend.server.state.barriers import Barriers, WaitingRoom
from ps_backend.server.state.call_cache import CallCache
from ps_backend.server.state.files import OwnFiles
from ps_backend.server.state.keyed.space import KeyedSpaces
from ps_backend.server.state.memory import Memory, Reservation
from ps_backend.server.state.rounds import Rounds
from ps_backend.server.state.store import LostBuffers, Part, Store
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import known_sweep, space_of
from ps_backend.wire.keyed import unknown_plugin
from ps_backend.wire.protocol import CLIENT_BITS, PROTOCOL, UnknownSweep, check_key, check_secret


class Lease:
    """The time that a session has left; as a context, a request at work. Thread-safe.

    It runs while the server does, by steps that the server counts: neither a clock that is set, nor
    a machine that sleeps, nor a server that was stopped for a while uses any of it up.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.idle = 0.0
        """Seconds since the end of the last request."""
        self.age = 0.0
        self._at_work = 0
        self._lock = threading.Lock()

    @property
    def left(self) -> float:
        """Seconds until it is over."""
        return max(0.0, self.seconds - self.idle)

    def __enter__(self) -> Self:
        """It does not run while a request of the session does, and is renewed by it."""
        with self._lock:
            self._at_work += 1
            self.idle = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._at_work -= 1
            self.idle = 0.0

    def run_down(self, seconds: float) -> bool:
        """So much time has passed; whether the lease is over."""
        with self._lock:
            self.age += seconds
            if not self._at_work:
                self.idle += seconds
            return self.idle > self.seconds


@dataclass(frozen=True, slots=True)
class Plugins:
    """The functions and commands that were found in modules."""

    plugins: Mapping[str, RowPlugin] = field(default_factory=dict)
    commands: tuple[Any, ...] = ()
    """Each a ``commands.command.Command``."""

    def plugin(self, name: str, signature: str) -> RowPlugin:
        """One by name; ``InvalidProgram`` where it is not there, or has another signature."""
        found = self.plugins.get(name)
        if found is None:
            raise InvalidProgram(unknown_plugin(name, self.plugins))
        if str(found.signature) != signature:
            raise InvalidProgram(
                f"the plug-in {name} has the signature ({found.signature}) on this server, but "
                f"was called as ({signature}): its version has changed; connect again"
            )
        return found


class Publications:
    """The lists of names that this server knows: the one that all servers have, and a newer one.

    A list has a number, and is published to all servers at once. Should its driver die meanwhile,
    some have the newest list and others the one before: the one that all of them have counts, so it
    is kept until the driver says that the next one has come everywhere. Thread-safe.
    """

    def __init__(self) -> None:
        self._lists: dict[int, pb.Publication] = {}
        self._over = False
        self._lock = threading.Lock()

    def publish(self, given: pb.Publication, settled: int) -> None:
        """Keep ``given``, and of all others only number ``settled``, which all servers have.

        Raises ``SessionFenced`` if another driver has taken them over.
        """
        with self._lock:
            if self._over:
                raise SessionFenced("another driver has taken over the session")
            before = self._lists.get(settled)
            self._lists = {given.number: given}
            if before is not None:
                self._lists[settled] = before

    def hand_over(self) -> Publications:
        """The same for another driver; here nothing is published any more."""
        heirs = Publications()
        with self._lock:
            self._over = True
            heirs._lists = dict(self._lists)
        return heirs

    def all(self) -> list[pb.Publication]:
        """Each list."""
        with self._lock:
            return list(self._lists.values())

    @property
    def buffers(self) -> Iterable[int]:
        """The ids of what has a name in one of the lists."""
        return {array.buffer for one in self.all() for array in one.arrays}


_MOST_REMEMBERED = 4096
_SESSION_BYTES = 5120
_CLIENT_BYTES = 3072
"""Counted for a session, and for each of its clients, besides what they keep here."""
_VALUE_BYTES = 512
_KERNEL_BYTES = 1024
"""Counted for each value, link and reduction of a sweep that is remembered, and of a kernel."""

_BY = " by "

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(slots=True)
class Host:
    """What the sessions of a server share."""

    memory: Memory
    meters: Meters
    room: WaitingRoom
    fair_lock: FairLock
    peers: Peers
    open_store: Callable[[str], FileStore]
    """The store of a URL that a client names, or an error if that is not for clients."""
    plugins: Plugins = field(default_factory=Plugins)
    """Loaded from the modules that ``extensions`` names."""
    extensions: Extensions = NO_EXTENSIONS
    """Settings of this server that commands read."""


@dataclass(frozen=True, slots=True)
class _Member:
    number: int
    replies: ReplyLog
    kept: Reservation
    key: bytes


class ServerSession:
    """What one session has on this server, which is number ``index`` of its ``servers``."""

    def __init__(
        self,
        name: str,
        index: int,
        servers: int,
        host: Host,
        first_number: int,
        lease: Lease,
    ) -> None:
        """``first_number``: of its clients, all of which get other numbers."""
        self.epoch = 1
        """How many drivers it has had; only one with a title has several."""
        self.name = name
        self.index = index
        self.servers = servers
        self.closed = False
        self.is_taken = False
        """Has another driver taken it over?"""
        self.fenced = False
        """A client has said that another server has taken the place of this one."""
        self.lease = lease
        self.host = host
        self.store = Store(host.memory)
        self.keyed = KeyedSpaces(self.store)
        self.rounds = Rounds(host.memory)
        self.publications = Publications()
        self.files = OwnFiles()
        self.barriers = Barriers(host.room, host.memory)
        self.call_cache = CallCache(host.memory)
        self._memory = host.memory
        self.attached: dict[str, object] = {}
        """What is held for a client besides, by ``attachment``: the memory that is shared."""
        self._kept = [host.memory.reserve(_SESSION_BYTES, "a new session")]
        self._members: dict[str, _Member] = {}
        self._numbers = iter(range(first_number, first_number + (1 << CLIENT_BITS)))
        self._sweeps: dict[str, tuple[Sweep, Reservation]] = {}
        self._parts: dict[tuple[Space, str, Row], Part] = {}
        self._kernels: dict[tuple[str, int], tuple[Kernel, Reservation]] = {}
        self._lock = threading.Lock()

    def join(self, client: str, key: bytes) -> int:
        """Admit ``client`` and return its number in the session; joining twice is joining once.

        Its requests will carry ``key``. Raises ``AuthenticationError`` if another one has its name.
        """
        with self._lock:
            if client in self._members:
                check_key(self._members[client].key, key)
            else:
                number = next(self._numbers, None)
                if number is None:
                    raise PSError("too many clients have joined the session; open a new session")
                kept = self._memory.reserve(_CLIENT_BYTES, "another client of the session")
                self._members[client] = _Member(number, ReplyLog(self._memory), kept, key)
            return self._members[client].number

    def pin_name(self, client: str, name: str) -> str:
        """Under which buffers are kept for ``client``, as long as that is here."""
        return f"{client}/{name}"

    def leave(self, client: str) -> None:
        """Forget ``client``; what it made stays."""
        self.keyed.pins.drop_all(self.pin_name(client, ""))
        self.store.pins.drop_all(self.pin_name(client, ""))
        with self._lock:
            self._members.pop(client, None)
            for name in list(self.attached):
                if name.rpartition(_BY)[0] == client:
                    self.attached.pop(name, None)

    def admit(self, client: str, key: bytes) -> None:
        """Raise ``SessionUnknown`` for who never joined, ``AuthenticationError`` for another."""
        member = self._members.get(client)
        if member is None:
            raise self._unknown()
        check_key(member.key, key)

    def has_joined(self, client: str) -> bool:
        """Is it one of its clients?"""
        return client in self._members

    def hand_over(self, epoch: int) -> ServerSession:
        """The session for another driver: buffers that have a name, and nothing else.

        What the clients of this one are about to do counts no more; it is to be closed.
        """
        heir = ServerSession(self.name, self.index, self.servers, self.host, 0, self.lease)
        heir.epoch, heir._numbers = epoch, self._numbers
        heir.publications = self.publications.hand_over()
        heir.store.fill(self.store.find(heir.publications.buffers))
        self.is_taken = True
        return heir

    def _unknown(self) -> PSError:
        if self.is_taken or self.epoch > 1:
            return SessionFenced(
                "another driver has taken over the session; stop this process, or take the "
                "session back: distvec.attach(name, addresses, token=...)"
            )
        return SessionUnknown("this server does not know the client of the session: reconnect")

    def receive(self, request: pb.Request) -> None:
        """Admit the sender, and free what came along."""
        self.admit(request.client, request.key)
        if request.frees:
            self.free(request.frees)

    def free(self, buffers: Sequence[int]) -> None:
        """Drop what a client holds no more."""
        self.store.free(buffers)
        if self.keyed.by_number:
            self.keyed.free(buffers)

    def reply_log(self, client: str) -> ReplyLog:
        """What ``client`` was answered lately; ``SessionUnknown`` if it never joined here."""
        member = self._members.get(client)
        if member is None:
            raise self._unknown()
        return member.replies

    def part(self, array: pb.Array) -> Part:
        """This server's part of ``array``; ``TypeError`` for an unknown dtype."""
        return self.part_of(space_of(array.space), array.dtype, tuple(array.row))

    def part_of(self, space: Space, dtype: str, row: Row) -> Part:
        """This server's part of an array over ``space``; ``TypeError`` for an unknown dtype."""
        part = self._parts.get((space, dtype, row))
        if part is None:
            array = stored_type(space, dtype_of(dtype), row)
            part = Part(array, *space.range_of(self.index, self.servers))
            _remember(self._parts, (space, dtype, row), part)
        return part

    def kernel(self, sweep: Sweep, space: Space) -> Kernel:
        """The kernel of ``sweep`` over ``space``."""
        known = self._kernels.get((sweep.digest, space.length))
        if known is not None:
            return known[0]
        began = time.monotonic()
        kernel = compile_sweep(sweep, space.length, self.host.extensions.engine)
        self.host.meters.note_compiled(time.monotonic() - began)
        with suppress(OutOfBudget):  # else it is looked up again
            kept = self._memory.reserve(_KERNEL_BYTES * len(sweep.types), "a kernel")
            _remember(self._kernels, (sweep.digest, space.length), (kernel, kept))
        return kernel

    def sweep(self, message: pb.SweepCall | pb.RowCall) -> Sweep:
        """The sweep that ``message`` carries or names; ``UnknownSweep`` if it never came whole."""
        if message.HasField("sweep"):
            sweep = known_sweep(message.sweep)
            verify_sweep(sweep)
            self._remember_sweep(sweep)
            return sweep
        known = self._sweeps.get(message.digest)
        if known is None:
            raise UnknownSweep(f"sweep {message.digest} is not known here")
        return known[0]

    def _remember_sweep(self, sweep: Sweep) -> None:
        """Keep it if there is memory; the client sends it again where it is not known."""
        try:
            size = _VALUE_BYTES * (sweep.size + len(sweep.outputs))
            kept = self._memory.reserve(size, "a program")
        except OutOfBudget:
            self._sweeps.clear()
            self._kernels.clear()
            self.call_cache.clear()
        else:
            _remember(self._sweeps, sweep.digest, (sweep, kept))

    def close(self) -> None:
        """Free everything, and end all waits and programs."""
        self.closed = True
        self.barriers.close_all()
        self.store.clear()
        self.keyed.clear()
        self.rounds.clear()
        with self._lock:
            self._members.clear()
            self._sweeps.clear()
            self._kernels.clear()
            self.call_cache.clear()
            self._kept.clear()
            self.attached.clear()


def attachment(client: str, process: int) -> str:
    """The name of what is held for a process that speaks for ``client``: its own, or a server."""
    return f"{client}{_BY}{process}"


def _remember(memory: dict[Key, Value], key: Key, value: Value) -> None:
    """Add to a bounded memory of what can be made again."""
    if len(memory) >= _MOST_REMEMBERED:
        memory.clear()
    memory[key] = value


VERSION = "0.1.0"

_LOG = logging.getLogger(__name__)

_MOST_EXPIRED = 1024


class Sessions:
    """The sessions of one server. Thread-safe."""

    def __init__(self, host: Host, lease: float) -> None:
        """``lease`` of sessions that ask for no other, in seconds."""
        self.instance = uuid.uuid4().hex
        self._host, self._lease = host, lease
        self.leaves_at = math.inf
        """The server will be gone then, by the monotonic clock."""
        self._started = time.monotonic()
        self.started_at = time.time()
        """Unix time."""
        self._expired: dict[str, float] = {}  # names of sessions, and their leases
        self._sessions: dict[str, ServerSession] = {}
        self._lock = threading.Lock()

    def all(self) -> list[ServerSession]:
        """Those that are open now."""
        return list(self._sessions.values())

    def get(self, name: str) -> ServerSession:
        """The session called ``name``; ``SessionUnknown`` says why it is not there."""
        session = self._sessions.get(name)
        if session is None and name in self._expired:
            raise SessionExpired(
                f"the lease of the session, {self._expired[name]:g} s, ran out: no client sent a "
                "request for so long, so its arrays were freed; connect again, with a longer "
                "lease= if needed"
            )
        if session is None:
            raise SessionUnknown(
                "this server does not know the session: it was closed, or the server was "
                "restarted and its arrays are lost; connect again"
            )
        return session

    def fence(self, request: pb.Request) -> None:
        """Nothing more is done for the session, if the sender is a client of it."""
        session = self._sessions.get(request.session)
        with suppress(PSError):
            if session is not None:
                session.admit(request.client, request.key)
                session.fenced = True

    def status(self, request: pb.Request | None = None) -> pb.Status:
        """What this server holds right now, for anybody; what a client's request frees is gone."""
        if request is not None and request.frees and request.session in self._sessions:
            self.get(request.session).receive(request)
        sessions = self.all()
        return pb.Status(
            instance=self.instance,
            version=VERSION,
            buffers=sum(len(session.store) for session in sessions),
            used=self._host.memory.used,
            peak=self._host.memory.peak,
            budget=self._host.memory.budget,
            sessions=len(sessions),
            uptime=time.monotonic() - self._started,
            pid=os.getpid(),
            held=[_held_message(session) for session in sessions],
            bits=digests().bits,
            functions=digests().functions,
            plugins=[
                pb.Plugin(name=one.name, signature=str(one.signature))
                for one in self._host.plugins.plugins.values()
            ],
            commands=[one.name for one in self._host.plugins.commands],
        )

    def open(self, request: pb.Request) -> pb.Opened:
        """Make a session, or let a client join it."""
        body = request.open
        if body.protocol != PROTOCOL:
            raise PSError(
                f"the client speaks version {body.protocol} of the protocol, this server (distvec "
                f"{VERSION}) speaks {PROTOCOL}; install the same distvec on both sides"
            )
        check("servers", body.servers, 1, limits.MOST_SERVERS)
        check("index of a server", body.index, 0, body.servers - 1)
        check_secret(request.session, body.secret)
        if body.attach:
            self._take_over(request)
            if not body.epoch:
                return self._opened(self.get(request.session), 0)
        lease = check_lease(body.lease) if body.lease else self._lease
        with self._lock:
            session = self._sessions.get(request.session)
            if body.fresh and session is not None and not session.has_joined(request.client):
                raise PSError(
                    "a session of this name exists already; take it over with "
                    "distvec.attach(name, addresses, token=...)"
                )
            if body.create and session is None:
                if math.isfinite(self.leaves_at):
                    raise ServerDraining(
                        "this server was told to end, and takes no new session; connect to the "
                        "server that takes its place, or to others"
                    )
                self._expired.pop(request.session, None)
                self._sessions[request.session] = ServerSession(
                    request.session,
                    body.index,
                    body.servers,
                    self._host,
                    body.first_number,
                    Lease(lease),
                )
                self._host.meters.note_event("session_opened")
                if body.again:
                    self._sessions[request.session].store.lost_buffers = LostBuffers()
            session = self.get(request.session)
        _check_place(session, body)
        if body.epoch and body.epoch != session.epoch:
            raise SessionFenced(
                f"driver {session.epoch} has taken over this session from driver {body.epoch}; "
                "stop this process, or take the session back: "
                "distvec.attach(name, addresses, token=...)"
            )
        with session.lease:
            number = session.join(request.client, request.key)
        if body.again and session.store.lost_buffers is not None:
            session.store.lost_buffers.note(body.newest)
        return self._opened(session, number)

    def _opened(self, session: ServerSession, number: int) -> pb.Opened:
        seconds = session.lease.seconds
        return pb.Opened(
            instance=self.instance,
            version=VERSION,
            number=number,
            lease=seconds if math.isfinite(seconds) else 0.0,
            epoch=session.epoch,
            engine=self._host.extensions.engine,
        )

    def _take_over(self, request: pb.Request) -> None:
        """Give the session to another driver, if the request says its epoch, and it is a new one.

        ``SessionFenced`` if another driver was first. What clients of the one before have under way
        ends, and counts no more.
        """
        body = request.open
        with self._lock:
            session = self.get(request.session)
            _check_place(session, body)
            if not body.epoch or session.has_joined(request.client):  # the latter: it comes again
                return
            if body.epoch <= session.epoch:
                raise SessionFenced(
                    f"driver {session.epoch} has taken over this session; attach again to take "
                    "it back"
                )
            heir = session.hand_over(body.epoch)
            if body.lease:
                heir.lease.seconds = check_lease(body.lease)
            heir.join(request.client, request.key)
            self._sessions[request.session] = heir
        _LOG.info("driver number %d has taken over session %s", body.epoch, request.session[:8])
        session.close()

    def close(self, request: pb.Request) -> None:
        """Let a client leave, or end its session."""
        if request.session not in self._sessions:
            return
        session = self.get(request.session)
        with session.lease:
            session.receive(request)
            session.leave(request.client)
            if request.close.session:
                with self._lock:
                    last = self._sessions.pop(request.session, None)
                if last is not None:
                    self._end(last)

    def let_pass(self, seconds: float) -> None:
        """So much time has passed: sessions whose lease is over are closed."""
        for session in self.all():
            if session.lease.run_down(seconds):
                self._expire(session)

    def _expire(self, session: ServerSession) -> None:
        with self._lock:
            if self._sessions.get(session.name) is not session:
                return
            while len(self._expired) >= _MOST_EXPIRED:
                del self._expired[next(iter(self._expired))]
            self._expired[session.name] = session.lease.seconds
            del self._sessions[session.name]
        self._host.meters.note_event("session_expired")
        _LOG.warning("the lease of session %s ran out", session.name[:8])
        self._end(session)

    def _end(self, session: ServerSession) -> None:
        session.close()
        if not self._sessions:
            self._host.memory.forget_kept()


def _check_place(session: ServerSession, body: pb.Open) -> None:
    if (session.index, session.servers) != (body.index, body.servers):
        raise ValueError(
            f"this is server {session.index} of {session.servers} in the session, not {body.index} "
            f"of {body.servers}; give the same addresses in the same order"
        )


def _held_message(session: ServerSession) -> pb.Held:
    lease = session.lease
    limited = math.isfinite(lease.seconds)
    return pb.Held(
        name=session.name,
        buffers=len(session.store),
        age=lease.age,
        lease=lease.seconds if limited else 0.0,
        left=lease.left if limited else 0.0,
    )
