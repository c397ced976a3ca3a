"""The requests since the last checkpoint, which are sent again after a server was lost.

Programs are pure, ids are the client's, and results have the same bits each time. So the state of a
session is its last checkpoint and the requests since then, in order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import numpy as np

from ps_backend.client.server_link import Complete, Message
from ps_backend.errors import PeerLost, ReplayDiverged, ServerLost, SessionUnknown
from ps_backend.wire import ps_pb2 as pb

MOST_LOSSES = 10
"""So many in a row a request survives."""

_ENTRY_BYTES = 512
"""Counted for each request to a server, besides what it carries."""

_REPLAYED = frozenset({
    "run", "write", "copy", "compress", "load", "contribute", "nothing",
    "make_keys", "make_rows", "change_rows", "remove_keys", "copy_rows",
})  # fmt: skip
"""Requests that change arrays, and in which no other client takes part."""

_WITHOUT_EFFECT = frozenset({
    "read", "read_keys", "look_up", "status", "renew", "pin", "save", "publish", "end", "wait",
})  # fmt: skip
"""Requests after which arrays are as before; names are published again after a recovery."""

_CURABLE = (ServerLost, PeerLost, SessionUnknown)
"""Of these the classes themselves: a session whose lease is over, say, does not come back."""

Replies = Mapping[int, pb.Reply]
After = Callable[[dict[int, pb.Reply], Exception | None], None]
Renew = Callable[[Mapping[int, Message]], dict[int, Message]]
"""Makes new messages that say the same."""


class Send(Protocol):
    """Sends messages, by server, and returns the replies: see ``FanOut.send``."""

    def __call__(
        self,
        messages: Mapping[int, Message],
        *,
        recorded: bool = True,
        after: After | None = None,
    ) -> dict[int, pb.Reply]:
        """Send and wait."""


class _Kept(NamedTuple):
    """A message as bytes: a journal of message objects costs every program 50 us."""

    request: bytes
    payload: list[memoryview]
    complete: Complete | None


class _Entry(NamedTuple):
    """One request, to the servers that took part, and digests of what they answered."""

    messages: dict[int, _Kept]
    digests: dict[int, int]
    nbytes: int


class Journal:
    """The requests of one client since the last checkpoint of its session. Thread-safe.

    ``recover`` brings the servers back to that checkpoint; no other thread sends meanwhile.
    """

    def __init__(self, lives: tuple[int, ...], send: Send, renew: Renew) -> None:
        """``lives``: of now."""
        self._send, self._renew = send, renew
        self.lives = lives
        """How often each server had been replaced when all arrays were there."""
        self.base = ""
        """The name of the checkpoint; empty: the session began empty."""
        self.recover: Callable[[ServerLost], None] | None = None
        self.recoveries = 0
        self.gave_up = False
        """Was a loss told to the caller, so that the next checkpoint has what is left?"""
        self._broken_off: ServerLost | None = None
        """The loss from which a recovery has begun that did not come to its end."""
        self._entries: list[_Entry] = []
        self._first = 0
        """The number of the first entry."""
        self._nbytes = 0
        self._refusals: list[tuple[int, str]] = []
        """By number of an entry before which it came: a request that cannot be sent again."""
        self._changed = threading.Condition()
        self._sending = 0
        self._owner: int | None = None
        self._exempt: set[int] = set()

    def go_on(self, send: Send, renew: Renew) -> None:
        """With other servers, which have all arrays. To be called by who is ``alone``."""
        self._send, self._renew = send, renew

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        """Bytes that the client holds for it."""
        return self._nbytes

    @property
    def passes(self) -> bool:
        """Are requests of this thread neither noted nor held up?"""
        me = threading.get_ident()
        return self._owner == me or me in self._exempt

    # --- the gate: requests pass together, a recovery alone ---------------------------------------

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other thread sends in the block."""
        if self.passes:
            yield
            return
        with self._changed:
            self._changed.wait_for(lambda: self._owner is None and not self._sending)
            self._owner = threading.get_ident()
        try:
            yield
        finally:
            with self._changed:
                self._owner = None
                self._changed.notify_all()

    @contextmanager
    def without(self) -> Iterator[None]:
        """Requests of this thread, which change nothing, are not repeated after a loss."""
        me = threading.get_ident()
        self._exempt.add(me)
        try:
            yield
        finally:
            self._exempt.discard(me)

    def _enter(self) -> None:
        with self._changed:
            while self._owner is not None:
                self._changed.wait()
            self._sending += 1

    def _leave(self) -> None:
        with self._changed:
            self._sending -= 1
            if not self._sending:
                self._changed.notify_all()

    # --- requests -----------------------------------------------------------------------------

    def send(
        self, messages: Mapping[int, Message], recorded: bool, after: After | None
    ) -> dict[int, pb.Reply]:
        """Send; where a server is lost, recover from that, and send once more."""
        if self._broken_off is not None:
            self.heal(self._broken_off, self.recoveries)
        for _ in range(MOST_LOSSES):
            seen, answered = self.recoveries, dict[int, pb.Reply]()
            try:
                return self._once(messages, recorded, after, answered)
            except ServerLost as error:
                if not self._is_curable(error):
                    raise
                try:
                    self.heal(error, seen)
                except BaseException as final:
                    if after is not None:
                        after(answered, final if isinstance(final, Exception) else error)
                    raise
                messages = self._renew(messages)
        return self._once(messages, recorded, after, None)

    def _once(
        self,
        messages: Mapping[int, Message],
        recorded: bool,
        after: After | None,
        answered: dict[int, pb.Reply] | None,
    ) -> dict[int, pb.Reply]:
        """One attempt. A curable loss is not told to ``after``; ``answered`` gets the replies."""
        attending = answered is not None

        def told(replies: dict[int, pb.Reply], error: Exception | None) -> None:
            if error is None:
                self._note(messages, replies)
            elif attending and answered is not None and self._is_curable(error):
                answered.update(replies)
                return
            elif recorded:
                self._note_frees(messages)
            if after is not None:
                after(replies, error)

        self._enter()
        try:
            return self._send(messages, recorded=recorded, after=told)
        except BaseException:
            attending = False  # after Ctrl-C who sends next is told how it ended
            raise
        finally:
            self._leave()

    def _is_curable(self, error: Exception) -> bool:
        return self.recover is not None and type(error) in _CURABLE

    def heal(self, error: ServerLost, seen: int) -> None:
        """Recover from a loss, unless that was done since there were ``seen`` recoveries.

        Raises ``error`` where it cannot be done.
        """
        with self.alone():
            if self.recoveries != seen or self.recover is None:
                return  # another thread was here
            if self._refusals:
                self.gave_up = True
                error.add_note(
                    "the session does not recover by itself: since its last checkpoint "
                    f"{self._refusals[-1][1]}"
                )
                raise error
            self._broken_off = error
            try:
                self.recover(error)
            except ReplayDiverged:
                self._refusals.append((self.mark(), "a server has computed other bits"))
                self.gave_up, self._broken_off = True, None
                raise
            self._broken_off = None
            self.recoveries += 1

    # --- what is noted ----------------------------------------------------------------------------

    def _note(self, messages: Mapping[int, Message], replies: Replies) -> None:
        kind = next(iter(messages.values())).request.WhichOneof("body") or ""
        if kind in _WITHOUT_EFFECT:
            return
        if refusal := _refusal(messages, kind):
            with self._changed:
                self._refusals.append((self._first + len(self._entries), refusal))
            return
        kept, size = {}, 0
        for server, message in messages.items():
            kept[server] = one = _kept(message, kind)
            size += _ENTRY_BYTES + len(one.request) + sum([part.nbytes for part in one.payload])
        digests = {server: _digest(reply) for server, reply in replies.items()}
        with self._changed:
            self._entries.append(_Entry(kept, digests, size))
            self._nbytes += size

    def _note_frees(self, messages: Mapping[int, Message]) -> None:
        """Of a request that was refused: they took effect all the same."""
        freeing = {}
        for server, one in messages.items():
            if one.request.frees:
                request = pb.Request()
                request.CopyFrom(one.request)
                request.nothing.SetInParent()  # instead of its body
                freeing[server] = Message(request)
        if freeing:
            self._note(freeing, dict.fromkeys(freeing, pb.Reply()))

    def mark(self) -> int:
        """The number of the next request. A pin of now includes the requests before it."""
        with self._changed:
            return self._first + len(self._entries)

    def cut(self, mark: int, base: str) -> None:
        """There is a checkpoint of that name with all requests before ``mark``: forget these."""
        with self._changed:
            count = max(0, mark - self._first)
            self._nbytes -= sum(one.nbytes for one in self._entries[:count])
            del self._entries[:count]
            self._first += count
            self._refusals = [one for one in self._refusals if one[0] >= mark]
            self.base = base

    # --- after a loss -----------------------------------------------------------------------------

    def replay(self) -> int:
        """Send all again, to servers as the checkpoint has them; how many. By who is ``alone``.

        Raises ``ReplayDiverged`` where a server answers otherwise than then.
        """
        for number, entry in enumerate(self._entries):
            messages = self._renew(
                {
                    server: Message(
                        pb.Request.FromString(one.request), one.payload, None, one.complete
                    )
                    for server, one in entry.messages.items()
                }
            )
            replies = self._send(messages)
            for server, reply in replies.items():
                if _digest(reply) != entry.digests.get(server):
                    kind = messages[server].request.WhichOneof("body")
                    raise ReplayDiverged(
                        f"request {number + 1} of {len(self._entries)} since the last checkpoint, "
                        f"a {kind!r}, gave other numbers on server {server} than before the loss: "
                        "the server that took the place of the lost one computes other bits (see "
                        "distvec status); restore a checkpoint, or make the arrays again"
                    )
        return len(self._entries)


def _refusal(messages: Mapping[int, Message], kind: str) -> str:
    """Why a request cannot be sent again, or nothing."""
    if kind == "copy" and any(
        one.request.copy.share or one.request.copy.last for one in messages.values()
    ):
        return "it has shared an array that others change"
    return "" if kind in _REPLAYED else f"it has sent a request that is not repeated: {kind}"


def _kept(message: Message, kind: str) -> _Kept:
    """A copy of a message in memory of its own."""
    request, payload, complete = message.request, message.payload, message.complete
    if kind == "change_rows" and complete is not None:  # it would look at the caller's keys
        request = pb.Request()
        request.CopyFrom(message.request)
        payload, complete = complete(request) or payload, None
    copies = [np.frombuffer(part, np.uint8).copy().data for part in payload]
    return _Kept(request.SerializeToString(), copies, complete)


def _digest(reply: pb.Reply) -> int:
    return hash(tuple(reply.partials))
