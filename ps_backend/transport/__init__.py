"""How requests reach a server: one small interface; the other version of it is
``in_process.py``.

Over gRPC there are two ways each for small requests (a call each, or a *pipe* that stays open) and
for bulk (a stream of chunks, or *shared* memory on one host); the first of each always works. On
one host small requests go past gRPC, over a *local socket*, as long as that works; between hosts
bulk does, over *bulk sockets*.
Around them, ``Following`` goes to another address when a server was replaced, and ``Restarting``
to the one that is started at the same address.
"""

from ps_backend.transport.base import Answer, Busy, Pending, Transport, Unavailable
from ps_backend.transport.following import Directory, Following, Location, follow_all
from ps_backend.transport.over_grpc import OverGrpc
from ps_backend.transport.restarting import Restarting
from ps_backend.transport.tls import Tls, tls_of

__all__ = [
    "Answer",
    "Busy",
    "Directory",
    "Following",
    "Location",
    "OverGrpc",
    "Pending",
    "Restarting",
    "Tls",
    "Transport",
    "Unavailable",
    "follow_all",
    "tls_of",
]
