"""A topic of the session's board (``board.py``) as a client sees it."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from ps_backend.client.fan_out import Replies
from ps_backend.client.server_link import Message
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.board import LONGEST_WAIT_SECONDS, Post, check_size
from ps_backend.wire.errors import Crowded

_CROWDED_PAUSE_SECONDS = 0.05

Result = TypeVar("Result")


class Send(Protocol):
    """How a client sends; ``recorded`` what must not be done twice."""

    def __call__(self, messages: dict[int, Message], *, recorded: bool) -> Replies:
        """Send ``messages``, by server, and wait for the replies."""


class Topic:
    """Values for many to wait for, and their answers. Thread-safe.

    One server has the whole topic. Every method sends one message, a wait one each ten seconds.
    Waits raise ``TopicClosed`` if there is no such topic: begin with ``post``.
    """

    def __init__(
        self, name: str, servers: int, request: Callable[[], pb.Request], send: Send
    ) -> None:
        """``request`` makes an empty one of the session with so many ``servers``."""
        self.name = name
        self._server = zlib.crc32(name.encode()) % servers
        self._request, self._send = request, send

    def post(self, value: bytes) -> int:
        """Put ``value``, at most 64 KiB, in the place of the last one; returns its version."""
        check_size(value)
        request = self._request()
        request.post.topic, request.post.value = self.name, value
        return self._sent(request, recorded=True).posted.version

    def wait(self, after: int, timeout: float) -> Post | None:
        """The value as soon as its version is above ``after``; None after ``timeout`` seconds."""

        def ask(seconds: float) -> Post | None:
            request = self._request()
            body = request.await_post
            body.topic, body.after, body.seconds = self.name, after, seconds
            posted = self._sent(request).posted
            return Post(posted.version, posted.value) if posted.version > after else None

        return _poll(ask, lambda post: post is not None, None, timeout)

    def answer(self, version: int, answers: Mapping[int, bytes]) -> None:
        """Answer the value of that ``version``, by key; of several answers the first counts.

        What comes too late is dropped without a word.
        """
        request = self._request()
        request.answer.topic, request.answer.version = self.name, version
        for key, value in answers.items():
            check_size(value)
            request.answer.answers[key] = value
        self._sent(request)

    def answers(self, version: int, count: int, timeout: float) -> dict[int, bytes]:
        """The answers to that ``version`` by key, once ``count`` of them have come.

        After ``timeout`` seconds, those that have. ``PSError`` if there is a later version.
        """

        def ask(seconds: float) -> dict[int, bytes]:
            request = self._request()
            body = request.await_answers
            body.topic, body.version, body.count, body.seconds = self.name, version, count, seconds
            return dict(self._sent(request).posted.answers)

        return _poll(ask, lambda answers: len(answers) >= count, {}, timeout)

    def close(self) -> None:
        """End the topic: all waits on it raise ``TopicClosed``. Idempotent."""
        request = self._request()
        request.close_topic.topic = self.name
        self._sent(request, recorded=True)

    def _sent(self, request: pb.Request, *, recorded: bool = False) -> pb.Reply:
        return self._send({self._server: Message(request)}, recorded=recorded)[self._server]


def _poll(
    ask: Callable[[float], Result],
    done: Callable[[Result], bool],
    nothing: Result,
    timeout: float,
) -> Result:
    """What ``ask`` gets, ``nothing`` at worst, once it is done or ``timeout`` seconds passed."""
    deadline = time.monotonic() + timeout
    result = nothing
    while True:
        left = max(0.0, deadline - time.monotonic())
        try:
            result = ask(min(left, LONGEST_WAIT_SECONDS))
        except Crowded:
            time.sleep(min(left, _CROWDED_PAUSE_SECONDS))
        if done(result) or time.monotonic() >= deadline:
            return result
