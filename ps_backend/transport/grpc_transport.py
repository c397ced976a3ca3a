"""The server behind gRPC, and what goes past it: framed connections, and shared memory.

Messages are serialized here and not by gRPC's stubs, so that bulk data is copied once only and the
server can check the token before it parses anything.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import grpc

from ps_backend.errors import AuthenticationError, PSError
from ps_backend.transport.base import (
    BUSY,
    TOKEN_MISSING,
    TOKEN_WRONG,
    Answer,
    Busy,
    Closed,
    Pending,
    Unavailable,
)
from ps_backend.transport.framed_client import FramedClient
from ps_backend.transport.shared_memory import SHARED_BYTES, SharedBulk, WholeTransfer
from ps_backend.transport.timeouts import (
    CLIENT_OPTIONS,
    SHORT_REQUESTS,
    SHORT_SECONDS,
    completes_handshake,
)
from ps_backend.transport.tls import Tls, open_channel
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import (
    SMALL_BYTES,
    Parts,
    chunk_field,
    chunk_frames,
    chunk_of,
    copy_chunks,
)

SERVICE = pb.DESCRIPTOR.services_by_name["ParameterServer"].full_name
TOKEN_KEY = "authorization"
PEER = "Peer"
"""What the methods' names begin with that are for other servers."""
MOST_REPLY_BYTES = 64 << 20
MOST_REQUEST_BYTES = 4 << 20
"""What a server reads as a whole before it looks at it; bulk goes in chunks."""

_OPTIONS = (
    ("grpc.max_receive_message_length", MOST_REPLY_BYTES),
    ("grpc.max_send_message_length", MOST_REQUEST_BYTES),
    *CLIENT_OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1_000),  # so long a connection may take
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Before the server ends a connection for that, which gRPC would write about to stderr: it is
    # noticed after one to two such times, and the server waits a minute.
    ("grpc.client_idle_timeout_ms", 25_000),
    ("grpc.enable_retries", 0),  # repeats are ours: they carry the same sequence number
    ("grpc.use_local_subchannel_pool", 1),  # a client shares no connection with another one
)

_MOST_TOKEN = 4096
"""Characters: half of what a server takes as headers."""

_SILENCE = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
)
"""What gRPC says when no answer came, or not in time."""

_REFUSAL = re.compile(r"HTTP proxy returned response code (\d+)")


def check_token(token: str | None) -> None:
    """Raise ``ValueError`` (without the token) if it cannot travel in the header of a request."""
    if token is None:
        return
    if len(token) > _MOST_TOKEN:
        raise ValueError(f"a token must have at most {_MOST_TOKEN} characters, got {len(token)}")
    if not (token.isascii() and token.isprintable() and token == token.strip()):
        raise ValueError("a token must be printable ASCII without blanks at its ends")


class GrpcTransport:
    """A transport over one gRPC channel. Thread-safe. Do not fork once it is made."""

    generation = 0
    is_replaced = False

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        tls: Tls | None = None,
        peer: bool = False,
        near: bool = True,
        eager: bool = False,
    ) -> None:
        """``tls``: whom to take for the server; None: nothing is encrypted.

        ``peer``: who calls is another server. ``near``: a Unix socket may be used, if the server
        is on this host. ``eager``: small requests go over a connection past gRPC also to another
        host, which holds a thread there; else once there is one for large arrays.
        """
        self.address, self._closed = address, False
        check_token(token)
        self._metadata = ((TOKEN_KEY, token),) if token is not None else None
        self._channel = open_channel(address, _OPTIONS, tls, token)
        methods = f"/{SERVICE}/{PEER if peer else ''}"
        self._unary: Any = self._channel.unary_unary(f"{methods}Call", None, None)
        self._stream: Any = self._channel.stream_stream(f"{methods}Stream", None, None)
        open_shared: Any = self._channel.stream_stream(f"{methods}Shared", None, None)
        self._shared = SharedBulk(partial(open_shared, metadata=self._metadata))
        self._runs = partial(completes_handshake, address, token=token, tls=tls)
        self._look: Any = self._channel.unary_unary(f"{methods}Look", None, None)
        self._invite: Any = self._channel.unary_unary(f"{methods}Invite", None, None)
        self._framed = FramedClient(
            address,
            token,
            tls,
            self._invitation,
            self._waits,
            MOST_REPLY_BYTES,
            near=near,
            eager=eager,
        )

    def begin_anew(self, generation: int) -> bool:
        """No: nobody else has its place."""
        return False

    @property
    def bulk_way(self) -> str:
        """How bulk data went last, for people; empty before it was needed."""
        return "shared memory" if self._shared.is_there else self._framed.way

    def find_bulk_way(self) -> str:
        """How bulk data goes to another host, found out now."""
        return self._framed.reach()

    def call(
        self, request: pb.Request, payload: Parts = (), into: memoryview | None = None
    ) -> Answer:
        """Send and wait, on the calling thread. ``PSError`` if ``close`` was called."""
        try:
            return self._call(request, payload, into)
        except ValueError as error:
            raise self._closed_or(error) from None

    def _call(self, request: pb.Request, payload: Parts, into: memoryview | None) -> Answer:
        size = _size(request, payload, into)
        whole = self._shared.begin(request, payload, into) if size > SHARED_BYTES else None
        if whole is not None:
            return self._finish(whole, self._send(whole.data), request, payload, into)
        if size > SMALL_BYTES:
            return self._bulk(request, payload, into)
        message, kind = request.SerializeToString(), request.WhichOneof("body")
        sent = self._framed.send(message, payload)
        if sent is not None:
            return self._received(request, message, sent.receive(_deadline(kind), into))
        data = _with_chunk(message, payload)
        return self._unpack(self._by_itself(data, _deadline(kind)), len(data), into)

    def start(
        self, request: pb.Request, payload: Parts = (), into: memoryview | None = None
    ) -> Pending:
        """Send now, wait later. ``PSError`` if ``close`` was called."""
        try:
            return self._start(request, payload, into)
        except ValueError as error:
            raise self._closed_or(error) from None

    def _start(self, request: pb.Request, payload: Parts, into: memoryview | None) -> Pending:
        size = _size(request, payload, into)
        whole = self._shared.begin(request, payload, into) if size > SHARED_BYTES else None
        if whole is not None:
            fetch = self._send(whole.data)
            return _Later(lambda: self._finish(whole, fetch, request, payload, into))
        if size > SMALL_BYTES:
            return _in_thread(lambda: self._bulk_or_closed(request, payload, into))
        message, kind = request.SerializeToString(), request.WhichOneof("body")
        sent = self._framed.send(message, payload)
        if sent is not None:
            return _Later(
                lambda: self._received(request, message, sent.receive(_deadline(kind), into))
            )
        data = _with_chunk(message, payload)
        call = self._unary.future(data, metadata=self._metadata, timeout=_deadline(kind))
        return _Later(lambda: self._unpack(self._from_call(call), len(data), into))

    def promise(
        self, request: pb.Request, payload: Parts = (), into: memoryview | None = None
    ) -> Future[Answer]:
        """As ``start``, for who looks up while it waits; no thread waits for a small answer."""
        try:
            if _size(request, payload, into) > SMALL_BYTES:
                return _in_thread(lambda: self.call(request, payload, into))
            data = _with_chunk(request.SerializeToString(), payload)
            future = Future[Answer]()
            kind = request.WhichOneof("body")

            def came(call: Any) -> None:
                try:
                    future.set_result(self._unpack(self._from_call(call), len(data), into))
                except Exception as error:  # noqa: BLE001 - handed over to who waits
                    future.set_exception(error)

            call = self._unary.future(data, metadata=self._metadata, timeout=_deadline(kind))
            call.add_done_callback(came)
            return future
        except ValueError as error:
            raise self._closed_or(error) from None

    def close(self) -> None:
        """End the connection. Idempotent."""
        self._closed = True
        self._framed.close()
        self._channel.close()

    def _closed_or(self, error: ValueError) -> Exception:
        """What gRPC's ValueError is about a channel that was closed, maybe by another thread."""
        if not self._closed:
            return error
        return Closed(f"the connection to {self.address} was closed meanwhile")

    def _send(self, data: bytes) -> Callable[[], tuple[pb.Reply, int]]:
        """Send a request without payload now; what is returned waits for the reply."""
        sent = self._framed.send(data)
        if sent is not None:
            return sent.receive
        call = self._unary.future(data, metadata=self._metadata)

        def receive() -> tuple[pb.Reply, int]:
            reply = self._from_call(call)
            return pb.Reply.FromString(reply), len(reply)

        return receive

    def _finish(
        self,
        whole: WholeTransfer,
        fetch: Callable[[], tuple[pb.Reply, int]],
        request: pb.Request,
        payload: Parts,
        into: memoryview | None,
    ) -> Answer:
        answer = whole.finish(fetch)
        return self._between_hosts(request, payload, into) if answer is None else answer

    def _by_itself(self, data: bytes, deadline: float | None = None) -> bytes:
        try:
            reply: bytes = self._unary(data, metadata=self._metadata, timeout=deadline)
            return self._answered(reply)
        except grpc.RpcError as error:
            raise self._failure(error) from None

    def _from_call(self, call: Any) -> bytes:
        try:
            reply: bytes = call.result()
            return self._answered(reply)
        except grpc.FutureCancelledError:
            raise Unavailable("the connection was closed") from None
        except grpc.RpcError as error:
            raise self._failure(error) from None

    def _answered(self, reply: bytes) -> bytes:
        """The server gives answers over gRPC, so it may do so past it again."""
        self._framed.mend()
        return reply

    def _bulk(self, request: pb.Request, payload: Parts, into: memoryview | None) -> Answer:
        try:
            answer = self._shared.transfer(request, payload, into)
        except grpc.RpcError as error:
            raise self._failure(error) from None
        if answer is not None:
            return answer
        return self._between_hosts(request, payload, into)

    def _bulk_or_closed(
        self, request: pb.Request, payload: Parts, into: memoryview | None
    ) -> Answer:
        try:
            return self._bulk(request, payload, into)
        except ValueError as error:
            raise self._closed_or(error) from None

    def _between_hosts(
        self, request: pb.Request, payload: Parts, into: memoryview | None
    ) -> Answer:
        message = request.SerializeToString()
        if len(message) <= MOST_REQUEST_BYTES:
            sent = self._framed.send(message, payload, large=True)
            if sent is not None:
                return self._received(request, message, sent.receive(None, into))
        answer = self._in_chunks(request, payload, into)
        self._framed.mend()
        return answer

    def _received(self, request: pb.Request, message: bytes, came: tuple[pb.Reply, int]) -> Answer:
        reply, size = came
        if reply.HasField("opened"):
            self._framed.accept(reply.opened.invitation)
        return Answer(reply, len(message) + request.payload, size)

    def _waits(self, number: int, seconds: float) -> float:
        """As ``Look``. The server's Python may be busy, and then gives no answer, but gRPC does."""
        data = pb.Connection(number=number).SerializeToString()
        soon = seconds / 8
        try:
            call = self._look.future(data, metadata=self._metadata, timeout=seconds)
        except ValueError:
            raise Unavailable("the connection was closed") from None
        try:
            told: bytes = call.result(soon)
        except grpc.FutureTimeoutError:
            if not self._runs(seconds - soon):
                raise Unavailable("the server does not respond") from None
            told = call.result() if call.done() and call.code() == grpc.StatusCode.OK else b""
        except (grpc.RpcError, grpc.FutureCancelledError):
            if not self._runs(seconds):
                raise Unavailable("the server does not respond") from None
            return 0.0
        finally:
            call.cancel()
        return float(pb.Waiting.FromString(told).seconds)

    def _invitation(self) -> pb.Invitation:
        """How requests may come past gRPC, which the server says at once."""
        try:
            data = self._invite(b"", metadata=self._metadata, timeout=SHORT_SECONDS)
            return pb.Invitation.FromString(data)
        except grpc.RpcError as error:
            raise self._failure(error) from None

    def _in_chunks(self, request: pb.Request, payload: Parts, into: memoryview | None) -> Answer:
        header = request.SerializeToString()
        replies = self._stream(_frames(header, payload), metadata=self._metadata)
        try:
            first = next(replies)
            reply = pb.Reply.FromString(first)
            received = len(first)
            if into is not None and not reply.HasField("error"):
                received += copy_chunks(map(chunk_of, replies), into)
            return Answer(reply, len(header) + request.payload, received)
        except StopIteration:
            raise Unavailable(f"{self.address} ended the stream without an answer") from None
        except grpc.RpcError as error:
            raise self._failure(error) from None
        finally:
            replies.cancel()

    def _unpack(self, data: bytes, sent: int, into: memoryview | None) -> Answer:
        reply = pb.Reply.FromString(data)
        if into is not None and not reply.HasField("error"):
            copy_chunks((memoryview(reply.chunk),), into)
        if reply.HasField("opened"):
            self._framed.accept(reply.opened.invitation)
        return Answer(reply, sent, len(data))

    def _failure(self, error: Any) -> Exception:
        code, details = error.code(), error.details()
        if code == grpc.StatusCode.UNAUTHENTICATED:
            return AuthenticationError(f"{self.address} refused the request: {details}")
        if code in _SILENCE:
            return self._not_let_in(details) or Unavailable(details)
        if code == grpc.StatusCode.RESOURCE_EXHAUSTED and details == BUSY:
            return Busy(details)
        if code == grpc.StatusCode.UNIMPLEMENTED:
            return PSError(f"what answers at {self.address} is not a distvec server: {details}")
        return PSError(f"the request to {self.address} failed with {code.name}: {details}")

    def _not_let_in(self, details: str) -> Exception | None:
        """What gRPC tells of a refusal before any call, which it takes for that of a proxy."""
        refusal = _REFUSAL.search(details)
        if refusal is None or refusal[1] == "503":  # there is no room now
            return None
        if refusal[1] == "407":
            why = TOKEN_MISSING if self._metadata is None else TOKEN_WRONG
            return AuthenticationError(f"{self.address} refused the request: {why}")
        return PSError(f"what answers at {self.address} is not a distvec server: {details}")


class _Later:
    """An answer on its way, which ``wait`` waits for."""

    def __init__(self, wait: Callable[[], Answer]) -> None:
        self._wait = wait

    def result(self) -> Answer:
        return self._wait()


def _size(request: pb.Request, payload: Parts, into: memoryview | None) -> int:
    """The bytes of the larger payload; that of the request is noted in it."""
    request.payload = sum(map(len, payload))
    return max(request.payload, 0 if into is None else len(into))


def _with_chunk(message: bytes, payload: Parts) -> bytes:
    return message + chunk_field(payload) if payload else message


def _deadline(kind: str | None) -> float | None:
    """Seconds; None for what may take long, and is given up only with the connection."""
    return SHORT_SECONDS if kind in SHORT_REQUESTS else None


def _frames(header: bytes, payload: Parts) -> Iterator[bytes]:
    yield header
    yield from chunk_frames(payload)


def _in_thread(work: Callable[[], Answer]) -> Future[Answer]:
    """Run ``work`` in a thread of its own: a stream is read by whoever waits for it."""
    future: Future[Answer] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - handed over to the thread that waits
            future.set_exception(error)

    threading.Thread(target=run, name="distvec-bulk", daemon=True).start()
    return future
