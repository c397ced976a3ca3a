"""The peer of our transport: gRPC that does nothing else, in a server process of its own.

Raw bytes, generic handlers, no serializer: echo a message, stream bytes out, take bytes in.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt

CHUNK = 1 << 20
_SERVICE = "bench.Bare"
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class BareClient:
    """Calls of the three methods."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address, options=_OPTIONS)
        self.echo = self.channel.unary_unary(f"/{_SERVICE}/Echo")
        self._pull = self.channel.unary_stream(f"/{_SERVICE}/Pull")
        self._push = self.channel.stream_unary(f"/{_SERVICE}/Push")

    def pull(self, into: npt.NDArray[np.uint8]) -> None:
        """Fill ``into`` from the server's stream."""
        at = 0
        for chunk in self._pull(str(into.size).encode()):
            into[at : at + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
            at += len(chunk)

    def push(self, data: npt.NDArray[np.uint8]) -> None:
        """Stream ``data`` to the server, which copies it into a buffer."""
        self._push(_chunks(data))


@contextmanager
def bare_server() -> Iterator[BareClient]:
    """A server process and a client of it."""
    command = [sys.executable, "-m", "benchmarks.bare_grpc"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("the server process has no pipes")
        client = BareClient(f"127.0.0.1:{int(process.stdout.readline())}")
        try:
            yield client
        finally:
            client.channel.close()
            process.stdin.close()  # it ends when its input does


def _chunks(data: npt.NDArray[np.uint8]) -> Iterator[bytes]:
    for at in range(0, data.size, CHUNK):
        yield data[at : at + CHUNK].tobytes()


def _echo(request: bytes, _: Any) -> bytes:
    return request


class _Store:
    """One buffer to send from and to copy into."""

    def __init__(self) -> None:
        self.data = np.zeros(0, dtype=np.uint8)

    def pull(self, request: bytes, _: Any) -> Iterator[bytes]:
        self._resize(int(request))
        return _chunks(self.data)

    def push(self, chunks: Iterator[bytes], _: Any) -> bytes:
        at = 0
        for chunk in chunks:
            self._resize(max(self.data.size, at + len(chunk)))
            self.data[at : at + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
            at += len(chunk)
        return b""

    def _resize(self, size: int) -> None:
        if self.data.size != size:
            self.data = np.resize(self.data, size)


def _serve() -> None:
    store = _Store()
    handlers = {
        "Echo": grpc.unary_unary_rpc_method_handler(_echo),
        "Pull": grpc.unary_stream_rpc_method_handler(store.pull),
        "Push": grpc.stream_unary_rpc_method_handler(store.push),
    }
    server = grpc.server(ThreadPoolExecutor(4), options=_OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(None)


if __name__ == "__main__":
    _serve()
