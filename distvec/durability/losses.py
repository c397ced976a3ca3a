"""Whether servers were lost, and until when they are waited for."""

from __future__ import annotations

import time

from ps_backend.client import Client
from ps_backend.errors import BufferLost, ServerLost

_WAIT_SECONDS = 60.0
"""For others in the place of lost servers, beyond what each request waits."""

_PAUSE_SECONDS = 0.5


def is_loss(error: BaseException) -> bool:
    """Is it said to be one?"""
    return isinstance(error, ServerLost | BufferLost)


def is_changed(client: Client, lives: tuple[int, ...]) -> bool:
    """Have servers been lost, or replaced, since they had these ``lives``? A message each."""
    try:
        client.greet()
    except ServerLost:
        return True
    return client.lives != lives


def await_all(client: Client) -> None:
    """Wait until all servers answer, and have the session. Raises ``ServerLost``."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            client.greet()
        except ServerLost:
            if not client.is_replaced or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return
