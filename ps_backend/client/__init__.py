"""A client of parameter servers: what it can ask, and how requests reach them.

Who stands above imports from here; the modules beneath are the client's own.
"""

from ps_backend.client.arrays import Change, SharedArray, StoredArray
from ps_backend.client.client import Client
from ps_backend.client.counters import Counters
from ps_backend.client.interrupts import ended_by_ctrl_c, holding, holding_own, uninterrupted
from ps_backend.client.kept_arrays import Pinned, Source, WantedSpace
from ps_backend.client.key_batch import KeyBatch
from ps_backend.client.keyed import KEYS, KeySpace
from ps_backend.client.loop import Loop, Pulled
from ps_backend.client.loop_rank import LoopRank
from ps_backend.client.mailbox import Mailbox, Question
from ps_backend.client.programs import Ended
from ps_backend.client.row_call import KeyView
from ps_backend.client.selection import Indices
from ps_backend.client.server_link import RetryPolicy
from ps_backend.transport import Location, Tls, tls_of
from ps_backend.wire.keyed import SpaceCopy, SpaceState
from ps_backend.wire.narrow import KINDS as WIRES
from ps_backend.wire.rounds import OPERATIONS, Key, Total, Winner

__all__ = [
    "KEYS",
    "OPERATIONS",
    "WIRES",
    "Change",
    "Client",
    "Counters",
    "Ended",
    "Indices",
    "Key",
    "KeyBatch",
    "KeySpace",
    "KeyView",
    "Location",
    "Loop",
    "LoopRank",
    "Mailbox",
    "Pinned",
    "Pulled",
    "Question",
    "RetryPolicy",
    "SharedArray",
    "Source",
    "SpaceCopy",
    "SpaceState",
    "StoredArray",
    "Tls",
    "Total",
    "WantedSpace",
    "Winner",
    "ended_by_ctrl_c",
    "holding",
    "holding_own",
    "tls_of",
    "uninterrupted",
]
