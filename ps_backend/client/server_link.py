"""One client's line to one server: sequence numbers, repeats, and frees that ride along."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

from ps_backend.client.counters import Counters
from ps_backend.errors import PSError, ServerLost, SessionExpired, SessionUnknown
from ps_backend.transport import Answer, Busy, Pending, Transport, Unavailable
from ps_backend.transport.timeouts import REPEAT_SECONDS
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import (
    GoneBefore,
    Parts,
    ReleaseStep,
    UnknownSweep,
    UnknownView,
    decode_error,
)

_LOG = logging.getLogger(__name__)

Diagnose = Callable[[str], str | None]
"""Says what is known of the server at an address that does not answer."""

REPLACED_SECONDS = 30.0
"""Where another server takes the place of a lost one, requests wait for it: so long after the
first of them gave the lost one up."""

_BUSY_SECONDS = 60.0
"""So long a server may say that it takes no more requests."""

Reopen = Callable[[int, int], pb.Request]
"""Composes what opens the session on a server (by number) that was replaced so often."""

_MOST_FREES = 100_000
"""In one message: eight bytes each."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a server that does not answer is asked again: seconds."""

    total: float = REPEAT_SECONDS
    first: float = 0.05
    longest: float = 1.0

    def pauses(self) -> Iterator[float]:
        """The pauses between attempts, doubling, until ``total`` seconds have passed."""
        deadline, pause = time.monotonic() + self.total, self.first
        while (left := deadline - time.monotonic()) > 0:
            yield min(pause, left)
            pause = min(2 * pause, self.longest)


Complete = Callable[[pb.Request], Parts | None]


@dataclass(slots=True)
class Message:
    """A request to one server, with the bulk data that goes along and comes back."""

    request: pb.Request
    payload: Parts = ()
    into: memoryview | None = None
    complete: Complete | None = None
    """Puts in full what a request only names and the server does not know: sweeps, and keys.

    Returns the payload that goes along then, if it is another one."""


class Call:
    """One request to one server and the way to its answer."""

    def __init__(self, link: ServerLink, request: pb.Request, message: Message) -> None:
        self.request = request
        self._link, self._payload, self._into = link, message.payload, message.into
        self._complete = message.complete
        self._opened = link.opened
        self._pending: Pending | None = None
        self.gave_up = False
        """Whether the server stayed silent through all repeats."""

    def start(self) -> None:
        """Send now; without it, ``result`` sends."""
        self._pending = self._link.transport.start(self.request, self._payload, self._into)

    def result(self, *, patient: bool = True) -> pb.Reply:
        """Wait for the reply, repeating the request where the server does not answer.

        Once only unless ``patient``. Raises what the server reports, or ``ServerLost``. May be
        called again after a KeyboardInterrupt: the server answers a recorded request from its
        record.
        """
        link, reopened = self._link, False
        try:
            while True:
                try:
                    reply = link.check(self.request, self._deliver(patient))
                    break
                except SessionUnknown as error:
                    if reopened or isinstance(error, SessionExpired):
                        raise
                    link.reopen(error, self._opened)
                    reopened = True
                except (UnknownSweep, UnknownView):
                    if self._complete is None:
                        raise
                    payload = self._complete(self.request)
                    if payload is not None:
                        self._payload = payload
                    self._complete, reopened = None, False
        except Exception:
            link.settle(self.request)
            raise
        link.settle(self.request)
        return reply

    def cancel(self) -> None:
        """Ask the server to end this program. It answers then, be it ended or done."""
        request = pb.Request(
            session=self.request.session, client=self.request.client, key=self.request.key
        )
        request.cancel.sequence = self.request.sequence
        for pause in chain((0.0,), self._link.patience()):  # who never hears of it, computes on
            time.sleep(pause)
            with suppress(Unavailable):
                with suppress(PSError):  # it does not know us any more, so it does not compute
                    self._link.transport.call(request)
                return

    @property
    def may_be_cancelled(self) -> bool:
        """Is it a program?"""
        body: str | None = self.request.WhichOneof("body")
        return body == "run"

    def _deliver(self, patient: bool) -> Answer:
        pending, self._pending = self._pending, None
        try:
            return self._call() if pending is None else self._result(pending)
        except Unavailable as error:
            silence = error
        for pause in self._link.patience() if patient else (0.0,):
            time.sleep(pause)
            try:
                return self._call()
            except Unavailable as error:
                silence = error
        self.gave_up = True
        raise self._link.give_up(self.request, silence) from None

    def _call(self) -> Answer:
        """As of the transport; a busy server is asked again, as it is there."""
        pauses: Iterator[float] | None = None
        while True:
            try:
                return self._link.transport.call(self.request, self._payload, self._into)
            except Busy:
                pauses = pauses or RetryPolicy(_BUSY_SECONDS).pauses()
                pause = next(pauses, None)
                if pause is None:
                    raise
            time.sleep(pause)

    def _result(self, pending: Pending) -> Answer:
        try:
            return pending.result()
        except Busy:
            return self._call()


class ServerLink:
    """The state of one client towards one server. Thread-safe."""

    def __init__(
        self,
        transport: Transport,
        server: int,
        counters: Counters,
        *,
        retry: RetryPolicy,
        diagnose: Diagnose | None,
        reopen: Reopen | None = None,
    ) -> None:
        self.transport = transport
        self.known_sweeps: set[str] = set()
        """Digests of the sweeps that the server was sent in full."""
        self.lost = False
        """Whether the server did not answer the last time it was asked."""
        self._server, self._counters = server, counters
        self._retry, self._diagnose, self._reopen = retry, diagnose, reopen
        self._generation = 0  # of the server where it was opened again
        self.opened = 0
        """How often it was opened again."""
        self.leaving: tuple[int, float] | None = None
        """The generation of a server that drains, and when it will be gone."""
        self._lost_generation, self._lost_at = -1, 0.0
        self._lock = threading.Lock()
        self._reopening = threading.Lock()
        self._sequence = 0
        self._unsettled: set[int] = set()
        self._frees: list[int] = []

    @property
    def life(self) -> int:
        """That of the server, as far as known; 0 where none takes its place."""
        return self.transport.generation + 1 if self.transport.is_replaced else 0

    # --- frees ---

    def note_frees(self, buffers: Iterable[int]) -> int:
        """Send these with the next message; returns how many are waiting."""
        with self._lock:
            self._frees.extend(buffers)
            return len(self._frees)

    @property
    def has_frees(self) -> bool:
        """Whether some wait for a message."""
        return bool(self._frees)

    # --- sending ---

    def exchange(self, message: Message, *, recorded: bool, frees: bool = True) -> Call:
        """Prepare to send ``message``: numbered if ``recorded``, with the ``frees`` that wait."""
        request = message.request
        with self._lock:
            if recorded:
                self._sequence += 1
                self._unsettled.add(self._sequence)
                request.sequence = self._sequence
                request.settled = min(self._unsettled)
            if frees and self._frees:
                request.frees.extend(self._frees[:_MOST_FREES])
                del self._frees[:_MOST_FREES]
        return Call(self, request, message)

    # --- for exchanges ---

    def settle(self, request: pb.Request) -> None:
        """The request will not be repeated any more."""
        with self._lock:
            self._unsettled.discard(request.sequence)

    def patience(self) -> Iterator[float]:
        """Pauses between repeats. For a server that was lost already there are none, or, where
        another takes its place, as many as are left of REPLACED_SECONDS."""
        if not (self.lost and self.transport.generation == self._lost_generation):
            return self._retry.pauses()
        if not self.transport.is_replaced:
            return iter(())
        left = self._lost_at + REPLACED_SECONDS - time.monotonic()
        return replace(self._retry, total=left).pauses()

    def check(self, request: pb.Request, answer: Answer) -> pb.Reply:
        """Count the message; raise the error that the reply carries, if any."""
        self.lost = False
        self._counters.count_message(
            self._server, answer.sent, answer.received, answer.reply.seconds
        )
        if answer.reply.HasField("error"):
            raise self._error_in(request, answer.reply)
        if answer.reply.leaves_in:
            self._note_leaving(answer.reply.leaves_in)
        return answer.reply

    def _note_leaving(self, seconds: float) -> None:
        is_news = self.leaving is None or self.leaving[0] != self.transport.generation
        self.leaving = self.transport.generation, time.monotonic() + seconds
        if is_news:
            _LOG.warning(
                "server %s was told to end, and will be gone in %.0f s with its part of all "
                "arrays: save them, or checkpoint()", self.transport.address, seconds,
            )  # fmt: skip

    def _error_in(self, request: pb.Request, reply: pb.Reply) -> Exception:
        """Not raised here: its traceback would refer to itself, and keep alive what failed."""
        error = decode_error(reply.error, self.transport.address)
        if isinstance(error, UnknownSweep):
            self.known_sweeps.clear()
        if self.transport.generation and self._misses_data(request, error):
            lost = self._lost_before(request, error)
            lost.__cause__ = error
            return lost
        return error

    def reopen(self, error: SessionUnknown, opened: int) -> None:
        """Open the session on the server that took the place of a lost one.

        ``opened``: how often that was done when the request was made. Raises ``error`` if the
        server is none such.
        """
        with self._reopening:
            if opened != self.opened:
                return  # another thread was here just now
            generation = self.transport.generation
            is_open = generation == self._generation
            if self._reopen is None or (is_open and not self.transport.begin_anew(generation)):
                raise error
            self._open_again(self._reopen)

    def _open_again(self, compose: Reopen) -> None:
        """Open, and once more should that server be lost, too: each numbers clients anew."""
        for pause in chain((0.0,), self.patience()):  # who waited for another thread here, once
            time.sleep(pause)
            generation = self.transport.generation
            request = compose(self._server, generation)
            try:
                self.check(request, self.transport.call(request))
            except Unavailable as error:
                silent = error
                continue
            self._generation = generation
            self.opened += 1
            return
        raise self.give_up(request, silent)

    def give_up(self, request: pb.Request, cause: Unavailable) -> PSError:
        """The server counts as lost; returns the error that says so."""
        generation = self.transport.generation
        if not self.lost or generation != self._lost_generation:
            self.lost, self._lost_generation = True, generation
            self._lost_at = time.monotonic()
        self.note_frees(request.frees)
        said = self._diagnose(self.transport.address) if self._diagnose is not None else None
        named = _buffers(request)
        held = f"; its part of buffers {named} is gone unless it comes back" if named else ""
        if self.transport.is_replaced:
            next_step = (
                "try again: another, empty one takes its place, and is waited for up to "
                f"{REPLACED_SECONDS:g} s from the loss; make the arrays it held again"
            )
        else:
            next_step = "start it again and connect anew to make the arrays again"
        return ServerLost(
            f"server {self.transport.address} does not answer ({said or cause}){held}; {next_step}"
        )

    def _misses_data(self, request: pb.Request, error: Exception) -> bool:
        """Did it fail for want of an array, or of a contribution to a round, that was lost?"""
        is_commit = request.HasField("release") and request.release.step == ReleaseStep.ARRAYS
        committing = is_commit and self._generation > 0
        return isinstance(error, GoneBefore) or (committing and type(error) is PSError)

    def _lost_before(self, request: pb.Request, error: Exception) -> ServerLost:
        named = _buffers(request)
        what = f"Gone is a part of buffers {named}: make these arrays again" if named else error
        return ServerLost(
            f"server {self._server} was lost, and what it held with it; the one now at "
            f"{self.transport.address} began empty. {what}; the session goes on"
        )


def _buffers(request: pb.Request) -> str:
    """The ids, and the lengths of the arrays, of the first few buffers that a request reads."""
    lengths = {number: call.space.length for call in request.run.calls for number in call.inputs}
    for call in request.run.calls:
        for number in call.outputs:  # made by the request itself
            lengths.pop(number, None)
    body = getattr(request, request.WhichOneof("body") or "nothing")
    if isinstance(body, pb.Read | pb.Write | pb.Wait):
        body = body.rows
    arrays = [body.array] if hasattr(body, "array") else getattr(body, "arrays", ())
    arrays = [one for one in arrays if isinstance(one, pb.Array) and one.buffer]
    lengths |= {one.buffer: one.space.length for one in arrays}
    named = [f"{number} (length {length})" for number, length in lengths.items()]
    return ", ".join(named[:5]) + (", ..." if len(named) > 5 else "")
