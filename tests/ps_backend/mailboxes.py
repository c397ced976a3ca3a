"""What the tests of mailboxes share."""

from __future__ import annotations

from ps_backend.client import Client
from ps_backend.client.barriers import Mailbox
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type

LONG = 60.0
"""Seconds that no wait here may take: all are ended by somebody."""

SPACE = DenseSpace(5000)
"""Five blocks, so that each of three servers has some."""

TYPE = array_type(SPACE, float)


def opened(client: Client, name: str = "m") -> Mailbox:
    """The mailbox, as its owner has it."""
    mailbox = client.mailbox(name)
    mailbox.open()
    return mailbox
