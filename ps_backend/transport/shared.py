"""The client's side of bulk transfers through shared memory. Only short signs go over gRPC."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from itertools import islice
from queue import SimpleQueue
from typing import Any

import grpc

from ps_backend.proto import ps_pb2 as pb
from ps_backend.transport.base import Answer, Unavailable
from ps_backend.transport.segment import NEXT, SLOT_BYTES, SLOTS, Segment, pieces
from ps_backend.wire import Parts, PayloadBroken

SHARED_BYTES = SLOT_BYTES
"""From this size a payload goes through shared memory, where it can; below, chunks are as fast."""

_REFUSALS = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED)
"""What a server says that cannot share memory with us; the request was not looked at."""


class SharedBulk:
    """Bulk transfers to one server through shared memory, one at a time. Thread-safe."""

    def __init__(self, open_stream: Callable[[Iterable[bytes]], Any]) -> None:
        self._open = open_stream
        self._free = threading.Lock()  # stays taken where no memory can be shared
        self._segment: Segment | None = None

    def transfer(
        self, request: pb.Request, payload: Parts, into: memoryview | None
    ) -> Answer | None:
        """As ``Transport.call``; None if it has to go another way. Raises ``grpc.RpcError`` too."""
        if not self._free.acquire(blocking=False):
            return None
        # After a failure the server may still be busy in this memory, so it is not used again.
        segment, self._segment = self._segment, None
        possible = True
        try:
            segment = segment or Segment.create()
            if segment is None:
                possible = False
                return None
            answer = self._exchange(segment, request, payload, into)
            self._segment = segment
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
                self._free.release()

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
