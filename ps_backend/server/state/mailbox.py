"""Mailboxes: questions that many wait for, and their answers.

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

from ps_backend.errors import MailboxClosed, PSError
from ps_backend.server.state.barriers import Barrier, WaitingRoom
from ps_backend.server.state.memory import Memory, Reservation
from ps_backend.server.state.store import Rows
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.barriers import MOST_ANSWER_BYTES, check_size

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
                    f"the answers to a question of mailbox {self.name!r} have "
                    f"{answers.size + len(value)} bytes; it takes up to {MOST_ANSWER_BYTES}: put "
                    "them into arrays"
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
                    f"mailbox {self.name!r} has question {self._answers.number}, and the answers "
                    f"to question {number} are gone"
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
