"""The client's side of bulk transfers through shared memory.

What fits into the segment as a whole goes with a small request like any other, which says that its
payload lies there. Larger transfers go piece by piece, with short signs over a stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from itertools import islice
from queue import SimpleQueue
from typing import Any

import grpc

from ps_backend.transport.base import Answer, Unavailable
from ps_backend.transport.shared_memory.segment import (
    NEXT,
    SLOT_BYTES,
    SLOTS,
    WHOLE_BYTES,
    Segment,
    pieces,
)
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.chunks import Parts
from ps_backend.wire.errors import NothingShared, PayloadBroken

SHARED_BYTES = 1 << 16
"""A payload above this size goes through shared memory, where it can: 0.9 ms for 128 KiB."""

_REFUSALS = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED)
"""What a server says that cannot share memory with us; the request was not looked at."""


class SharedBulk:
    """Bulk transfers to one server through shared memory, one at a time. Thread-safe."""

    def __init__(self, open_stream: Callable[[Iterable[bytes]], Any]) -> None:
        self._open = open_stream
        self._free = threading.Lock()  # stays taken where no memory can be shared
        self._segment: Segment | None = None

    @property
    def is_there(self) -> bool:
        """Whether the last transfer came about."""
        return self._segment is not None

    def begin(self, request: pb.Request, payload: Parts, into: memoryview | None) -> Whole | None:
        """A transfer that fits into the segment as a whole; None if it has to go another way."""
        if max(request.payload, 0 if into is None else len(into)) > WHOLE_BYTES:
            return None
        segment = self._take()
        if segment is None:
            return None
        request.segment.CopyFrom(segment.describe())
        segment.fill_whole(payload)
        return Whole(self, segment, request, into)

    def transfer(
        self, request: pb.Request, payload: Parts, into: memoryview | None
    ) -> Answer | None:
        """As ``Transport.call``; None if it has to go another way. Raises ``grpc.RpcError`` too."""
        segment = self._take()
        if segment is None:
            return None
        kept, possible = None, True
        try:
            answer = self._exchange(segment, request, payload, into)
            kept = segment
            return answer
        except StopIteration:
            raise Unavailable("the server ended the stream without an answer") from None
        except grpc.RpcError as error:
            if error.code() not in _REFUSALS:
                raise
            possible = False
            return None
        finally:
            request.ClearField("segment")
            if possible:
                self.put_back(kept)

    def put_back(self, segment: Segment | None) -> None:
        """End a transfer. None after a failure: the server may still be busy in that memory."""
        self._segment = segment
        self._free.release()

    def _take(self) -> Segment | None:
        """The segment; None if another transfer has it, or there can be none. Then ``put_back``."""
        if not self._free.acquire(blocking=False):
            return None
        segment, self._segment = self._segment, None
        return segment or Segment.create()

    def _exchange(
        self, segment: Segment, request: pb.Request, payload: Parts, into: memoryview | None
    ) -> Answer:
        request.segment.CopyFrom(segment.describe())
        header = request.SerializeToString()
        signs: SimpleQueue[bytes | None] = SimpleQueue()
        signs.put(header)
        replies = self._open(iter(signs.get, None))
        try:
            first = _push(segment, payload, signs, replies)
            reply = pb.Reply.FromString(first)
            received = len(first)
            if into is not None and not reply.HasField("error"):
                if reply.payload != len(into):
                    raise PayloadBroken(f"{reply.payload} bytes came, {len(into)} were expected")
                _pull(segment, into, signs, replies)
                received += len(into)
            return Answer(reply, len(header) + request.payload, received)
        finally:
            signs.put(None)
            replies.cancel()


class Whole:
    """A transfer whose payload lies in the segment, and so will that of the reply."""

    def __init__(
        self, bulk: SharedBulk, segment: Segment, request: pb.Request, into: memoryview | None
    ) -> None:
        self._bulk, self._segment, self._request, self._into = bulk, segment, request, into
        self.data: bytes = request.SerializeToString()
        """The request, to be sent by itself."""

    def finish(self, fetch: Callable[[], bytes]) -> Answer | None:
        """The answer that ``fetch`` gets; None if the server shares no memory with us."""
        segment, possible = None, True
        try:
            data = fetch()
            reply = pb.Reply.FromString(data)
            possible = reply.error.kind != NothingShared.__name__
            if not possible:
                return None
            if self._into is not None and not reply.HasField("error"):
                if reply.payload != len(self._into):
                    raise PayloadBroken(
                        f"{reply.payload} bytes came, {len(self._into)} were expected"
                    )
                self._segment.take_whole(self._into)
            segment = self._segment
            return Answer(reply, len(self.data) + self._request.payload, len(data) + reply.payload)
        finally:
            self._request.ClearField("segment")
            if possible:
                self._bulk.put_back(segment)


def _push(
    segment: Segment, payload: Parts, signs: SimpleQueue[bytes | None], replies: Any
) -> bytes:
    """Hand ``payload`` over, each piece as its slot gets free; returns the reply."""
    numbered = enumerate(pieces(payload))
    for number, piece in islice(numbered, SLOTS):
        segment.fill(number, piece)
        signs.put(NEXT)
    data: bytes
    while (data := next(replies)) == NEXT:
        number, piece = next(numbered)
        segment.fill(number, piece)
        signs.put(NEXT)
    return data


def _pull(
    segment: Segment, into: memoryview, signs: SimpleQueue[bytes | None], replies: Any
) -> None:
    """Fill ``into``, piece by piece as they come."""
    for number, low in enumerate(range(0, len(into), SLOT_BYTES)):
        next(replies)
        segment.take(number, into[low : low + SLOT_BYTES])
        if low + SLOTS * SLOT_BYTES < len(into):  # the slot is needed once more
            signs.put(NEXT)
