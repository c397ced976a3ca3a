"""A thread that renews the lease of a session while its client idles."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

_RENEWALS = 4
"""In the time of a lease, by an idle client that opened the session."""


def renew_in_background(
    lease: float, owner: object, renew: Callable[[], None], ended: threading.Event
) -> None:
    """Call ``renew`` a few times in each ``lease``, until ``ended`` or nobody holds ``owner``.

    ``renew`` must not hold the owner, either. The thread sleeps in between; a fork has none.
    """
    alive = weakref.ref(owner, lambda _: ended.set())

    def run() -> None:
        while not ended.wait(lease / _RENEWALS):
            if alive() is not None:
                renew()

    threading.Thread(target=run, name="distvec-lease", daemon=True).start()
