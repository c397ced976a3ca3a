"""Clients that share no memory with their servers, as those of other hosts."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import numpy as np

from ps_backend.client import Client
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.server.endpoints.grpc_server import Server
from ps_backend.transport import GrpcTransport
from ps_backend.transport.framed import proofs_of
from tests.ps_backend.helpers import REPEATED, TOKEN
from tests.waiting import PATIENCE

SPACE = DenseSpace(100_000)  # more than what goes in a message
FLOATS = array_type(SPACE, float)
X = np.random.default_rng(0).random(SPACE.length)


class FarAway(GrpcTransport):
    """Shares no memory and no socket with the server; counts the transfers that went over gRPC."""

    def __init__(self, address: str, **options) -> None:
        super().__init__(address, **{"token": TOKEN, "near": False, **options})
        self._shared._free.acquire()
        self.streamed = 0

    def _in_chunks(self, *arguments):
        self.streamed += 1
        return super()._in_chunks(*arguments)


@contextmanager
def far_away(servers: list[Server], **options) -> Iterator[tuple[Client, list[FarAway]]]:
    transports = [FarAway(server.address, **options) for server in servers]
    with Client(transports, retry=REPEATED) as client:
        yield client, transports


def same(client: Client, buffer: int, space: DenseSpace = SPACE, values=X) -> bool:
    return client.read(buffer, array_type(space, float)).tobytes() == values.tobytes()


@contextmanager
def connected(server: Server, *, admitted: bool = False) -> Iterator[socket.socket]:
    """Somebody at the port for framed connections, who knows the token or not."""
    with closing(socket.create_connection(("127.0.0.1", server.framed.port), PATIENCE)) as made:
        if admitted:
            ours, theirs = proofs_of(TOKEN, server.framed._admission)
            made.sendall(ours)
            assert made.recv(40, socket.MSG_WAITALL)[:32] == theirs
        yield made


def ends(connection: socket.socket) -> bool:
    try:
        return not connection.recv(1)
    except ConnectionResetError:
        return True
