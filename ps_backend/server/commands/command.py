"""What a command of the wire is: a function of a session and a request, and its traits beside it.

To add one, write it in a file of this folder under ``@command()``, and its message in ``ps.proto``.
Without a message of its own it is a *registered* one, which ``Service(commands=...)`` takes and
``Client.call`` asks for by its name; it finds its arguments in ``request.custom``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from ps_backend.server.bounds import no_bounds, verify_sender
from ps_backend.server.sessions import ServerSession
from ps_backend.server.state.memory import MemoryBlock
from ps_backend.server.state.store import Buffer, SharedArray
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import Parts, PayloadBroken, copy_chunks


def _wanted() -> bool:
    return True


@dataclass(slots=True)
class Payload:
    """The bulk data that comes with a request: ``size`` bytes in ``chunks``, to be read once."""

    size: int
    chunks: Iterable[memoryview] = ()
    wanted: Callable[[], bool] = _wanted
    """Whether the sender still waits for the answer."""

    def expect(self, size: int) -> None:
        """Raise ``PayloadBroken`` if another size was announced; wait for the first of it.

        Asked before memory is taken: what is announced, and does not come, must take none.
        """
        if self.size != size:
            raise PayloadBroken(f"{self.size} bytes of payload announced, {size} expected")
        if size:
            chunks = iter(self.chunks)
            first = next(chunks, None)
            if first is None:
                raise PayloadBroken(f"0 of {size} bytes of payload came")
            self.chunks = chain((first,), chunks)

    def into(self, target: memoryview) -> None:
        """Copy into ``target``, of the size that was expected; ``PayloadBroken`` if less comes."""
        copy_chunks(self.chunks, target)


@dataclass(slots=True)
class Response:
    """A reply, with bulk data that lies in memory which ``keep`` holds until it is sent."""

    reply: pb.Reply
    parts: Parts = ()
    keep: Sequence[Buffer | SharedArray | MemoryBlock] = field(default=())


Run = Callable[[ServerSession, pb.Request, Payload], Response]
"""Checks first and changes the session last, so a command that raises has changed nothing."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command by its name, which is that of its message in a request unless it is registered."""

    name: str
    run: Run
    bounds: Callable[[Any], None] = no_bounds
    """Raises ``ValueError`` for a message beyond the bounds of ``limits``, before any work."""
    small: int = 0
    """A request of no more bytes is within all bounds, and not looked at."""
    repeatable: bool = False
    """Doing it again changes nothing, so its reply is not recorded. Clients send it unnumbered."""
    waits: bool = False
    """It waits for others: the time is no work of this server."""
    keeps_undo: bool = False
    """After it the last commit of a round may still be taken back."""

    def verify(self, request: pb.Request, message: str) -> None:
        """Raise ``ValueError`` that names the first field of the request beyond its bound."""
        if not self.small or request.ByteSize() > self.small:
            verify_sender(request)
            self.bounds(getattr(request, message))


def command(
    bounds: Callable[[Any], None] = no_bounds,
    *,
    small: int = 0,
    repeatable: bool = False,
    waits: bool = False,
    keeps_undo: bool = False,
) -> Callable[[Run], Command]:
    """Make a function the command of its name, with the traits that ``Command`` lists."""

    def made(run: Run) -> Command:
        name = run.__name__
        return Command(name, run, bounds, small, repeatable, waits, keeps_undo)

    return made
