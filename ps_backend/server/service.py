"""A parameter server without its sockets: requests in, replies out.

The same object stands behind the in-process transport and the gRPC server.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import uuid
from collections.abc import Mapping

from ps_backend.arguments import check_lease
from ps_backend.errors import PSError, SessionUnknown
from ps_backend.memory_sizes import default_budget
from ps_backend.server.checks import verify_request
from ps_backend.server.commands import clocks as clock_commands
from ps_backend.server.commands import data as commands
from ps_backend.server.commands.data import Command, Outcome, Payload
from ps_backend.server.lease import Lease
from ps_backend.server.runner import Runner
from ps_backend.server.session import Session
from ps_backend.server.state.board import WaitingRoom
from ps_backend.server.state.memory import Memory
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.errors import Abandoned, PayloadBroken, UnknownSweep, encode_error
from ps_backend.wire.membership import check_secret
from ps_backend.wire.protocol import PROTOCOL

VERSION = "0.1.0"

_LOG = logging.getLogger(__name__)

_WAITS = frozenset(("await_post", "await_answers", "pull"))
"""Commands that wait for others: no work of this server."""

_READS = frozenset(("read", "gather", "answer")) | _WAITS | frozenset(clock_commands.COMMANDS)
"""Commands that change nothing when repeated, so there is no need to record their replies."""

_KEEPS_UNDO = frozenset(("stage", "reopen", "update", "post", "close_topic")) | _READS
"""Commands after which the last commit of a round may still be taken back."""

_MOST_EXPIRED = 1024

_EXPECTED = (PSError, ValueError, TypeError, IndexError, NotImplementedError, MemoryError)


class Service:
    """The sessions of one server and the memory they share. Thread-safe."""

    def __init__(self, *, memory: int | None = None, lease: float = math.inf) -> None:
        """``memory``: budget in bytes; 80 % of this machine's if not given.

        ``lease`` of sessions that ask for no other, in seconds. It runs by ``let_pass``.
        """
        self.memory = Memory(default_budget(1) if memory is None else memory)
        self.instance = uuid.uuid4().hex
        self._started = time.monotonic()
        self._lease = lease
        self._expired: dict[str, float] = {}  # names of sessions, and their leases
        self._room = WaitingRoom()
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()
        self._runner = Runner()
        self._commands: Mapping[str, Command] = {
            "run": self._runner.run,
            "write": commands.write,
            "read": commands.read,
            "gather": commands.gather,
            "scatter_add": commands.scatter_add,
            "update": commands.update,
            "stage": commands.stage,
            "commit": commands.commit,
            "reopen": commands.reopen,
            "drop_round": commands.drop_round,
            "nothing": commands.nothing,
            "post": commands.post,
            "await_post": commands.await_post,
            "answer": commands.answer,
            "await_answers": commands.await_answers,
            "close_topic": commands.close_topic,
            **clock_commands.COMMANDS,
        }
        self._known = self._commands.keys() | {"close", "renew", "cancel"}

    def handle(self, request: pb.Request, payload: Payload) -> Outcome:
        """Answer one request. Never raises: failures become replies that carry them.

        Frees that came along are applied even if the request fails.
        """
        began = time.perf_counter()
        outcome = self._outcome(request, payload)
        if request.WhichOneof("body") not in _WAITS:
            outcome.reply.seconds = time.perf_counter() - began
        return outcome

    def _outcome(self, request: pb.Request, payload: Payload) -> Outcome:
        try:
            kind = request.WhichOneof("body")
            verify_request(request, kind)
            if kind == "status":
                if request.frees and request.session in self._sessions:
                    self._free(self._session(request.session), request)
                return Outcome(pb.Reply(status=self.status()))
            if kind == "open":
                return Outcome(pb.Reply(opened=self._open(request)))
            if kind == "close" and request.session not in self._sessions:
                return Outcome(pb.Reply())
            if kind is None or kind not in self._known:
                raise PSError("the request asks for nothing that this server knows")
            session = self._session(request.session)
            with session.lease.held():
                return self._of_session(session, kind, request, payload)
        except Exception as error:  # noqa: BLE001 - the boundary: whatever went wrong, the client hears of it
            return Outcome(self._failure(error))

    def _of_session(
        self, session: Session, kind: str, request: pb.Request, payload: Payload
    ) -> Outcome:
        self._free(session, request)
        if kind == "close":
            self._close(request)
            return Outcome(pb.Reply())
        if kind == "renew":
            return Outcome(pb.Reply())
        if kind == "cancel":
            record = session.record(request.client)
            record.cancelled = max(record.cancelled, request.cancel.sequence)
            return Outcome(pb.Reply())
        if kind in _READS:
            return self._commands[kind](session, request, payload)
        return self._recorded(self._commands[kind], kind, session, request, payload)

    @staticmethod
    def _free(session: Session, request: pb.Request) -> None:
        """Free what came along, if the sender may."""
        session.admit(request.client, request.key)
        if request.frees:
            session.store.free(request.frees)

    def attached(self, request: pb.Request) -> dict[str, object]:
        """What is held for the clients of a session; raises unless the sender is one of them."""
        session = self._session(request.session)
        session.admit(request.client, request.key)
        return session.attached

    def all_attached(self) -> list[dict[str, object]]:
        """The same of all sessions."""
        return [session.attached for session in list(self._sessions.values())]

    def let_pass(self, seconds: float) -> None:
        """So much time has passed: sessions whose lease is over are closed."""
        for session in list(self._sessions.values()):
            if session.lease.run_down(seconds):
                self._expire(session)

    def end_waits(self) -> None:
        """Answer all that wait or compute, with what there is; from now on nothing does."""
        self._room.close()
        self._runner.stop()
        for session in list(self._sessions.values()):
            session.board.wake_all()
            session.loops.wake_all()

    def status(self) -> pb.Status:
        """What this server holds right now."""
        return pb.Status(
            instance=self.instance,
            version=VERSION,
            buffers=sum(len(session.store) for session in list(self._sessions.values())),
            used=self.memory.used,
            peak=self.memory.peak,
            budget=self.memory.budget,
            sessions=len(self._sessions),
            uptime=time.monotonic() - self._started,
            pid=os.getpid(),
            held=[_held(session) for session in list(self._sessions.values())],
        )

    def _recorded(
        self,
        command: Command,
        kind: str,
        session: Session,
        request: pb.Request,
        payload: Payload,
    ) -> Outcome:
        def run() -> tuple[pb.Reply, bool]:
            if kind not in _KEEPS_UNDO:
                session.rounds.settle()
            try:
                return command(session, request, payload).reply, True
            except (UnknownSweep, PayloadBroken, Abandoned) as error:
                return encode_error(error), False  # the client will repeat it, in full
            except Exception as error:  # noqa: BLE001 - as in handle
                return self._failure(error), True

        record = session.record(request.client)
        return Outcome(record.once(request.sequence, request.settled, run))

    @staticmethod
    def _failure(error: Exception) -> pb.Reply:
        if not isinstance(error, _EXPECTED):
            _LOG.error("a request failed", exc_info=error)
        return encode_error(error)

    def _session(self, name: str) -> Session:
        session = self._sessions.get(name)
        if session is None and name in self._expired:
            raise SessionUnknown(
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

    def _open(self, request: pb.Request) -> pb.Opened:
        body = request.open
        if body.protocol != PROTOCOL:
            raise PSError(
                f"the client speaks version {body.protocol} of the protocol, this server (distvec "
                f"{VERSION}) speaks {PROTOCOL}; install the same distvec on both sides"
            )
        check_secret(request.session, body.secret)
        lease = check_lease(body.lease) if body.lease else self._lease
        with self._lock:
            if body.create and request.session not in self._sessions:
                self._expired.pop(request.session, None)
                self._sessions[request.session] = Session(
                    request.session,
                    body.index,
                    body.servers,
                    self.memory,
                    self._room,
                    body.first_number,
                    Lease(lease),
                )
            session = self._session(request.session)
        if (session.index, session.servers) != (body.index, body.servers):
            raise ValueError(
                f"this is server {session.index} of {session.servers} in the session, not "
                f"{body.index} of {body.servers}; give the same addresses in the same order"
            )
        with session.lease.held():
            number = session.join(request.client, request.key)
        seconds = session.lease.seconds
        return pb.Opened(
            instance=self.instance,
            version=VERSION,
            number=number,
            lease=seconds if math.isfinite(seconds) else 0.0,
        )

    def _expire(self, session: Session) -> None:
        with self._lock:
            if self._sessions.get(session.name) is not session:
                return
            while len(self._expired) >= _MOST_EXPIRED:
                del self._expired[next(iter(self._expired))]
            self._expired[session.name] = session.lease.seconds
            del self._sessions[session.name]
        _LOG.warning("the lease of session %s ran out", session.name[:8])
        self._end(session)

    def _close(self, request: pb.Request) -> None:
        with self._lock:
            session = self._sessions.get(request.session)
            if session is None:
                return
            session.leave(request.client)
            if not request.close.session:
                return
            del self._sessions[request.session]
        self._end(session)

    def _end(self, session: Session) -> None:
        session.close()
        if not self._sessions:
            self.memory.forget_kept()


def _held(session: Session) -> pb.Held:
    lease = session.lease
    limited = math.isfinite(lease.seconds)
    return pb.Held(
        name=session.name,
        buffers=len(session.store),
        age=lease.age,
        lease=lease.seconds if limited else 0.0,
        left=lease.left if limited else 0.0,
    )
