"""Clients that share no memory with their servers, as those of other hosts."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import numpy as np
import pytest

from ps_backend.client import Client
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.server.endpoints.grpc_server import Server
from ps_backend.transport import GrpcTransport
from ps_backend.transport.framed import proofs_of, shut_down, unix_address
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
def connected(
    server: Server, *, admitted: bool = False, unix: bool = False
) -> Iterator[socket.socket]:
    """A client of its own at the server's port, or Unix socket; ``admitted``: with the token."""
    family, address = socket.AF_INET, ("127.0.0.1", server.framed.port)
    if unix:
        family, address = socket.AF_UNIX, unix_address(server.framed.socket_name)
    with closing(socket.socket(family)) as made:
        made.connect(address)  # waits where the queue of a Unix socket is full
        made.settimeout(PATIENCE)
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


def break_writes(
    server: Server, monkeypatch: pytest.MonkeyPatch, when: str
) -> tuple[Callable[[], None], list[int]]:
    """What ends all connections, and the numbers of the writes that ran.

    ``when`` "before the answer": every second write loses its connection before it is answered.
    """
    handle, runs = server.service.handle, []

    def cut() -> None:
        for connection in [*server.framed._connections]:  # those that end go out meanwhile
            shut_down(connection)

    def handle_and_cut(request, payload):
        response = handle(request, payload)
        if request.WhichOneof("body") == "write":
            runs.append(request.sequence)
            if when == "before the answer" and len(runs) % 2:
                cut()
        return response

    monkeypatch.setattr(server.service, "handle", handle_and_cut)
    return cut, runs
