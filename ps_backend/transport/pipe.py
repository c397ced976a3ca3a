"""A stream that stays open for small requests: half the work of a call for each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import grpc

from ps_backend.transport.base import BUSY, Unavailable

_REFUSALS = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED)
"""What a server says that has no room for pipes, or no pipes; the request was not looked at."""


class PipeRefused(Exception):
    """The server wants no pipe from us; send the request by itself."""


class Pipe:
    """Requests and replies in turn, over one stream that is opened for the first of them.

    A request goes through the pipe only if nobody waits for a reply there, so no request waits for
    another one. After a failure the next request opens a new stream. Thread-safe.
    """

    def __init__(self, open_stream: Callable[[Iterable[bytes]], Any]) -> None:
        self._open = open_stream
        self._free = threading.Lock()
        self._requests: SimpleQueue[bytes | None] = SimpleQueue()
        self._replies: Any = None

    def send(self, data: bytes) -> bool:
        """Send unless somebody waits for a reply; whether it was sent. ``receive`` must follow."""
        if not self._free.acquire(blocking=False):
            return False
        try:
            if self._replies is None:
                self._requests = SimpleQueue()
                self._replies = self._open(iter(self._requests.get, None))
            self._requests.put(data)
            return True
        except BaseException:
            self._free.release()
            raise

    def receive(self, seconds: float | None = None) -> bytes:
        """Wait for the reply, so many ``seconds`` at most.

        Raises ``RpcError``, ``Unavailable`` or, once, ``PipeRefused``.
        """
        try:
            with _cancelled_after(seconds, self._replies):
                data: bytes = next(self._replies)
        except BaseException as error:  # also Ctrl-C: the next request must not get this reply
            self.close()
            self._replies = None
            if isinstance(error, grpc.RpcError) and error.code() in _REFUSALS:
                if error.details() == BUSY:
                    self._free.release()
                raise PipeRefused from None  # else the lock stays taken: nobody tries again
            self._free.release()
            if isinstance(error, StopIteration):
                raise Unavailable("the server ended the stream") from None
            raise
        self._free.release()
        return data

    def close(self) -> None:
        """End the stream, and whoever waits on it. Idempotent."""
        self._requests.put(None)
        if self._replies is not None:
            self._replies.cancel()


@contextmanager
def _cancelled_after(seconds: float | None, stream: Any) -> Iterator[None]:
    """Cancel ``stream`` if the block takes longer: its messages have no deadlines of their own."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, stream.cancel)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # so that nobody sees it who looks for threads that were left
