"""The server's side of bulk transfers through memory that clients on its host share with it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue

import grpc

from ps_backend.errors import OutOfBudget, PSError
from ps_backend.server.commands.command import Payload, Response
from ps_backend.server.service import Service
from ps_backend.server.sessions import attachment
from ps_backend.server.state.memory import Reservation
from ps_backend.transport.shared_memory import NEXT, SLOT_BYTES, SLOTS, WHOLE_BYTES, Segment, pieces
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import NothingShared, PayloadBroken, encode_error

_SHARE = 4
"""Segments take at most this part of the budget, so that a small one is left to arrays."""


@dataclass(frozen=True, slots=True)
class _Attached:
    path: str
    segment: Segment
    kept: Reservation

    def is_dead(self) -> bool:
        return not os.path.lexists(self.path)


class Segments:
    """One segment for each client that has one, and for each server that fetches in its name.

    They go when the client does, or their process. Thread-safe.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = threading.Lock()

    def get(self, request: pb.Request) -> Segment | None:
        """The segment that the sender describes; None if it, or room for it, cannot be had.

        Raises ``SessionUnknown`` for a sender that has not joined, ``AuthenticationError`` for one
        that names another client: it shares nothing.
        """
        attached = self._service.attached(request)
        there, memory = request.segment, self._service.memory
        name = attachment(request.client, there.pid)
        known = attached.get(name)
        if isinstance(known, _Attached) and known.segment.is_of(there):
            return known.segment
        self.forget_dead()
        most = memory.budget // _SHARE // WHOLE_BYTES
        segment = Segment.attach(there) if most else None
        if segment is None:
            return None
        with self._lock:
            attached.pop(name, None)
            if sum(map(len, self._service.all_attached())) >= most:
                return None
            try:
                kept = memory.reserve(WHOLE_BYTES, "memory shared with a client")
            except OutOfBudget:
                return None
            path = f"/proc/{there.pid}/fd/{there.file}"
            attached[name] = _Attached(path, segment, kept)
        return segment

    def forget_dead(self) -> None:
        """Let go the memory of processes that are gone, which none else holds."""
        with self._lock:
            for attached in self._service.all_attached():
                for client, one in list(attached.items()):
                    if isinstance(one, _Attached) and one.is_dead():
                        attached.pop(client, None)


def answer_whole(
    service: Service, segments: Segments, request: pb.Request, wanted: Callable[[], bool]
) -> Response:
    """Answer one request whose payload lies in the client's memory, as will that of the reply."""
    try:
        segment = segments.get(request)
        if segment is None:
            raise NothingShared("no memory is shared with the client")
        here = segment.view_whole(request.payload)
        response = service.handle(request, Payload(request.payload, (here,), wanted))
        size = sum(map(len, response.parts))
        if size > WHOLE_BYTES:
            raise ValueError(f"the answer has {size} bytes, a segment holds {WHOLE_BYTES}")
        segment.fill_whole(response.parts)
        return Response(response.reply)
    except (PSError, ValueError) as error:
        return Response(encode_error(error))


def serve_shared(
    service: Service,
    segments: Segments,
    request: pb.Request,
    signs: Iterator[bytes],
    context: grpc.ServicerContext,
) -> Iterator[bytes]:
    """Answer one request whose payload goes through the client's memory, piece by piece."""
    try:
        segment = segments.get(request)
    except PSError as error:
        yield encode_error(error).SerializeToString()
        return
    if segment is None:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no memory is shared with the client")
    events: SimpleQueue[bytes | Response] = SimpleQueue()

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
    segment: Segment, size: int, signs: Iterator[bytes], events: SimpleQueue[bytes | Response]
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
