"""Bulk data between processes of one host, through memory that both map.

The client makes it, as an anonymous file of fixed size. The server finds it through the client's
entry in ``/proc``, which only works for processes of one user on one host and in one container,
and knows by the content that it is the right one. It has no name in any directory, so nothing is
left of it when both processes are gone, however they ended.

What fits into the segment as a whole goes with a small request like any other, which says that its
payload lies there. Larger transfers go piece by piece, with short signs over a stream.
"""

from __future__ import annotations

import fcntl
import hmac
import mmap
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from queue import SimpleQueue
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt

from ps_backend.transport.base import Answer, Unavailable
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import NothingShared, Parts, PayloadBroken

SLOTS = 4
SLOT_BYTES = 4 << 20
"""Bulk goes in pieces of this size, through the slots in turn: larger ones need fewer signs."""

NEXT = b"\0"
"""The message that a piece is in its slot, or out of it again. (No serialized one starts so.)"""

_MAGIC = b"distvec segment 1"
_NONCE_BYTES = 32
_HEADER_BYTES = 4096
WHOLE_BYTES = SLOTS * SLOT_BYTES
"""A transfer of at most this size lies in the slots as a whole, and needs no signs."""

_SIZE = _HEADER_BYTES + WHOLE_BYTES


class Segment:
    """A few slots of shared memory, for one transfer at a time."""

    def __init__(self, file: int, nonce: bytes, mapping: mmap.mmap) -> None:
        """``file``: an open descriptor, which belongs to the segment from now on."""
        self._file, self._nonce = file, nonce
        memory = np.frombuffer(mapping, np.uint8)
        self._slots = memory[_HEADER_BYTES:].reshape(SLOTS, SLOT_BYTES)

    def __del__(self) -> None:
        os.close(self._file)  # the memory goes with the last view of it

    @classmethod
    def create(cls) -> Segment | None:
        """A new one, or None where there can be none."""
        if not hasattr(os, "memfd_create"):
            return None
        try:
            file = os.memfd_create("distvec", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError:
            return None
        try:
            os.posix_fallocate(file, 0, _SIZE)  # fails here rather than at the first touch
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, _seals())
            nonce = secrets.token_bytes(_NONCE_BYTES)
            os.pwrite(file, _MAGIC + nonce, 0)
            return cls(file, nonce, _map(file))
        except OSError:
            os.close(file)
            return None

    def describe(self) -> pb.Segment:
        """What lets a server on this host ``attach``."""
        return pb.Segment(pid=os.getpid(), file=self._file, nonce=self._nonce)

    @classmethod
    def attach(cls, there: pb.Segment) -> Segment | None:
        """The segment that another process made, or None if it cannot be had here."""
        path = f"/proc/{there.pid}/fd/{there.file}"
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:
            return None
        try:
            # sealed: it cannot shrink under our feet. And only files like ours have seals at all.
            sealed = fcntl.fcntl(file, fcntl.F_GET_SEALS) == _seals()
            if sealed and os.fstat(file).st_size == _SIZE:
                content = os.pread(file, len(_MAGIC) + _NONCE_BYTES, 0)
                if hmac.compare_digest(content, _MAGIC + there.nonce):
                    return cls(file, there.nonce, _map(file))
        except OSError:
            pass
        os.close(file)
        return None

    def is_of(self, there: pb.Segment) -> bool:
        """Is it the one that another process described so?"""
        return hmac.compare_digest(self._nonce, there.nonce)

    def fill_whole(self, parts: Parts) -> None:
        """Copy all of a transfer of at most ``WHOLE_BYTES`` into the slots."""
        for number, piece in enumerate(pieces(parts)):
            self.fill(number, piece)

    def take_whole(self, target: memoryview) -> None:
        """Copy a transfer of the size of ``target`` out of the slots."""
        np.copyto(_bytes(target), self._slots.reshape(-1)[: len(target)])

    def view_whole(self, size: int) -> memoryview:
        """A transfer of ``size`` bytes as it lies in the slots."""
        return self._slots.reshape(-1)[:size].data

    def fill(self, number: int, piece: Parts) -> None:
        """Copy piece ``number`` of a transfer into its slot."""
        slot, position = self._slots[number % SLOTS], 0
        for part in piece:
            source = _bytes(part)
            np.copyto(slot[position : position + source.size], source)  # lets other threads run
            position += source.size

    def take(self, number: int, target: memoryview) -> None:
        """Copy piece ``number``, of the size of ``target``, out of its slot."""
        np.copyto(_bytes(target), self._slots[number % SLOTS][: len(target)])

    def view(self, number: int, size: int) -> memoryview:
        """Piece ``number``, of ``size`` bytes, as it lies in its slot."""
        return memoryview(self._slots[number % SLOTS][:size])


def pieces(parts: Parts) -> Iterator[list[memoryview]]:
    """``parts`` cut into pieces that fill a slot each, but for the last."""
    piece, room = [], SLOT_BYTES
    for part in parts:
        position = 0
        while position < len(part):
            view = part[position : position + room]
            piece.append(view)
            position += len(view)
            room -= len(view)
            if not room:
                yield piece
                piece, room = [], SLOT_BYTES
    if piece:
        yield piece


def _map(file: int) -> mmap.mmap:
    return mmap.mmap(file, _SIZE, mmap.MAP_SHARED | mmap.MAP_POPULATE)


def _seals() -> int:
    return fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def _bytes(view: memoryview) -> npt.NDArray[np.uint8]:
    return np.frombuffer(view, np.uint8)


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

    def begin(
        self, request: pb.Request, payload: Parts, into: memoryview | None
    ) -> WholeTransfer | None:
        """A transfer that fits into the segment as a whole; None if it has to go another way."""
        if max(request.payload, 0 if into is None else len(into)) > WHOLE_BYTES:
            return None
        segment = self._take()
        if segment is None:
            return None
        request.segment.CopyFrom(segment.describe())
        segment.fill_whole(payload)
        return WholeTransfer(self, segment, request, into)

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


class WholeTransfer:
    """A transfer whose payload lies in the segment, and so will that of the reply."""

    def __init__(
        self, bulk: SharedBulk, segment: Segment, request: pb.Request, into: memoryview | None
    ) -> None:
        self._bulk, self._segment, self._request, self._into = bulk, segment, request, into
        self.data: bytes = request.SerializeToString()
        """The request, to be sent by itself."""

    def finish(self, fetch: Callable[[], tuple[pb.Reply, int]]) -> Answer | None:
        """The answer that ``fetch`` gets; None if the server shares no memory with us."""
        segment, possible = None, True
        try:
            reply, size = fetch()
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
            return Answer(reply, len(self.data) + self._request.payload, size + reply.payload)
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
