"""A client of parameter servers: what it can ask, and how requests reach them.

Who stands above imports from here; the modules beneath are the client's own.
"""

from ps_backend.client.arrays import Change, SharedArray, StoredArray
from ps_backend.client.client import Client
from ps_backend.client.counters import Counters
from ps_backend.client.interrupts import ended_by_ctrl_c, uninterrupted
from ps_backend.client.loop import Loop, Pulled
from ps_backend.client.loop_rank import LoopRank
from ps_backend.client.mailbox import Mailbox, Question
from ps_backend.client.programs import Ended
from ps_backend.client.selection import Indices
from ps_backend.client.server_link import RetryPolicy
from ps_backend.transport import Location, Tls, tls_of
from ps_backend.wire.rounds import OPERATIONS, Total, Winner

__all__ = [
    "OPERATIONS",
    "Change",
    "Client",
    "Counters",
    "Ended",
    "Indices",
    "Location",
    "Loop",
    "LoopRank",
    "Mailbox",
    "Pulled",
    "Question",
    "RetryPolicy",
    "SharedArray",
    "StoredArray",
    "Tls",
    "Total",
    "Winner",
    "ended_by_ctrl_c",
    "tls_of",
    "uninterrupted",
]
