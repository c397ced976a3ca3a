"""The sessions of one server: who opens, finds and ends them."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import uuid
from contextlib import suppress

from ps_backend import limits
from ps_backend.arguments import check_lease
from ps_backend.errors import PSError, SessionExpired, SessionFenced, SessionUnknown
from ps_backend.kernels.reproducible import digests
from ps_backend.limits import check
from ps_backend.server.session import Host, Lease, ServerSession
from ps_backend.server.state.store import LostBuffers
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import PROTOCOL, check_secret

VERSION = "0.1.0"

_LOG = logging.getLogger(__name__)

_MOST_EXPIRED = 1024


class Sessions:
    """The sessions of one server. Thread-safe."""

    def __init__(self, host: Host, lease: float) -> None:
        """``lease`` of sessions that ask for no other, in seconds."""
        self.instance = uuid.uuid4().hex
        self._host, self._lease = host, lease
        self._started = time.monotonic()
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
                f"the lease of the session, {self._expired[name]:g} s, ran out: its clients were "
                "silent for so long, and what it held is gone; connect again, with a longer lease= "
                "if need be"
            )
        if session is None:
            raise SessionUnknown(
                "this server does not know the session: it was closed, or the server was "
                "restarted and what it held is gone; connect again"
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
                    "a session of this name exists already; distvec.attach(name, addresses, "
                    "token=) takes it over"
                )
            if body.create and session is None:
                self._expired.pop(request.session, None)
                self._sessions[request.session] = ServerSession(
                    request.session,
                    body.index,
                    body.servers,
                    self._host,
                    body.first_number,
                    Lease(lease),
                )
                if body.again:
                    self._sessions[request.session].store.lost_buffers = LostBuffers()
            session = self.get(request.session)
        _check_place(session, body)
        if body.epoch and body.epoch != session.epoch:
            raise SessionFenced(
                f"the session has driver number {session.epoch} by now, not {body.epoch}"
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
            engine=self._host.engine,
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
                raise SessionFenced(f"driver number {session.epoch} has the session by now")
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
