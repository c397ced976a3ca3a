"""The server's side of bulk transfers through shared memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from queue import SimpleQueue

import grpc

from ps_backend.commands import Outcome, Payload
from ps_backend.proto import ps_pb2 as pb
from ps_backend.service import Service
from ps_backend.transport.segment import NEXT, SLOT_BYTES, SLOTS, Segment, pieces
from ps_backend.wire import NothingShared, PayloadBroken, encode_error

_MOST_SEGMENTS = 256


class Segments:
    """The memory of clients on this host, one segment each. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, Segment]] = {}  # by client, with the path of its file
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, client: str, there: pb.Segment) -> Segment | None:
        """The segment that ``client`` describes; None if there is no such memory here."""
        segment = self._known.get(client, (None, None))[1]
        if segment is None or not segment.is_of(there):
            self.forget(client)
            segment = Segment.attach(there)
            if segment is None:
                return None
            self.forget_dead()
            with self._lock:
                while len(self._known) >= _MOST_SEGMENTS:
                    del self._known[next(iter(self._known))]
                self._known[client] = f"/proc/{there.pid}/fd/{there.file}", segment
        return segment

    def forget(self, client: str) -> None:
        """The client needs its segment no more."""
        with self._lock:
            self._known.pop(client, None)

    def forget_dead(self) -> None:
        """Let go the memory of processes that are gone, which none else holds."""
        with self._lock:
            for client, (path, _) in list(self._known.items()):
                if not os.path.lexists(path):
                    del self._known[client]


def answer_whole(service: Service, segments: Segments, request: pb.Request) -> bytes:
    """Answer one request whose payload lies in the client's memory, as will that of the reply."""
    segment = segments.get(request.client, request.segment)
    if segment is None:
        reply = encode_error(NothingShared("no memory is shared with the client"))
    else:
        here = segment.view_whole(request.payload)
        outcome = service.handle(request, Payload(request.payload, (here,)))
        segment.fill_whole(outcome.parts)
        reply = outcome.reply
    data: bytes = reply.SerializeToString()
    return data


def serve_shared(
    service: Service,
    segments: Segments,
    request: pb.Request,
    signs: Iterator[bytes],
    context: grpc.ServicerContext,
) -> Iterator[bytes]:
    """Answer one request whose payload goes through the client's memory, piece by piece."""
    segment = segments.get(request.client, request.segment)
    if segment is None:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no memory is shared with the client")
    events: SimpleQueue[bytes | Outcome] = SimpleQueue()

    def handle() -> None:  # beside this generator, which has to say meanwhile what slots are free
        chunks = _chunks(segment, request.payload, signs, events)
        events.put(service.handle(request, Payload(request.payload, chunks)))

    threading.Thread(target=handle, name="distvec-shared", daemon=True).start()
    while isinstance(event := events.get(), bytes):
        yield event
    yield event.reply.SerializeToString()
    for number, piece in enumerate(pieces(event.parts)):
        if number >= SLOTS and next(signs, None) is None:  # waits until the slot is free
            return
        segment.fill(number, piece)
        yield NEXT


def _chunks(
    segment: Segment, size: int, signs: Iterator[bytes], events: SimpleQueue[bytes | Outcome]
) -> Iterator[memoryview]:
    """The payload of a request, each piece as it comes."""
    try:
        for number, low in enumerate(range(0, size, SLOT_BYTES)):
            if next(signs, None) is None:
                return
            yield segment.view(number, min(SLOT_BYTES, size - low))
            if low + SLOTS * SLOT_BYTES < size:  # the slot is needed once more
                events.put(NEXT)
    except grpc.RpcError:
        raise PayloadBroken("the sender left before all of its payload had come") from None
