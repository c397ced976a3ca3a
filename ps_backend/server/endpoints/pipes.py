"""The server's side of pipes: streams that clients keep open for their small requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

MOST_PIPES = 32
"""Each holds a thread; whoever comes later is refused, and sends each request by itself."""


class Pipes:
    """The open pipes of one server. Thread-safe."""

    def __init__(self, answer: Callable[[bytes, grpc.ServicerContext], bytes]) -> None:
        self._answer = answer
        self._idle: dict[Any, bool] = {}  # by the context of the call
        self._ending = False
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._idle)

    def serve(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Answer one request after the other, until the client or ``end`` ends the pipe."""
        with self._registered(context):
            for data in requests:
                self._idle[context] = False
                yield self._answer(data, context)
                self._idle[context] = True
                if self._ending:
                    return

    def end(self) -> None:
        """End all pipes, those with a request at work after its reply; take no new ones."""
        with self._lock:
            self._ending = True
            for context, idle in self._idle.items():
                if idle:
                    context.cancel()

    @contextmanager
    def _registered(self, context: grpc.ServicerContext) -> Iterator[None]:
        with self._lock:
            room = len(self._idle) < MOST_PIPES and not self._ending
            if room:
                self._idle[context] = True
        if not room:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no room for another pipe")
        try:
            yield
        finally:
            with self._lock:
                del self._idle[context]
