"""A server that belongs to another process, and ends when that one does.

The parent holds the write end of the server's standard input, writes the token there and keeps it
open; when the parent ends, however it dies, the system closes the pipe. What the parent writes
later is answered by a byte: a sign that the process is neither stopped nor wedged. In case some
other process inherited the pipe from the parent, the server also looks once a second whether its
parent is still the same. (PR_SET_PDEATHSIG would fire when the parent's *thread* that
started the server ends.)
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass

_CHECK_SECONDS = 1.0
_LAST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Supervision:
    """What the parent told, and the way to tell it the address."""

    token: str
    report_to: int

    def report(self, address: str) -> None:
        """Tell the parent that the server answers at ``address``; once."""
        line = json.dumps({"address": address, "pid": os.getpid()}) + "\n"
        os.write(self.report_to, line.encode())


def supervision(stop: threading.Event) -> Supervision:
    """Take orders from standard input; ``stop`` is set when the parent is gone.

    Raises ``ValueError`` if the parent did not send its orders.
    """
    report_to = os.dup(1)
    os.dup2(2, 1)  # whatever is printed later goes to the log, not into the pipe
    orders = sys.stdin.buffer.readline()
    if not orders.endswith(b"\n"):
        raise ValueError("--supervised is for the launcher: it sends the token on standard input")
    told = json.loads(orders)
    watch = threading.Thread(
        target=_watch,
        args=(int(told["parent"]), report_to, stop),
        name="distvec-watch",
        daemon=True,
    )
    watch.start()
    return Supervision(str(told["token"]), report_to)


def _watch(parent: int, signs: int, stop: threading.Event) -> None:
    with suppress(BrokenPipeError):  # the parent is gone
        while os.getppid() == parent:
            readable, _, _ = select.select([0], [], [], _CHECK_SECONDS)
            if readable and not os.read(0, 4096):
                break
            if readable:
                os.write(signs, b".")
    stop.set()
    threading.Event().wait(_LAST_SECONDS)
    os._exit(0)  # a request that is still running must not keep the process
