"""How requests reach a server: one small interface; the other version of it is
``in_process.py``.

gRPC does everything: a call for each small request, a stream of chunks for bulk. What can goes past
it, over framed connections: a Unix socket on one host, where bulk goes through shared memory, and
TCP between hosts.
Around them, ``FailoverTransport`` goes to another address when a server was replaced, and
``SameAddressTransport`` to the one that is started at the same address.
"""

from __future__ import annotations

from ps_backend.transport.base import Answer, Busy, Pending, Transport, Unavailable
from ps_backend.transport.failover import (
    Directory,
    FailoverTransport,
    Location,
    SameAddressTransport,
    follow_all,
)
from ps_backend.transport.grpc_transport import GrpcTransport
from ps_backend.transport.tls import Tls, tls_of

__all__ = [
    "Answer",
    "Busy",
    "Directory",
    "FailoverTransport",
    "GrpcTransport",
    "Location",
    "Pending",
    "SameAddressTransport",
    "Tls",
    "Transport",
    "Unavailable",
    "follow_all",
    "tls_of",
]
