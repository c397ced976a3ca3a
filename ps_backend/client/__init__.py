"""A client of parameter servers: what it can ask, and how requests reach them.

Who stands above imports from here; the modules beneath are the client's own.
"""

from __future__ import annotations

from ps_backend.client.barriers import Mailbox, Question
from ps_backend.client.client import Client
from ps_backend.client.counters import Counters
from ps_backend.client.files import Pinned, Source, WantedSpace
from ps_backend.client.journal import MOST_LOSSES, Journal
from ps_backend.client.keyed import KEYS, KeyBatch, KeySpace, KeyView
from ps_backend.client.loop import Loop, LoopRank, Pulled
from ps_backend.client.programs import Ended
from ps_backend.client.requests import Change, Indices, SharedArray, StoredArray
from ps_backend.client.server_link import RetryPolicy
from ps_backend.client.signals import (
    cancel_on_ctrl_c,
    defer_signals,
    hold_lock,
    hold_lock_if_handled,
)
from ps_backend.transport import Location, Tls, tls_of
from ps_backend.transport.messages import MessageClient, ask_once
from ps_backend.wire.keyed import SpaceCopy, SpaceState
from ps_backend.wire.protocol import OPERATIONS, Key, Total, Winner
from ps_backend.wire.quantize import KINDS as WIRES

__all__ = [
    "KEYS",
    "MOST_LOSSES",
    "OPERATIONS",
    "WIRES",
    "Change",
    "Client",
    "Counters",
    "Ended",
    "Indices",
    "Journal",
    "Key",
    "KeyBatch",
    "KeySpace",
    "KeyView",
    "Location",
    "Loop",
    "LoopRank",
    "Mailbox",
    "MessageClient",
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
    "ask_once",
    "cancel_on_ctrl_c",
    "defer_signals",
    "hold_lock",
    "hold_lock_if_handled",
    "tls_of",
]
