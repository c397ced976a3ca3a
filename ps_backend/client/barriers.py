"""Barriers of the session as a client sees them: rounds, mailboxes, and how it waits at them."""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ps_backend.client.connection import Connection
from ps_backend.client.fan_out import Send
from ps_backend.client.requests import Change, Messages, Requests, StoredArray, stored_values
from ps_backend.client.server_link import Message
from ps_backend.client.signals import defer_signals
from ps_backend.program.spaces import Space
from ps_backend.program.types import ArrayType
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import encode_array
from ps_backend.wire.protocol import (
    LONGEST_WAIT_SECONDS,
    Crowded,
    ReleaseStep,
    TooEarly,
    Total,
    Winner,
    byte_view,
    check_size,
)

_CROWDED_PAUSE_SECONDS = 0.05

Result = TypeVar("Result")


def long_poll(
    ask: Callable[[float], Result],
    timeout: float = math.inf,
    is_over: Callable[[], bool] = lambda: False,
) -> Result | None:
    """What ``ask(seconds)`` returns, asked again while it raises ``TooEarly`` or ``Crowded``.

    None after ``timeout`` seconds, or once it ``is_over``, which is looked at every ten seconds.
    """
    deadline = time.monotonic() + timeout
    while not is_over():
        left = max(0.0, deadline - time.monotonic())
        try:
            return ask(min(left, LONGEST_WAIT_SECONDS))
        except TooEarly:
            pass
        except Crowded:
            time.sleep(min(left, _CROWDED_PAUSE_SECONDS))
        if time.monotonic() >= deadline:
            return None
    return None


Answers = dict[int, bytes]
"""By key."""


class Barrier:
    """What many contribute to, and wait for, on the servers of a session. Thread-safe."""

    _kind: ClassVar[str]

    def __init__(self, name: str, requests: Requests, send: Send) -> None:
        self.name, self.servers = name, requests.servers
        self._requests, self._send = requests, send
        self._called = pb.Barrier(kind=self._kind, name=name)

    def close(self) -> None:
        """End it: who waits, or comes later, hears so by an error. One message a server."""
        self._send(self._to_all("end"), recorded=False)

    def _to(self, servers: Iterable[int], request: str, **fields: object) -> Messages:
        """A request of that kind to each of ``servers``, with the fields that are not None."""
        return self._requests.each(servers, request, barrier=self._called, **fields)

    def _to_all(self, request: str, **fields: object) -> Messages:
        return self._to(range(self.servers), request, **fields)


class Question(NamedTuple):
    """What is asked, and a number above that of all questions before."""

    number: int
    value: bytes


class Mailbox(Barrier):
    """Questions for many to wait for, and their answers. Thread-safe.

    Those who wait do so at one server, the mailbox's home; for values that come along they wait on
    the servers that hold these. A question whose answers make a total is asked on all servers that
    hold some of it, too, and answered there. Waits raise
    ``MailboxClosed`` if there is no such mailbox: ``open`` it first.
    """

    _kind = "mailbox"

    def __init__(
        self, name: str, requests: Requests, send: Send, new_number: Callable[[], int]
    ) -> None:
        """``new_number``: 0 or more, each larger than all before."""
        super().__init__(name, requests, send)
        self._new_number = new_number
        self._home = zlib.crc32(name.encode()) % requests.servers
        self._last_about: Space | None = None

    # --- for who asks -----------------------------------------------------------------------------

    def open(self) -> None:
        """Let others wait. One message a server."""
        self._send(self._to_all("wait", ask={"value": b""}), recorded=False)

    def ask(
        self, value: bytes, about: StoredArray | None = None, total: StoredArray | None = None
    ) -> Asked:
        """A question of at most 64 KiB, which ends the one before. It leaves with the first wait.

        ``about``: an array that those who wait may get along with it. ``total``: to be made of what
        the answers contribute, added to zeros in the order of the keys.
        """
        check_size(value)
        waiting = [] if self._last_about is None else self._last_about.holders(self.servers)
        if about is not None:
            self._last_about = about.type.space
        return Asked(self, Question(1 + self._new_number(), value), about, total, waiting)

    # --- for who answers --------------------------------------------------------------------------

    def question(
        self, after: int, timeout: float, along: tuple[ArrayType, np.ndarray] | None = None
    ) -> Question | None:
        """The question as soon as its number is above ``after``; None after ``timeout`` seconds.

        ``along``: with the values that it is about, of that type, into that memory; ``NotAlong`` if
        it is about others. One message, or one to each server that holds some of the values, and
        again each ten seconds.
        """
        servers = [self._home] if along is None else along[0].space.holders(self.servers)
        rows = None if along is None else {"array": encode_array(0, along[0])}

        def ask(seconds: float) -> Question:
            messages = self._to(servers, "wait", turn=after, seconds=seconds, rows=rows)
            for server, message in messages.items():
                if along is not None:
                    low, high = along[0].space.range_of(server, self.servers)
                    message.into = byte_view(along[1][low:high])
            replies = self._send(messages, recorded=False)
            first, *others = (reply.asked for reply in replies.values())
            if any(other.question != first.question for other in others):
                raise TooEarly("the question changed meanwhile")
            return Question(first.question, first.value)

        return long_poll(ask, timeout)

    def answer(
        self,
        number: int,
        key: int,
        value: bytes,
        space: Space | None = None,
        change: Change | None = None,
    ) -> None:
        """Answer question ``number``; of several answers under a key the first counts.

        ``space``: of the total, if one is to be made; ``change``: what this contributes to it. What
        comes too late is dropped without a word. One message a server that was asked.
        """
        check_size(value)
        servers = self._asked(space)
        messages = self._to(servers, "contribute", turn=number, member=key, value=value)
        if space is not None and change is not None:
            type, given = stored_values(space, change.values)
            for server, share in self._requests.filled(0, type, change.indices, given):
                share.describe(messages[server].request.contribute.rows.add())
                messages[server].payload = share.payload
        self._send(messages, recorded=True)

    # --- inside -----------------------------------------------------------------------------------

    def _asked(self, space: Space | None) -> list[int]:
        """Where a question is asked whose answers make a total of that ``space``."""
        holders = [] if space is None else space.holders(self.servers)
        return sorted({self._home, *holders})


class Asked:
    """A question under way. One thread works with it."""

    def __init__(
        self,
        mailbox: Mailbox,
        question: Question,
        about: StoredArray | None,
        total: StoredArray | None,
        waiting: Iterable[int] = (),
    ) -> None:
        """``waiting``: servers where others may wait for values that come along."""
        self._mailbox, self._question = mailbox, question
        self._about = None if about is None else about.describe()
        self._total = None if total is None else total.describe()
        self._by_server: dict[int, Answers | None] = dict.fromkeys(
            mailbox._asked(None if total is None else total.type.space)
        )
        self._woken = set(waiting) - set(self._by_server)
        """Servers that are asked once, so that those who wait there look elsewhere."""
        self.number = question.number
        self.count = 0
        """How many have answered everywhere, as of the last wait."""

    def answers(self, count: int, timeout: float) -> list[Answers] | None:
        """The answers on each server that was asked, once there are ``count``; None after so long.

        The total is made then. Servers may have counted different answers where who sent them was
        lost in between. One message a server, and one more each ten seconds. Raises ``PSError`` if
        there is a later question, ``MailboxClosed``, and what a server says that cannot add up.
        """

        def ask(seconds: float) -> list[Answers]:
            messages: Messages = {}
            for server, found in self._by_server.items():
                if found is None or len(found) < count:
                    messages[server] = self._message(server, count, seconds)
            woken, self._woken = self._woken, set()
            ask = pb.Ask(value=self._question.value)
            messages |= self._mailbox._to(woken, "wait", turn=self.number, ask=ask)
            for server, reply in self._mailbox._send(messages, recorded=False).items():
                if server not in woken:
                    self._by_server[server] = dict(reply.asked.answers)
            known = [found or {} for found in self._by_server.values()]
            self.count = min(map(len, known))
            if self.count < count:
                raise TooEarly("not all have answered yet")
            return known

        return long_poll(ask, timeout)

    def missing(self, keys: Iterable[int]) -> list[int]:
        """Those of ``keys`` under which there is no answer everywhere, as of the last wait."""
        known = self._by_server.values()
        return [key for key in keys if any(key not in (found or {}) for found in known)]

    def _message(self, server: int, count: int, seconds: float) -> Message:
        is_new = self._by_server[server] is None
        ask = pb.Ask(
            value=self._question.value if is_new else None,
            about=self._about if is_new else None,
            count=count,
            target=self._total,
        )
        number = self._question.number
        return self._mailbox._to([server], "wait", turn=number, seconds=seconds, ask=ask)[server]


_MOST_KEPT_BYTES = 1 << 16
"""Contributions of a round that a server may keep, once it is over, until it hears from us."""


class Rounds(Connection):
    """What a client can ask that concerns rounds, by their names."""

    def stage(
        self,
        round: str,
        partition: int,
        attempt: int,
        space: Space,
        indices: npt.ArrayLike | None,
        values: npt.ArrayLike,
        *,
        slot: int = 0,
        number: int = 0,
    ) -> None:
        """Keep a contribution to ``round`` until it is committed. One message a server.

        ``indices``: shape ``(k,)``; ``values``: ``(k, ...)``; duplicates count each. ``indices``
        None: all of the space, in order. ``slot`` says to which array of the round, ``number``
        which of this attempt's contributions to it. Staging again under the same four numbers
        replaces. Raises ``RoundClosed`` if the round is over.
        """
        messages: Messages = {}
        type, given = stored_values(space, values)
        for server, share in self._requests.filled(0, type, indices, given):
            message = messages[server] = self._requests.message(
                "contribute",
                barrier={"kind": "round", "name": round},
                member=partition,
                attempt=attempt,
                slot=slot,
                number=number,
            )
            share.describe(message.request.contribute.rows.add())
            message.payload = share.payload
        self._send(messages)

    def commit(
        self,
        round: str,
        winners: Sequence[tuple[int, int]],
        type: ArrayType,
        target: int,
    ) -> None:
        """Make ``target``: zeros plus what the winners staged. One message a server.

        ``winners``: (partition, attempt), one attempt per partition; they are added in ascending
        order of partition, everything else of the round is dropped, and the round is closed.
        Raises ``PSError`` if a winner staged nothing, and then nothing has changed.
        """
        ordered = sorted(Winner(*winner) for winner in winners)
        if len({winner.partition for winner in ordered}) != len(ordered):
            raise ValueError(
                f"round {round!r}: each partition must have one winning attempt, got {winners}"
            )
        self.commit_totals(round, [Total(target, type, ordered)])

    def commit_totals(
        self,
        round: str,
        totals: Sequence[Total],
        keyed: Mapping[int, Sequence[Winner]] = MappingProxyType({}),
    ) -> None:
        """Make all ``totals`` and close the round, or change nothing. One message a server.

        ``keyed``: by slot of a keyed space whose contributions are applied, in which order; two
        more messages a server. Raises ``PSError`` if a winner staged less than it says,
        ``OutOfBudget`` if there is no room for new keys.
        """
        if not keyed:
            self._commit_totals(round, totals)
            return
        with defer_signals():
            named = [
                pb.Total(slot=slot, winners=[pb.Winner(**one._asdict()) for one in winners])
                for slot, winners in keyed.items()
            ]
            self._release(round, ReleaseStep.RESERVE, totals=named)
            if totals:
                self._commit_totals(round, totals)
            self._release(round, ReleaseStep.KEYS)

    def _release(self, round: str, step: ReleaseStep, **fields: object) -> None:
        self._send(self._requests.to_all("release", round=round, step=step, **fields))

    def _commit_totals(self, round: str, totals: Sequence[Total]) -> None:
        done: list[int] = []
        self._check_usable()
        with defer_signals():
            try:
                replies = self._fan_out.send(
                    self._requests.commit(round, totals),
                    after=lambda replies, error: done.extend(replies if error else ()),
                )
            except Exception:
                undone = [{"target": {"buffer": total.target}} for total in totals]
                step = ReleaseStep.UNDO
                self._send(
                    self._requests.each(done, "release", round=round, totals=undone, step=step)
                )
                raise
            large = [server for server, reply in replies.items() if reply.kept > _MOST_KEPT_BYTES]
            if large:  # all have agreed: nothing will be taken back
                self._fan_out.send_unawaited(self._requests.each(large, "nothing"))

    def drop_round(self, round: str) -> None:
        """End ``round`` without a result; later stages are refused. One message a server."""
        self._send(self._requests.end_round(round), recorded=False)
