"""Who may call a server by gRPC, and how long it waits for what they send.

The token is looked at when a call's metadata has come, before any of its body is read: a stranger
costs a short answer, and never one of the threads that serve clients. A client that begins a call
and does not go on holds a thread, so calls that are silent for long, or the most silent ones of
many, are ended; an honest client repeats them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import grpc

from ps_backend.server.endpoints.tokens import Tokens
from ps_backend.transport.base import BUSY, TOKEN_MISSING, TOKEN_WRONG
from ps_backend.transport.grpc_transport import MOST_REQUEST_BYTES, PEER, SERVICE, TOKEN_KEY


class CountedPool(ThreadPoolExecutor):
    """Knows how many calls it has. Thread-safe."""

    def __init__(self, threads: int, name: str) -> None:
        """``name``: of its threads."""
        super().__init__(threads, thread_name_prefix=name)
        self._most_threads, self._calls = threads, 0
        self._counting = threading.Lock()

    @property
    def queued(self) -> int:
        """How many calls there are beyond the threads; less than 0 if some threads are idle."""
        return self._calls - self._most_threads

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As that of executors."""
        self._count(1)
        try:
            future = super().submit(fn, *args, **kwargs)
        except RuntimeError:  # it was shut down
            self._count(-1)
            raise
        future.add_done_callback(lambda _: self._count(-1))
        return future

    def _count(self, more: int) -> None:
        with self._counting:
            self._calls += more


MOST_SILENT = 256
"""Calls that may wait at once for their clients to go on."""

_BRIEF_SECONDS = 1.0
"""A call that has been silent for less is not ended, however many there are."""

_LONG_SECONDS = 30.0
"""A call that has been silent for so long is ended, however few there are."""

MOST_QUEUED = 2048
"""Calls that may wait for a thread, of clients, of other servers, and of strangers. An honest
client asks again; a stranger beyond is told that there is no such method, which costs no thread."""

_PEER_THREADS = 64
"""For what other servers fetch, which waits for nothing but the network."""

OPTIONS = (
    ("grpc.max_receive_message_length", MOST_REQUEST_BYTES),
    # Calls of one connection at once; gRPC's own clients wait with those beyond.
    ("grpc.max_concurrent_streams", 128),
    ("grpc.max_metadata_size", 8 << 10),
    ("grpc.absolute_max_metadata_size", 16 << 10),
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.http2.settings_timeout", 5_000),
    ("grpc.max_connection_idle_ms", 60_000),  # without calls; a client connects again in 2 ms
)


_OF_PEERS = f"/{SERVICE}/{PEER}"

UnaryMethod = Callable[[Iterator[bytes], grpc.ServicerContext], bytes]
StreamMethod = Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[bytes]]


class Authenticator(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Leads calls that carry the token to their methods, and all others out."""

    def __init__(
        self,
        calls: Mapping[str, UnaryMethod],
        streams: Mapping[str, StreamMethod],
        tokens: Tokens,
        pool: CountedPool,
    ) -> None:
        """Methods by name; one for ``calls`` gets the only message as a stream, too.

        So nothing of the body is read before a method asks for it. Without ``tokens`` all get in.
        Each method has another name for other servers, whose calls run in threads of their own: no
        program waits for another one that holds a thread. All others run in ``pool``.
        """
        self._pool = pool
        self._tokens = tokens
        self._method_handlers = _methods("", calls, streams)
        self._peers = CountedPool(_PEER_THREADS, "distvec-peer")
        for name, handler in _methods(PEER, calls, streams).items():
            handler.experimental_thread_pool = self._peers
            self._method_handlers[name] = handler
        self._strangers = CountedPool(1, "distvec-strangers")
        self._missing, self._wrong = self._refusal(TOKEN_MISSING), self._refusal(TOKEN_WRONG)
        self._busy = self._refusal(BUSY, grpc.StatusCode.RESOURCE_EXHAUSTED)

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """The handler of a call whose metadata has come."""
        refusal = self._refuse(details)
        if refusal is None:
            return self._method_handlers.get(details.method)
        if refusal is self._busy or self._strangers.queued < MOST_QUEUED:
            return refusal
        return None

    def _refuse(self, details: grpc.HandlerCallDetails) -> Any:
        """The handler of a call that is not let in; None of one that is."""
        if self._tokens:
            given = dict(details.invocation_metadata).get(TOKEN_KEY)
            if given is None:
                return self._missing
            data = given.encode() if isinstance(given, str) else given
            if not self._tokens.accepts(data):
                return self._wrong
        pool = self._peers if details.method.startswith(_OF_PEERS) else self._pool
        return self._busy if pool.queued >= MOST_QUEUED else None

    def close(self) -> None:
        """End the threads that answer strangers and other servers."""
        self._strangers.shutdown(wait=False, cancel_futures=True)
        self._peers.shutdown(wait=False, cancel_futures=True)

    def _refusal(self, text: str, code: grpc.StatusCode = grpc.StatusCode.UNAUTHENTICATED) -> Any:
        def refuse(_: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            context.abort(code, text)

        refuse.experimental_thread_pool = self._strangers  # type: ignore[attr-defined]
        return grpc.stream_stream_rpc_method_handler(refuse)


def _methods(
    prefix: str, calls: Mapping[str, UnaryMethod], streams: Mapping[str, StreamMethod]
) -> dict[str, Any]:
    handlers: dict[str, Any] = {
        **{name: grpc.stream_unary_rpc_method_handler(call) for name, call in calls.items()},
        **{name: grpc.stream_stream_rpc_method_handler(one) for name, one in streams.items()},
    }
    return {f"/{SERVICE}/{prefix}{name}": one for name, one in handlers.items()}


class IdleCallReaper:
    """The calls that wait for their clients, and since when. Thread-safe."""

    def __init__(self, most: int = MOST_SILENT) -> None:
        self._most = most
        self._silent: dict[Any, float] = {}

    def each(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """The ``messages`` of a call; ``grpc.RpcError`` if it is ended meanwhile."""
        while True:
            self._silent[context] = time.monotonic()
            try:
                message = next(messages)
            except StopIteration:
                return
            finally:
                self._silent.pop(context, None)
            yield message

    def run_out(self) -> None:
        """End the calls that have been silent for too long; to be called about once a second."""
        now = time.monotonic()
        waiting = sorted(self._silent.items(), key=lambda item: item[1])
        for rank, (context, since) in enumerate(waiting):
            crowded = len(waiting) - rank > self._most and now - since > _BRIEF_SECONDS
            if crowded or now - since > _LONG_SECONDS:
                context.cancel()
