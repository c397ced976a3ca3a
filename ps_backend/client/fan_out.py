"""Messages to several servers at once: the client waits for the slowest, not for the sum."""

from __future__ import annotations

import threading
import time
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Protocol

from ps_backend.client.counters import Counters
from ps_backend.client.journal import Journal
from ps_backend.client.server_link import Call, Message, ServerLink
from ps_backend.client.signals import cancel_on_ctrl_c, defer_signals
from ps_backend.errors import PeerLost, PSError, ServerLost
from ps_backend.wire import ps_pb2 as pb

_MOST_WAITING_FREES = 10_000
"""A server that gets no other message is told of its frees when so many have come together."""

Replies = dict[int, pb.Reply]
"""By server."""


class Send(Protocol):
    """How a client sends; ``recorded`` what must not be done twice; ``made``: buffers."""

    def __call__(
        self,
        messages: dict[int, Message],
        *,
        recorded: bool = True,
        made: Sequence[int] = (),
        answered: Callable[[Replies], None] | None = None,
    ) -> Replies:
        """Send ``messages``, by server, and wait for the replies."""


After = Callable[[Replies, Exception | None], None]
"""Gets the replies that came and the error that will be raised, if any."""


class FanOutCall:
    """The exchanges of one request with all the servers that it concerns."""

    def __init__(
        self,
        exchanges: Mapping[int, Call],
        after: After | None,
        *,
        quiet: bool = False,
    ) -> None:
        """``quiet``: only ``after`` is told of a failure, not who sends the next message."""
        self.quiet = quiet
        self.finished = False
        self._exchanges = exchanges
        self._after = after
        self._replies: Replies = {}
        self._errors: dict[int, Exception] = {}
        self._patient = True
        self._lock = threading.Lock()

    def concerns(self, servers: Iterable[int]) -> bool:
        """Does it go to one of ``servers``?"""
        return not self._exchanges.keys().isdisjoint(servers)

    def cancel(self) -> None:
        """Ask the servers to end what they compute; returns at once. For a handler of signals."""
        start_new_thread(self._cancel, ())  # ``Thread.start`` takes a lock

    def _cancel(self) -> None:
        for server, exchange in self._exchanges.items():
            answered = server in self._replies or server in self._errors
            if exchange.may_be_cancelled and not answered:
                exchange.cancel()

    def start(self, servers: Iterable[int]) -> None:
        """Send to ``servers`` now, unless another thread that waits for it has sent it."""
        with self._lock:
            if not self.finished:
                for server in servers:
                    self._exchanges[server].start()

    def finish(self) -> Replies:
        """Wait for all replies; once. Raises the error of the first server, or of a lost one.

        After a KeyboardInterrupt it can be called again: it asks for the replies that are missing.
        """
        with self._lock:
            if self.finished:
                return {}
            missing = self._exchanges.keys() - self._replies.keys() - self._errors.keys()
            for server in sorted(missing, reverse=True):  # the last one is sent only here
                if not self._patient:
                    break
                missing.discard(server)
                try:
                    self._replies[server] = self._exchanges[server].result(patient=True)
                except Exception as error:  # noqa: BLE001 - raised below, when all have answered
                    self._failed(server, error)
            if missing:  # others may be as silent: their waits shall not add up
                with ThreadPoolExecutor(len(missing)) as waiting:
                    list(waiting.map(self._wait_for, missing))
            self.finished = True
            first = _first(self._errors) if self._errors else None
            self._errors.clear()
            try:
                if self._after is not None:
                    self._after(self._replies, first)
                if first is not None:
                    raise first
            finally:
                del first  # or its traceback would refer to itself, and keep alive what failed
            return self._replies

    def _wait_for(self, server: int) -> None:
        """Not for long: a silent one had its time, too, while another one was waited for."""
        try:
            self._replies[server] = self._exchanges[server].result(patient=False)
        except Exception as error:  # noqa: BLE001 - raised when all have answered
            self._failed(server, error)

    def _failed(self, server: int, error: Exception) -> None:
        self._errors[server] = error
        if self._exchanges[server].gave_up or isinstance(error, PeerLost):
            self._patient = False


def _first(errors: Mapping[int, Exception]) -> Exception:
    """That of the first server; but what a lost server caused elsewhere says less than its loss."""
    lost = [server for server, error in errors.items() if isinstance(error, ServerLost)]
    itself = [server for server in lost if not isinstance(errors[server], PeerLost)]
    return errors[min(itself or lost or errors)]


class FanOut:
    """The links of one client to all its servers. Thread-safe."""

    def __init__(self, links: Sequence[ServerLink], counters: Counters) -> None:
        self.links = links
        self._counters = counters
        self.resume_from: str | None = None
        """Where the session has a checkpoint, for errors that say that a server was lost."""
        self.journal: Journal | None = None
        """Where requests are noted, to be sent again after a loss; then all are awaited."""
        self._noted: deque[int] = deque()
        self._unawaited: list[FanOutCall] = []
        self._lock = threading.Lock()

    def note_frees(self, buffers: Iterable[int]) -> None:
        """Free these with the next messages. Takes no lock: finalizers call it, in any thread."""
        self._noted.extend(buffers)

    @property
    def is_idle(self) -> bool:
        """Whether nothing was sent that is not awaited yet."""
        return not self._unawaited

    def take_frees(self) -> list[int]:
        """What is to be freed on all servers, for who tells them now."""
        fresh: list[int] = []
        while self._noted:
            try:
                fresh.append(self._noted.popleft())
            except IndexError:  # another thread took the last
                break
        return fresh

    def take_back(self, buffers: Sequence[int], servers: Iterable[int]) -> None:
        """Free what a request made on ``servers``, as it failed on another one.

        Where it failed, an id may be that of an older buffer, which must stay.
        """
        for server in servers:
            self.links[server].note_frees(buffers)

    def send(
        self,
        messages: Mapping[int, Message],
        *,
        recorded: bool = True,
        after: After | None = None,
        noted: bool = False,
    ) -> Replies:
        """Send ``messages``, by server, all at once, and wait for all replies.

        One server is called on the calling thread. ``after`` gets the replies that came and the
        error that will be raised, if any. First awaits what ``send_unawaited`` left. ``noted``: by
        the journal, which sends.
        """
        if not messages:
            return {}
        with defer_signals():
            if not (self.journal is None or noted or self.journal.passes):
                return self.journal.send(messages, recorded, after)
            group = self._prepare(messages, recorded, after)
            try:
                return self._finish(group, messages)
            except KeyboardInterrupt:  # broken off: how it ended is asked by the next message
                if recorded:
                    group.quiet = True
                    self._leave(group)
                raise

    def keep_journal(self) -> Journal:
        """From now on all requests are noted."""
        lives = tuple(link.transport.generation for link in self.links)
        self.journal = Journal(lives, partial(self.send, noted=True), self._renewed)
        return self.journal

    def succeed(self, former: FanOut) -> None:
        """Take over the journal: the arrays that were behind ``former`` are here now."""
        self.resume_from, self.journal, former.journal = former.resume_from, former.journal, None
        if self.journal is not None:
            self.journal.go_on(partial(self.send, noted=True), self._renewed)

    def _renewed(self, messages: Mapping[int, Message]) -> dict[int, Message]:
        """The same as new requests, which know where the servers are now."""
        renewed = {}
        for server, message in messages.items():
            request = pb.Request()
            request.CopyFrom(message.request)
            for name in ("sequence", "settled", "life"):
                request.ClearField(name)
            if request.HasField("run") and request.run.peers:
                del request.run.peers[:], request.run.lives[:]
                request.run.peers.extend(link.transport.address for link in self.links)
                request.run.lives.extend(link.life for link in self.links)
            renewed[server] = replace(message, request=request)
        return renewed

    def send_unawaited(
        self,
        messages: Mapping[int, Message],
        *,
        after: After | None = None,
        quiet: bool = False,
    ) -> None:
        """Send, and leave waiting (and raising) to the next message to any of these servers.

        ``quiet``: nobody raises, ``after`` is told.
        """
        if self.journal is not None:
            try:
                self.send(messages, after=after)
            except Exception:
                if not quiet:
                    raise
            return
        with defer_signals():
            group = self._prepare(messages, True, after, quiet=quiet)
            self._leave(group)
            group.start(messages)

    def await_all(self, *, quietly: bool = False) -> None:
        """Wait for everything sent unawaited; raises the first error unless ``quietly``."""
        with defer_signals():
            for server in range(len(self.links)):
                try:
                    self._await([server])
                except Exception:
                    if not quietly:
                        raise

    def _prepare(
        self,
        messages: Mapping[int, Message],
        recorded: bool,
        after: After | None,
        *,
        quiet: bool = False,
    ) -> FanOutCall:
        if self._unawaited:
            self._await(messages)
        if self._noted:
            self._hand_out_frees(messages)
        exchanges = {}
        # Frees ride on what the journal notes, and not on what it repeats, which needs the arrays.
        frees = self.journal is None or (recorded and not self.journal.passes)
        for server, message in messages.items():
            link = self.links[server]
            exchanges[server] = link.exchange(message, recorded=recorded, frees=frees)
        return FanOutCall(exchanges, after, quiet=quiet)

    def _leave(self, group: FanOutCall) -> None:
        with self._lock:
            self._unawaited.append(group)

    def _await(self, servers: Iterable[int]) -> None:
        with self._lock:
            groups = [group for group in self._unawaited if group.concerns(servers)]
        for group in groups:
            try:
                self._finish(group)
            except Exception:
                if not group.quiet:
                    raise
            finally:
                if group.finished:
                    with self._lock:
                        self._unawaited = [one for one in self._unawaited if one is not group]

    def _finish(self, group: FanOutCall, to_start: Iterable[int] = ()) -> Replies:
        """Wait for the replies to ``group``; of those ``to_start``, the last one is only called."""
        began = time.perf_counter()
        try:
            with cancel_on_ctrl_c(group.cancel):
                if first := sorted(to_start)[:-1]:
                    group.start(first)
                return group.finish()
        except ServerLost as error:
            error.resume_from = self.resume_from
            raise
        finally:
            self._counters.count_wait(time.perf_counter() - began)

    def _hand_out_frees(self, messages: Mapping[int, Message]) -> None:
        fresh = self.take_frees()
        for server, link in enumerate(self.links):
            waiting = link.note_frees(fresh)
            if waiting > _MOST_WAITING_FREES and server not in messages and self.journal is None:
                template = next(iter(messages.values())).request
                request = pb.Request(
                    session=template.session, client=template.client, key=template.key
                )
                request.nothing.SetInParent()
                try:
                    link.exchange(Message(request), recorded=True).result()
                except PSError:
                    continue  # it will be told again, or is lost: whoever needs it will see
