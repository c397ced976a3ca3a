"""The gRPC server around a ``Service``."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from ps_backend.arguments import is_loopback
from ps_backend.server.commands.command import Payload, Response
from ps_backend.server.endpoints import authentication
from ps_backend.server.endpoints.authentication import (
    MOST_SILENT,
    Authenticator,
    CountedPool,
    IdleCallReaper,
)
from ps_backend.server.endpoints.framed_server import Context, FramedServer
from ps_backend.server.endpoints.relay_process import RelayProcess
from ps_backend.server.endpoints.shared_memory import Segments, answer_whole, serve_shared
from ps_backend.server.endpoints.tls_identity import Identity
from ps_backend.server.endpoints.tokens import Tokens
from ps_backend.server.service import Service
from ps_backend.server.state.barriers import MOST_WAITING
from ps_backend.transport.grpc_transport import MOST_REPLY_BYTES, GrpcTransport
from ps_backend.transport.timeouts import SERVER_OPTIONS
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import (
    PayloadBroken,
    chunk_field,
    chunk_frames,
    chunk_of,
    encode_error,
)

_THREADS = 64 + MOST_WAITING + MOST_SILENT
_LOOK_SECONDS = 0.5
_MOST_WHOLE_BYTES = MOST_REPLY_BYTES - (1 << 20)
"""Of bulk in the answer to a call: clients ask for so much by streams."""

_OPTIONS = (
    ("grpc.max_send_message_length", MOST_REPLY_BYTES),
    *SERVER_OPTIONS,
    *authentication.OPTIONS,
)


class Server:
    """Serves one ``Service`` on one port."""

    def __init__(
        self,
        service: Service,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        bulk_port: int = 0,
        token: str | None,
        identity: Identity | None = None,
    ) -> None:
        """Bind; ``start`` serves.

        ``port`` 0 lets the system choose; so does ``bulk_port``, where requests come past gRPC.
        ``token`` None serves anybody and is refused off the loopback. ``identity`` None serves
        without TLS. Other servers of a session are reached with the same token, and with TLS if
        this one has it. Raises ``ValueError`` for such options, ``OSError`` if an address cannot be
        had.
        """
        if not token and not is_loopback(host):
            raise ValueError(
                f"a server on {host} needs a token, as other machines can reach it; give "
                "--token-file, or --host 127.0.0.1"
            )
        self._tokens = tokens = Tokens(*([token] if token else []))
        self.service = service
        context = None if identity is None else identity.context
        handler = _Handler(service, tokens, context)
        self.framed, self._reaper, self._segments = handler.framed, handler.reaper, handler.segments
        service.peers.reach_by(
            lambda address: GrpcTransport(
                address,
                token=tokens.first,
                tls=None if identity is None else identity.reach(),
                peer=True,
            )
        )
        self._pool = CountedPool(_THREADS, "distvec-server")
        self._door, self._stopping = handler.table(tokens, self._pool), threading.Event()
        self._server = grpc.server(self._pool, options=_OPTIONS)
        self._server.add_generic_rpc_handlers((self._door,))
        credentials = None if identity is None else identity.credentials()
        self.front = RelayProcess(tokens, host, port)
        try:
            self.front.bind(lambda address: _bind(self._server, address, credentials))
            self.framed.bind(host, bulk_port)
        except BaseException:
            self.front.end()
            raise
        self.port = self.front.port
        self.address = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    def start(self) -> None:
        """Begin to serve; returns at once."""
        self.framed.start()
        self._server.start()
        self.front.start()
        threading.Thread(target=self._look_after, name="distvec-porter", daemon=True).start()

    def accept(self, tokens: Sequence[str]) -> None:
        """Let in by these tokens from now on, and show the first one to other servers.

        Clients whose token is no longer among them are refused, also in open sessions. Raises
        ``ValueError``, and then changes nothing.
        """
        if not tokens:
            raise ValueError("a server that needs a token must keep one")
        is_other = self._tokens.first != tokens[0]
        self._tokens.replace(tokens)
        self.front.renew()
        self.framed.renew()
        if is_other:
            self.service.peers.renew()

    def stop(self, grace: float = 1.0) -> None:
        """Refuse new requests, wait up to ``grace`` seconds for running ones, and end."""
        self._stopping.set()
        self.front.close()
        deadline = time.monotonic() + grace
        stopped = self._server.stop(grace)
        self.service.end_waits()
        self.framed.end(deadline)
        stopped.wait()
        self.front.end()
        self._door.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _look_after(self) -> None:
        before = time.monotonic()
        while not self._stopping.wait(_LOOK_SECONDS):
            self.front.look_after()
            self._reaper.run_out()
            self._segments.forget_dead()
            self.framed.send_away_strangers()
            now = time.monotonic()
            # Of a time in which this process was stopped, clients could make nothing.
            self.service.let_pass(min(now - before, 2 * _LOOK_SECONDS))
            before = now


class _Handler:
    """The methods of the gRPC service, on raw bytes."""

    def __init__(self, service: Service, tokens: Tokens, context: Context | None) -> None:
        self._service = service
        self.framed = FramedServer(self.respond, tokens, context)
        self.reaper = IdleCallReaper()
        self.segments = Segments(service)

    def table(self, tokens: Tokens, pool: CountedPool) -> Authenticator:
        """What gRPC calls for each method."""
        return Authenticator(
            {"Call": self._call, "Invite": self._invite, "Look": self._look},
            {"Stream": self._stream, "Shared": self._shared},
            tokens,
            pool,
        )

    def _call(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        return self._answer(next(self.reaper.each(requests, context), b""), context)

    def _invite(self, _: Iterator[bytes], __: grpc.ServicerContext) -> bytes:
        invitation: bytes = self.framed.invitation().SerializeToString()
        return invitation

    def _look(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        number = _parse(next(messages, b""), context, pb.Connection).number
        waiting = pb.Waiting(seconds=self.framed.waits(number))
        data: bytes = waiting.SerializeToString()
        return data

    def respond(self, request: pb.Request, payload: Payload) -> Response:
        """The answer to a request over whichever connection."""
        if request.HasField("segment"):
            return answer_whole(self._service, self.segments, request, payload.wanted)
        response = self._service.handle(request, payload)
        if response.reply.HasField("opened"):
            response.reply.opened.invitation.CopyFrom(self.framed.invitation())
        return response

    def _answer(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        request = _parse(data, context)
        chunk = (memoryview(request.chunk),)
        response = self.respond(request, Payload(request.payload, chunk, context.is_active))
        size = sum(map(len, response.parts))
        if size > _MOST_WHOLE_BYTES:  # before it is copied, which no budget counts
            error = ValueError(f"the answer has {size} bytes: a call takes {_MOST_WHOLE_BYTES}")
            response = Response(encode_error(error))
        reply: bytes = response.reply.SerializeToString()
        return reply + chunk_field(response.parts) if response.parts else reply

    def _stream(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        frames = self.reaper.each(messages, context)
        request = _parse(next(frames, b""), context)
        response = self._service.handle(request, Payload(request.payload, _chunks(frames)))
        return _reply_frames(response)

    def _shared(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        signs = self.reaper.each(messages, context)
        request = _parse(next(signs, b""), context)
        return serve_shared(self._service, self.segments, request, signs, context)


def _chunks(frames: Iterator[bytes]) -> Iterator[memoryview]:
    try:
        yield from map(chunk_of, frames)
    except grpc.RpcError:
        raise PayloadBroken("the sender left before all of its payload had come") from None


def _reply_frames(response: Response) -> Iterator[bytes]:
    frames = chain((response.reply.SerializeToString(),), chunk_frames(response.parts))
    yield from frames  # a generator: it holds `response`, and so the memory, until all is sent


def _parse(data: bytes, context: grpc.ServicerContext, kind: Any = pb.Request) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the message is not a request")


def _bind(server: grpc.Server, address: str, credentials: grpc.ServerCredentials | None) -> int:
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise OSError(f"gRPC cannot listen at {address}: {error}") from None
