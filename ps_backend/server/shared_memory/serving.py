"""The server's side of bulk transfers through shared memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import grpc

from ps_backend.errors import PSError
from ps_backend.server.commands.command import Payload, Response
from ps_backend.server.service import Service
from ps_backend.server.shared_memory.segments import Segments
from ps_backend.transport.shared_memory.segment import (
    NEXT,
    SLOT_BYTES,
    SLOTS,
    WHOLE_BYTES,
    Segment,
    pieces,
)
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.errors import NothingShared, PayloadBroken, encode_error


def answer_whole(
    service: Service, segments: Segments, request: pb.Request, wanted: Callable[[], bool]
) -> bytes:
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
        reply = response.reply
    except (PSError, ValueError) as error:
        reply = encode_error(error)
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
