"""Taking over a session that has a title, from whichever driver it has."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from ps_backend.client.fan_out import Replies
from ps_backend.client.requests import Messages, Requests
from ps_backend.client.server_link import Message
from ps_backend.errors import SessionFenced

_ATTEMPTS = 8
_PAUSE_SECONDS = 0.2


def take_over(
    send: Callable[[Messages], Replies], requests: Requests, generations: Sequence[int]
) -> tuple[Replies, int]:
    """Become the driver of the session on all servers; the replies, and the number of the driver.

    Two messages a server. Whoever comes last is the driver: of two that come at once each may get
    some servers first, and then both try again, after a pause by chance. Raises ``SessionUnknown``,
    ``SessionFenced`` if another one was faster again and again.
    """

    def attach(epoch: int) -> Messages:
        return {
            server: Message(requests.attach(server, generation, epoch))
            for server, generation in enumerate(generations)
        }

    for attempt in range(1, _ATTEMPTS + 1):
        known = send(attach(0))
        epoch = 1 + max(reply.opened.epoch for reply in known.values())
        try:
            return send(attach(epoch)), epoch
        except SessionFenced:
            if attempt == _ATTEMPTS:
                raise
        time.sleep(random.uniform(0.0, _PAUSE_SECONDS))
    raise SessionFenced("other drivers were faster")
