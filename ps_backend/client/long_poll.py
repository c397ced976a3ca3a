"""Requests that wait on a server for what others do; each for some seconds, then again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

from ps_backend.wire.barriers import LONGEST_WAIT_SECONDS
from ps_backend.wire.errors import Crowded, TooEarly

_CROWDED_PAUSE_SECONDS = 0.05

Result = TypeVar("Result")


def long_poll(
    ask: Callable[[float], Result],
    timeout: float = math.inf,
    is_over: Callable[[], bool] = lambda: False,
) -> Result | None:
    """What ``ask(seconds)`` returns, asked again while it raises ``TooEarly`` or ``Crowded``.

    None after ``timeout`` seconds, or once it ``is_over``, which is looked at every ten seconds.
    """
    deadline = time.monotonic() + timeout
    while not is_over():
        left = max(0.0, deadline - time.monotonic())
        try:
            return ask(min(left, LONGEST_WAIT_SECONDS))
        except TooEarly:
            pass
        except Crowded:
            time.sleep(min(left, _CROWDED_PAUSE_SECONDS))
        if time.monotonic() >= deadline:
            return None
    return None
