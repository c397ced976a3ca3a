"""Two servers in this process, one session that is fuzzed, and one that must not notice."""

from __future__ import annotations

import logging
import shutil
import time
import zlib
from collections.abc import Iterable
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ps_backend.client import Client
from ps_backend.durability.stores import Store, open_within
from ps_backend.errors import PSError
from ps_backend.in_process import InProcess
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.server.commands.command import Payload
from ps_backend.server.service import Incarnation, Service
from ps_backend.server.sessions import ServerSession
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import _KINDS, session_name
from tests.fuzz.recordings import ADDRESSES, KEY, PLUGINS, SECRET, STORE, Recorded, written

MEMORY = 24 << 20
FORCED_BYTES = 8 << 20
"""What is counted but never refused may be above the budget by so much: replies, names."""
UNANSWERED = "unanswered"
_PATIENCE_SECONDS = 0.5
"""After so long the sender of a request is gone."""
_LONGEST_WAIT = 0.001
_MOST_PLAIN = 1 << 16
"""Longer sweeps take long, which is legal; only some are let through."""


class Watch(logging.Handler):
    """What servers log as an error: that of which they do not know that it may happen."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.said.append(repr(error) if error else record.getMessage())

    def __enter__(self) -> Watch:
        logging.getLogger("ps_backend").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("ps_backend").removeHandler(self)


class Target:
    """Send to it, and hear what is wrong."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._folder = TemporaryDirectory()
        shutil.copytree(written(), self._folder.name, dirs_exist_ok=True)
        confined = open_within([self._folder.name])

        def open_store(url: str) -> Store:
            return confined(url.replace(STORE, self._folder.name, 1))

        self.services = [
            Service(memory=MEMORY, open_store=open_store, life=Incarnation(1), extensions=PLUGINS)
            for _ in ADDRESSES
        ]
        peers = {
            address: InProcess(service, address)
            for address, service in zip(ADDRESSES, self.services, strict=True)
        }
        for service in self.services:
            service.peers.reach_by(lambda address: _reach(peers, address))
        self._good = Client(list(peers.values()))
        self._space = DenseSpace(5000)
        self._values = np.random.default_rng(1).normal(size=5000)
        self._x = self._good.new_id()
        self._good.write(self._x, self._space, self._values)
        self._states = [state_of(service.sessions.all()) for service in self.services]
        self.refused: str | None = None
        """The kind of error of the last answer, if it was one."""

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def send(self, one: Recorded) -> list[str]:
        """Send a request; returns what is wrong with the answer, or with what became of it."""
        service = self.services[one.server]
        answer, came = self.answer(one)
        reply = answer or pb.Reply(error=pb.Error(kind=UNANSWERED))
        self.refused = reply.error.kind if reply.HasField("error") else None
        wrong = [f"logged: {said}" for said in self._watch.said]
        self._watch.said.clear()
        if self.refused is None and reply.payload != came:
            wrong.append(f"{reply.payload} bytes of payload announced, {came} came")
        if self.refused not in (None, UNANSWERED, *_KINDS):
            wrong.append(f"an error of kind {self.refused!r}")
        if reply.error.message.startswith("the server failed with"):
            wrong.append(reply.error.message)
        if service.memory.used > MEMORY + FORCED_BYTES:
            wrong.append(f"{service.memory.used} bytes in use")
        before, now = self._states[one.server], state_of(service.sessions.all())
        if self.refused not in (None, UNANSWERED):
            freed, asks = set(one.request.frees), one.request.wait.HasField("ask")
            kept, left = (
                {
                    key: value
                    for key, value in state.items()
                    # What was asked stays so, also for who waits in vain for answers.
                    if not freed.intersection(key[2:]) and not (asks and key[1] == "meeting")
                }
                for state in (before, now)
            )
            if kept != left:
                changed = [str(key) for key in {**kept, **left} if kept.get(key) != left.get(key)]
                wrong.append(f"refused ({reply.error.message[:99]}), but {changed} changed")
        self._states[one.server] = now
        return wrong

    def answer(self, one: Recorded) -> tuple[pb.Reply | None, int]:
        """What a request is answered, if it is, and how many bytes of payload come with that."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        chunks = (memoryview(one.payload),) if one.payload else ()
        payload = Payload(one.request.payload, chunks, lambda: time.monotonic() < deadline)
        response = self.services[one.server].handle(one.request, payload)
        response.reply.SerializeToString()
        return response.reply, sum(map(len, response.parts))

    def send_bytes(self, data: bytes) -> list[str]:
        """Send what is no request, where that goes at all."""
        return []

    def looks(self) -> Iterable[str]:
        """What the good client says is wrong."""
        got = self._good.read(self._x, array_type(self._space, float))
        if got.tobytes() != self._values.tobytes():
            yield "the array of a good client has changed"

    def close(self) -> list[str]:
        """End all sessions; returns what is left of them."""
        wrong = list(self.looks())
        self._good.close()
        for service in self.services:
            for session in service.sessions.all():
                service.sessions._sessions.pop(session.name)
                session.close()
            if service.memory.used:
                wrong.append(f"{service.memory.used} bytes are left when all sessions are closed")
        return wrong


def _reach(peers: dict[str, InProcess], address: str) -> InProcess:
    if address not in peers:
        raise PSError(f"nobody answers at {address[:40]!r}")
    return peers[address]


def state_of(sessions: Iterable[ServerSession]) -> dict[tuple[Any, ...], Any]:
    """All that requests can change, but for what is remembered of answers and of the past."""
    state: dict[tuple[Any, ...], Any] = {}
    for session in sessions:
        name, store = session.name, session.store
        for number, buffer in store._buffers.items():
            state[name, "buffer", number] = buffer.part, zlib.crc32(buffer.array.data)
        for number, shared in store._shared.items():
            state[name, "shared", number] = shared.part, zlib.crc32(shared.array.data)
        for number, space in session.keyed.by_number.items():
            state[name, "space", number] = space.version, len(space.index)
            for place, array in space.arrays.items():
                rows = np.empty((len(space.index), *array.type.row), array.type.dtype)
                array.store.copy_to(rows)
                state[name, "rows", number, place] = zlib.crc32(rows)
        for number, workspace in store._workspaces.items():
            state[name, "workspace", number] = workspace.kind, workspace.phase
        for label, kept in store.pins._pins.items():
            state[name, "pin", label] = tuple(kept)
        for label, open_round in session.rounds._open.items():
            state[name, "round", label] = tuple(open_round.contributions)
        for label in session.rounds._closed:
            state[name, "closed", label] = True
        for key, (meeting, _) in session.barriers._open.items():
            state[name, "meeting", str(key)] = (
                id(meeting),
                getattr(meeting, "clocks", None),
                getattr(meeting, "_question", None),
                tuple(meeting._answers.values) if hasattr(meeting, "_answers") else None,
            )
    return state


def prepared(one: Recorded, number: int) -> Recorded:
    """With the next number, and short enough in what it asks for to be sent a million times.

    A session that is closed, and waits and sweeps that are long, are seldom.
    """
    request = one.request
    request.sequence, request.settled = number, number
    if not request.session:
        request.session, request.client, request.key = session_name(SECRET), "recorded", KEY
    if request.HasField("close") and number % 50:
        request.client = "one that never joined"  # else there would be little left to break
    if request.life and number % 50:
        request.life = 0  # a newer one ends the session
    if request.HasField("wait") and _LONGEST_WAIT < request.wait.seconds <= 1e6:
        request.wait.seconds = _LONGEST_WAIT
    if request.HasField("run"):
        for number, call in enumerate(request.run.calls):
            if call.space.length > _MOST_PLAIN and (request.sequence + number) % 50:
                call.space.length %= _MOST_PLAIN
    return one
