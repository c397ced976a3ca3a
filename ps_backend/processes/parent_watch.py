"""A server that belongs to another process, and ends when that one does.

The parent holds the write end of the server's standard input, writes the token there and keeps it
open; when the parent ends, however it dies, the system closes the pipe. A server that is to have a
certificate first asks the parent for it, the same way. What the parent writes later are moments,
each in a line: until then the server may answer clients, by the clock ``time.monotonic``. A byte
is the answer: a sign that the process is neither stopped nor wedged. A descriptor of the parent's
process tells that it has ended also where another process inherited the pipe: then the server ends
at that moment. Where the system has no such descriptors, as Linux before 5.3, the server looks once
a second whether its parent is still the same. (PR_SET_PDEATHSIG would fire when the parent's
*thread* that started the server ends.)
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ps_backend.processes.server_process import ends_of
from ps_backend.server.endpoints.tls_identity import Identity
from ps_backend.server.service import Incarnation

_CHECK_SECONDS = 1.0
_LAST_SECONDS = 2.0
"""For requests that are running when a parent that lives asks the server to end."""


@dataclass(frozen=True, slots=True)
class Supervision:
    """What the parent told, and the way to tell it the address."""

    token: str
    report_to: int
    life: Incarnation
    identity: Identity | None = None
    """None: it serves without TLS."""

    def report(self, address: str) -> None:
        """Tell the parent that the server answers at ``address``; once."""
        _say(self.report_to, {"address": address, "pid": os.getpid()})


def supervision(stop: threading.Event) -> Supervision:
    """Take orders from standard input; ``stop`` is set when the parent is gone.

    Raises ``ValueError`` if the parent did not send its orders.
    """
    report_to = os.dup(1)
    os.dup2(2, 1)  # whatever is printed later goes to the log, not into the pipe
    told = _hear("--supervised is for the launcher: it sends the token on standard input")
    authority = str(told.get("authority", ""))
    identity = _certify(authority, report_to) if authority else None
    life = Incarnation(int(told["life"]))
    life.until = float(told["until"])
    watch = threading.Thread(
        target=_watch,
        args=(int(told["parent"]), report_to, life, stop),
        name="distvec-watch",
        daemon=True,
    )
    watch.start()
    return Supervision(str(told["token"]), report_to, life, identity)


def _certify(authority: str, report_to: int) -> Identity:
    """A certificate of the parent's authority (PEM) for a new key, which stays in this process."""
    try:
        from ps_backend.processes.certificates import held_identity, new_key
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{error}, on the machine of this server: TLS needs the package cryptography there, "
            "too; pip install 'distvec[tls]', or tls=False"
        ) from None
    key, request = new_key()
    _say(report_to, {"request": request})
    told = _hear("the parent left before it answered the request for a certificate")
    return held_identity(key, str(told["certificate"]), authority)


def _say(report_to: int, message: dict[str, object]) -> None:
    os.write(report_to, json.dumps(message).encode() + b"\n")


def _hear(otherwise: str) -> dict[str, Any]:
    """A message of the parent; ``ValueError`` with that text if none comes."""
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        raise ValueError(otherwise)
    told: dict[str, Any] = json.loads(line)
    return told


def _watch(parent: int, signs: int, life: Incarnation, stop: threading.Event) -> None:
    rest = b""
    with suppress(ProcessLookupError, BrokenPipeError):  # the parent is gone
        ends = ends_of(parent)
        while os.getppid() == parent:
            ready = select.select([0, *ends], [], [], None if ends else _CHECK_SECONDS)[0]
            if 0 not in ready:  # it has ended, or it is time to look whether it has
                continue
            said = os.read(0, 4096)
            if not said:
                break
            *moments, rest = (rest + said).split(b"\n")
            if moments:
                life.until = float(moments[-1])
                os.write(signs, b".")
        stop.set()
        select.select(ends, [], [], _LAST_SECONDS)
    os._exit(0)  # a request that is still running must not keep the process
