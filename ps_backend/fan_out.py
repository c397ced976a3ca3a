"""Messages to several servers at once: the client waits for the slowest, not for the sum."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ps_backend.counters import Counters
from ps_backend.errors import PSError, ServerLost
from ps_backend.interrupts import uninterrupted
from ps_backend.link import Exchange, Link, Message
from ps_backend.proto import ps_pb2 as pb

_MOST_WAITING_FREES = 10_000
"""A server that gets no other message is told of its frees when so many have come together."""

Replies = dict[int, pb.Reply]
"""By server."""

After = Callable[[Replies, Exception | None], None]
"""Gets the replies that came and the error that will be raised, if any."""


class Group:
    """The exchanges of one request with all the servers that it concerns."""

    def __init__(
        self,
        exchanges: Mapping[int, Exchange],
        after: After | None,
    ) -> None:
        self._exchanges = exchanges
        self._after = after
        self._finished = False
        self._lock = threading.Lock()

    def start(self, servers: Iterable[int]) -> None:
        """Send to ``servers`` now."""
        for server in servers:
            self._exchanges[server].start()

    def finish(self) -> Replies:
        """Wait for all replies; once. Raises the error of the first server, or of a lost one."""
        with self._lock:
            if self._finished:
                return {}
            self._finished = True
            replies: Replies = {}
            errors: dict[int, Exception] = {}
            for server in sorted(self._exchanges, reverse=True):  # the last one is sent only here
                # Another one that is silent, too, had its time while the first was waited for.
                patient = not any(exchange.gave_up for exchange in self._exchanges.values())
                try:
                    replies[server] = self._exchanges[server].result(patient=patient)
                except Exception as error:  # noqa: BLE001 - raised below, when all have answered
                    errors[server] = error
            first = _first(errors)
            if self._after is not None:
                self._after(replies, first)
            if first is not None:
                raise first
            return replies


def _first(errors: Mapping[int, Exception]) -> Exception | None:
    """That of the first server; but what a lost server caused elsewhere says less than its loss."""
    lost = [server for server, error in errors.items() if isinstance(error, ServerLost)]
    return errors[min(lost or errors)] if errors else None


class FanOut:
    """The links of one client to all its servers. Thread-safe."""

    def __init__(self, links: Sequence[Link], counters: Counters) -> None:
        self.links = links
        self._counters = counters
        self._noted: deque[int] = deque()
        self._unawaited: dict[int, Group] = {}
        self._lock = threading.Lock()

    def note_frees(self, buffers: Iterable[int]) -> None:
        """Free these with the next messages. Takes no lock: finalizers call it, in any thread."""
        self._noted.extend(buffers)

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
    ) -> Replies:
        """Send ``messages``, by server, all at once, and wait for all replies.

        One server is called on the calling thread. ``after`` gets the replies that came and the
        error that will be raised, if any. First awaits what ``send_unawaited`` left.
        """
        if not messages:
            return {}
        with uninterrupted():
            group = self._prepare(messages, recorded, after)
            with self._waiting():
                group.start(sorted(messages)[:-1])
                return group.finish()

    def send_unawaited(
        self,
        messages: Mapping[int, Message],
        *,
        after: After | None = None,
    ) -> None:
        """Send, and leave waiting (and raising) to the next message to any of these servers."""
        with uninterrupted():
            group = self._prepare(messages, True, after)
            group.start(messages)
            with self._lock:
                self._unawaited.update(dict.fromkeys(messages, group))

    def await_all(self, *, quietly: bool = False) -> None:
        """Wait for everything sent unawaited; raises the first error unless ``quietly``."""
        with uninterrupted():
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
    ) -> Group:
        if self._unawaited:
            self._await(messages)
        if self._noted:
            self._hand_out_frees(messages)
        exchanges = {
            server: self.links[server].exchange(message, recorded=recorded)
            for server, message in messages.items()
        }
        return Group(exchanges, after)

    def _await(self, servers: Iterable[int]) -> None:
        for server in servers:
            group = self._unawaited.get(server)
            if group is None:
                continue
            try:
                with self._waiting():
                    group.finish()
            finally:
                with self._lock:
                    for other in [k for k, g in self._unawaited.items() if g is group]:
                        del self._unawaited[other]

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self._counters.count_wait(time.perf_counter() - began)

    def _hand_out_frees(self, messages: Mapping[int, Message]) -> None:
        fresh = []
        while self._noted:
            try:
                fresh.append(self._noted.popleft())
            except IndexError:  # another thread took the last
                break
        for server, link in enumerate(self.links):
            waiting = link.note_frees(fresh)
            if waiting > _MOST_WAITING_FREES and server not in messages:
                template = next(iter(messages.values())).request
                request = pb.Request(session=template.session, client=template.client)
                request.nothing.SetInParent()
                try:
                    link.exchange(Message(request), recorded=True).result()
                except PSError:
                    continue  # it will be told again, or is lost: whoever needs it will see
