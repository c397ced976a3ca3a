"""How requests reach a server: one small interface; the other version of it is
``in_process.py``.

Over gRPC there are two ways each for small requests (a call each, or a *pipe* that stays open) and
for bulk (a stream of chunks, or *shared* memory on one host); the first of each always works. On
one host small requests go past gRPC, over a *local socket*, as long as that works; between hosts
bulk does, over *bulk sockets*.
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
