"""What requests of a session wait at, by name; of that mailboxes: questions, and their answers.

A mailbox holds one question at a time, and the answers to it, each under a key. A new question,
which has a larger number, ends the old one and its answers. Of several answers under one key the
first counts; one to an older question is dropped: so a sender that is repeated, or that comes too
late, changes nothing. An answer may come before the question does, from who heard it of another
server.

Questions and answers are small; what is large lies in arrays. A question may be about one, and an
answer may contribute to a total, which is made when all have answered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from ps_backend.errors import MailboxClosed, PSError
from ps_backend.server.state.memory import Memory, Reservation
from ps_backend.server.state.store import Rows
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import LONGEST_WAIT_SECONDS, MOST_ANSWER_BYTES, Crowded, check_size

MOST_WAITING = 512
"""Waits that a server has at once: each holds one of its threads."""

_MOST_OPEN = 4096


class WaitingRoom:
    """The places for requests that wait, of all sessions of a server. Thread-safe."""

    def __init__(self, places: int = MOST_WAITING) -> None:
        self._places = threading.BoundedSemaphore(places)
        self._closed = False
        self._lock = threading.Lock()
        self.waiting = 0
        """How many requests wait now."""

    def wait(
        self, condition: threading.Condition, happened: Callable[[], bool], seconds: float
    ) -> None:
        """Wait on ``condition``, which the caller holds, until it happened or time is up.

        Raises ``Crowded`` at once if there is no place left.
        """
        if not self._places.acquire(blocking=False):
            raise Crowded("too many requests are waiting on this server; ask again later")
        with self._lock:
            self.waiting += 1
        try:
            condition.wait_for(
                lambda: self._closed or happened(), min(seconds, LONGEST_WAIT_SECONDS)
            )
        finally:
            with self._lock:
                self.waiting -= 1
            self._places.release()

    def close(self) -> None:
        """From now on nobody waits; who is waiting must be woken."""
        self._closed = True


class Barrier:
    """Requests wait here for what others bring. Subclasses hold ``_lock`` in all they do."""

    kind: ClassVar[str]
    closed_error: ClassVar[type[PSError]]
    """Raised for who waits, or comes, when it is over."""

    def __init__(self, name: str, room: WaitingRoom) -> None:
        self.name = name
        self._room = room
        self._closed = False
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)

    def close(self) -> None:
        """End it: whoever waits, or comes later, gets ``closed_error``."""
        with self._lock:
            self._closed = True
            self._clear()
            self.wake()

    def wake(self) -> None:
        """Let all who wait look around."""
        with self._lock:
            self._changed.notify_all()

    def _clear(self) -> None:
        """It is over; the lock is held."""

    def _wait(
        self, condition: threading.Condition, happened: Callable[[], bool], seconds: float
    ) -> None:
        """Wait until it happened or time is up; ``closed_error``, ``Crowded``."""
        self._refuse_closed()
        if not happened():
            self._room.wait(condition, lambda: self._closed or happened(), seconds)
            self._refuse_closed()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise self.closed_error(f"{self.kind} {self.name!r} was closed")


Kind = TypeVar("Kind", bound=Barrier)


class Barriers:
    """All of one session on one server. Thread-safe."""

    def __init__(self, room: WaitingRoom, memory: Memory) -> None:
        self._room, self._memory = room, memory
        self._open: dict[tuple[str, str], tuple[Barrier, Reservation]] = {}
        self._lock = threading.Lock()

    def open(
        self, kind: type[Kind], name: str, size: int, make: Callable[[WaitingRoom], Kind]
    ) -> Kind:
        """The one of that name, made if there is none, for which ``size`` bytes count then.

        Raises ``OutOfBudget``, or ``PSError`` if there are too many.
        """
        with self._lock:
            found = self._open.get((kind.kind, name))
            if found is None:
                if len(self._open) >= _MOST_OPEN:
                    raise PSError(
                        f"a session has at most {_MOST_OPEN} mailboxes and loops on a server; "
                        "close some"
                    )
                kept = self._memory.reserve(size + len(name), f"{kind.kind} {name!r}")
                found = self._open[kind.kind, name] = make(self._room), kept
            return found[0]  # type: ignore[return-value]

    def get(self, kind: type[Kind], name: str) -> Kind:
        """The one of that name; its ``closed_error`` if there is none."""
        found = self._open.get((kind.kind, name))
        if found is None:
            raise kind.closed_error(
                f"the server has no {kind.kind} {name!r}: it was closed, never opened, or lost "
                "with its server"
            )
        return found[0]  # type: ignore[return-value]

    def close(self, kind: type[Barrier], name: str) -> None:
        """End it. Idempotent."""
        with self._lock:
            found = self._open.pop((kind.kind, name), None)
        if found is not None:
            found[0].close()

    def close_all(self) -> None:
        """End all."""
        with self._lock:
            ended = list(self._open.values())
            self._open.clear()
        for one, _ in ended:
            one.close()

    def wake_all(self) -> None:
        """Let all who wait look around: the room was closed."""
        for one, _ in list(self._open.values()):
            one.wake()


MAILBOX_BYTES = 4 << 10
_QUESTION_BYTES = 1 << 10
_ANSWER_BYTES = 512
"""Counted for a mailbox, a question and an answer, on top of their own bytes."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, under a number above that of all before."""

    number: int
    value: bytes
    about: pb.Array | None = None


@dataclass(slots=True)
class _Answers:
    """Those to the question of that number."""

    number: int
    values: dict[int, bytes] = field(default_factory=dict)
    contributions: dict[int, Rows] = field(default_factory=dict)
    kept: list[Reservation] = field(default_factory=list)
    size: int = 0
    summed: bool = False


class Mailbox(Barrier):
    """One mailbox on one server. Thread-safe."""

    kind = "mailbox"
    closed_error = MailboxClosed

    def __init__(self, name: str, room: WaitingRoom, memory: Memory) -> None:
        super().__init__(name, room)
        self._answered = threading.Condition(self._lock)
        self._memory = memory
        self._question = Question(0, b"")
        self._kept: Reservation | None = None
        self._answers = _Answers(0)

    def ask(self, question: Question) -> None:
        """Put it in the place of the last one; again is harmless. Raises ``OutOfBudget``."""
        check_size(question.value)
        with self._lock:
            self._refuse_closed()
            if question.number > self._question.number:
                size = _QUESTION_BYTES + len(question.value)
                self._kept = self._memory.reserve(size, f"a question of mailbox {self.name!r}")
                self._question = question
                self._go_on_to(question.number)
                self._changed.notify_all()

    def question(self, after: int, seconds: float) -> Question | None:
        """The question as soon as its number is above ``after``; None if time is up.

        Raises ``MailboxClosed``, ``Crowded``.
        """
        with self._lock:
            self._wait(self._changed, lambda: self._question.number > after, seconds)
            return self._question if self._question.number > after else None

    def answer(self, number: int, key: int, value: bytes, contribution: Rows | None = None) -> None:
        """Answer question ``number``; of several answers under a key the first counts.

        What comes too late is dropped. Raises ``MailboxClosed``, ``OutOfBudget``.
        """
        check_size(value)
        with self._lock:
            self._refuse_closed()
            self._go_on_to(number)
            answers = self._answers
            if answers.number != number or key in answers.values:
                return
            if answers.size + len(value) > MOST_ANSWER_BYTES:
                raise ValueError(
                    f"the replies of tasks at mailbox {self.name!r} have "
                    f"{answers.size + len(value)} bytes, and the limit is {MOST_ANSWER_BYTES}: "
                    "put the values into arrays"
                )
            size = _ANSWER_BYTES + len(value)
            answers.kept.append(self._memory.reserve(size, f"an answer in mailbox {self.name!r}"))
            answers.values[key] = value
            answers.size += len(value)
            if contribution is not None:
                answers.contributions[key] = contribution
            self._answered.notify_all()

    def answers(
        self,
        number: int,
        count: int,
        seconds: float,
        add_up: Callable[[Sequence[Rows]], None] | None = None,
    ) -> dict[int, bytes]:
        """The answers by key once there are ``count`` of them; those that came if time is up.

        ``add_up`` gets what all contributed, in the order of the keys, when they are there, once.
        Raises ``MailboxClosed``, ``Crowded``, and ``PSError`` if there is a later question.
        """
        with self._lock:
            answers = self._answers

            def happened() -> bool:
                return self._answers.number != number or len(answers.values) >= count

            self._wait(self._answered, happened, seconds)
            if self._answers.number != number:
                raise PSError(
                    f"mailbox {self.name!r} is at request {self._answers.number}; the replies to "
                    f"request {number} have expired"
                )
            if add_up is not None and len(answers.values) >= count and not answers.summed:
                add_up([answers.contributions[key] for key in sorted(answers.contributions)])
                answers.summed = True
                answers.contributions.clear()
            return dict(answers.values)

    def wake(self) -> None:
        """Let all who wait look around."""
        with self._lock:
            super().wake()
            self._answered.notify_all()

    def _go_on_to(self, number: int) -> None:
        if number > self._answers.number:
            self._answers = _Answers(number)
            self._answered.notify_all()

    def _clear(self) -> None:
        self._answers = _Answers(self._answers.number)
        self._kept = None
