"""The board of a session: values that many wait for, and their answers.

A *topic* holds one value at a time, under a version, and the answers to it, each under a key. A new
value ends the old one and its answers. Of several answers under one key the first counts; one to an
older value is dropped: so a sender that is repeated, or that comes too late, changes nothing.

Values are small messages; what is large goes into arrays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ps_backend.errors import PSError, TopicClosed
from ps_backend.server.state.memory import Memory, Reservation
from ps_backend.wire.board import LONGEST_WAIT_SECONDS, Post, check_size
from ps_backend.wire.errors import Crowded

MOST_WAITING = 512
"""Waits that a server has at once: each holds one of its threads."""


MOST_TOPICS = 4096
MOST_ANSWER_BYTES = 32 << 20
"""Of the answers to one value: they go out in one message."""
_TOPIC_BYTES = 3 << 10
_ANSWER_BYTES = 256
"""Counted for a topic, and for an answer, on top of its own bytes."""


class WaitingRoom:
    """The places for requests that wait, of all sessions of a server. Thread-safe."""

    def __init__(self, places: int = MOST_WAITING) -> None:
        self._places = threading.BoundedSemaphore(places)
        self._closed = False

    def wait(
        self, condition: threading.Condition, happened: Callable[[], bool], seconds: float
    ) -> None:
        """Wait on ``condition``, which the caller holds, until it happened or time is up.

        Raises ``Crowded`` at once if there is no place left.
        """
        if not self._places.acquire(blocking=False):
            raise Crowded("too many requests are waiting on this server; ask again later")
        try:
            condition.wait_for(
                lambda: self._closed or happened(), min(seconds, LONGEST_WAIT_SECONDS)
            )
        finally:
            self._places.release()

    def close(self) -> None:
        """From now on nobody waits; who is waiting must be woken."""
        self._closed = True


@dataclass(slots=True)
class _Topic:
    post: Post
    posted: threading.Condition
    answered: threading.Condition
    kept: list[Reservation]
    answers: dict[int, bytes] = field(default_factory=dict)
    answer_bytes: int = 0
    closed: bool = False

    def wake(self) -> None:
        self.posted.notify_all()
        self.answered.notify_all()


class Board:
    """The topics of one session on one server. Thread-safe."""

    def __init__(self, room: WaitingRoom, memory: Memory, first_version: int = 0) -> None:
        """``first_version``: all versions here are larger."""
        self._room, self._memory = room, memory
        self._version = first_version
        self._topics: dict[str, _Topic] = {}
        self._lock = threading.Lock()

    def post(self, name: str, value: bytes) -> int:
        """Put ``value`` in the place of the topic's last one; returns its version.

        The first value opens the topic. Versions grow from post to post. Raises ``OutOfBudget``.
        """
        check_size(value)
        kept = self._memory.reserve(_TOPIC_BYTES + len(value), f"a value of topic {name!r}")
        with self._lock:
            self._version += 1
            post = Post(self._version, value)
            topic = self._topics.get(name)
            if topic is None:
                self._topics[name] = self._new(post, kept)
            else:
                topic.post, topic.answers, topic.answer_bytes = post, {}, 0
                topic.kept = [kept]
                topic.wake()
            return post.version

    def wait(self, name: str, after: int, seconds: float) -> Post | None:
        """The topic's value as soon as its version is above ``after``; None if time is up.

        Raises ``TopicClosed``, ``Crowded``.
        """
        with self._lock:
            topic = self._topic(name)
            if topic.post.version <= after:
                self._room.wait(
                    topic.posted, lambda: topic.closed or topic.post.version > after, seconds
                )
                self._refuse_closed(topic, name)
            return topic.post if topic.post.version > after else None

    def answer(self, name: str, version: int, answers: Mapping[int, bytes]) -> None:
        """Answer the value of that ``version``; of several answers under a key the first counts.

        What comes too late is dropped. Raises ``TopicClosed``, ``OutOfBudget``.
        """
        for value in answers.values():
            check_size(value)
        with self._lock:
            topic = self._topic(name)
            if topic.post.version != version:
                return
            fresh = {key: value for key, value in answers.items() if key not in topic.answers}
            size = sum(map(len, fresh.values()))
            if topic.answer_bytes + size > MOST_ANSWER_BYTES:
                raise ValueError(
                    f"the answers to a value of topic {name!r} have {topic.answer_bytes + size} "
                    f"bytes; a board takes up to {MOST_ANSWER_BYTES}: put them into arrays"
                )
            size_here = size + _ANSWER_BYTES * len(fresh)
            topic.kept.append(self._memory.reserve(size_here, f"answers in topic {name!r}"))
            topic.answers.update(fresh)
            topic.answer_bytes += size
            topic.answered.notify_all()

    def answers(self, name: str, version: int, count: int, seconds: float) -> dict[int, bytes]:
        """The answers by key once there are ``count`` of them; those that came if time is up.

        Raises ``TopicClosed``, ``Crowded``, and ``PSError`` if the topic has another value by now.
        """
        with self._lock:
            topic = self._topic(name)

            def happened() -> bool:
                return topic.closed or topic.post.version != version or len(topic.answers) >= count

            if not happened():
                self._room.wait(topic.answered, happened, seconds)
                self._refuse_closed(topic, name)
            if topic.post.version != version:
                raise PSError(
                    f"topic {name!r} has version {topic.post.version}, and the answers to version "
                    f"{version} are gone"
                )
            return dict(topic.answers)

    def close_topic(self, name: str) -> None:
        """Forget the topic; whoever waits on it gets ``TopicClosed``. Idempotent."""
        with self._lock:
            topic = self._topics.pop(name, None)
            if topic is not None:
                topic.closed = True
                topic.wake()

    def close(self) -> None:
        """Forget all topics."""
        for name in list(self._topics):
            self.close_topic(name)

    def wake_all(self) -> None:
        """Let all who wait look around: the room was closed."""
        with self._lock:
            for topic in self._topics.values():
                topic.wake()

    def _new(self, post: Post, kept: Reservation) -> _Topic:
        if len(self._topics) >= MOST_TOPICS:
            raise PSError(f"a session has at most {MOST_TOPICS} topics on a server; close some")
        posted, answered = threading.Condition(self._lock), threading.Condition(self._lock)
        return _Topic(post, posted, answered, [kept])

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise TopicClosed(
                f"the server has no topic {name!r}: it was closed, nothing was posted to it, or "
                "it was lost with its server"
            )
        return topic

    @staticmethod
    def _refuse_closed(topic: _Topic, name: str) -> None:
        if topic.closed:
            raise TopicClosed(f"topic {name!r} was closed")
