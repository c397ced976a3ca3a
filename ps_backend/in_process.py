"""The server in the client's own process: same messages, same service, no sockets.

Small programs that have run before take no message either: see ``client/programs.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
import numpy.typing as npt

from ps_backend.arguments import NO_EXTENSIONS, Extensions, default_budget, server_count
from ps_backend.client import Client
from ps_backend.program.sweep import SweepCall
from ps_backend.server.commands.command import Payload
from ps_backend.server.service import Service
from ps_backend.transport.base import Answer
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import Parts, copy_chunks


class InProcess:
    """A transport that hands the messages to a ``Service``. Bulk data is copied once."""

    generation = 0
    is_replaced = False
    bulk_way = "copied within the process"

    def __init__(self, service: Service, address: str) -> None:
        self.service = service
        self.address = address

    def begin_anew(self, generation: int) -> bool:
        """No: nobody else has its place."""
        return False

    def call(
        self, request: pb.Request, payload: Parts = (), into: memoryview | None = None
    ) -> Answer:
        """Send and wait, on the calling thread."""
        size = request.payload = sum(map(len, payload))
        response = self.service.handle(request, Payload(size, payload))
        received = response.reply.ByteSize()
        if into is not None and not response.reply.HasField("error"):
            received += copy_chunks(response.parts, into)
        return Answer(response.reply, request.ByteSize() + size, received)

    def start(
        self, request: pb.Request, payload: Parts = (), into: memoryview | None = None
    ) -> Future[Answer]:
        """Run now: there is nobody else to run it."""
        done: Future[Answer] = Future()
        done.set_result(self.call(request, payload, into))
        return done

    promise = start

    def run_small(
        self, sender: pb.Request, calls: Sequence[SweepCall], frees: Sequence[int]
    ) -> list[npt.NDArray[np.generic]] | None:
        """As ``Service.run_small``: small programs that ran before need no message here."""
        return self.service.run_small(sender, calls, frees)

    def close(self) -> None:
        """Nothing to end."""


def connect_in_process(
    servers: int,
    *,
    memory: int | None = None,
    extensions: Extensions = NO_EXTENSIONS,
    former: Client | None = None,
) -> Client:
    """A client of servers inside this process: the same code and messages, but no sockets.

    ``memory``: budget of each in bytes; an equal share of 80 % of the machine's by default.
    ``former``: the client whose arrays are to come here.
    """
    transports = in_process_transports(servers, memory=memory, extensions=extensions)
    return Client(transports, former=former)


def in_process_transports(
    servers: int, *, memory: int | None = None, extensions: Extensions = NO_EXTENSIONS
) -> list[InProcess]:
    """Transports to as many new servers, which reach each other by plain calls."""
    servers = server_count(servers)
    budget = default_budget(servers) if memory is None else memory
    made = [
        InProcess(Service(memory=budget, extensions=extensions), f"in-process:{k}")
        for k in range(servers)
    ]
    by_address = {transport.address: transport for transport in made}
    for transport in made:
        transport.service.peers.reach_by(by_address.__getitem__)
    return made
