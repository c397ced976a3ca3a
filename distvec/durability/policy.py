"""How much a session survives: what ``durability=`` says, the checkpoints that it needs, and the
states of solvers that it keeps and brings back once servers were lost.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from distvec.array.array import DistArray
from distvec.array.core.handle import SessionBase
from distvec.durability.checkpoints import Checkpoints
from ps_backend.arguments import check_choice
from ps_backend.client import Client
from ps_backend.durability.checkpoint_directory import BrokenOff
from ps_backend.errors import BufferLost, NotDurable, PSError, ServerLost

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


class SessionKeeper:
    """Keeps checkpoints of a run by those of its session (``optim``'s ``Keeper``).

    Each holds all arrays of the session, also those that the objective needs. Where the session's
    durability is "rollback", a lost server is recovered from; else that is raised.
    """

    def __init__(self, checkpoints: Checkpoints, *, rolls_back: bool) -> None:
        self._checkpoints, self._rolls_back = checkpoints, rolls_back
        client = checkpoints.session.client
        self._session, self._lives = client.session, client.lives
        self._is_late = self._recovers = False

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is being written: another one would be left out."""
        return self._checkpoints.is_writing

    def save(
        self,
        number: int,
        arrays: Mapping[str, DistArray],
        document: Mapping[str, Any],
        *,
        wait: bool = False,
    ) -> None:
        """As ``Keeper.save``. One that is due while another is being written is left out.

        What follows is computed as if it had been made: no bit depends on how fast a store is.
        """
        if self.is_writing and not wait:
            self._checkpoints.begin_anew()
            if not self._is_late:
                self._is_late = True
                self._warn("it takes longer to write one than from one to the next; some are left "
                           "out: checkpoint less often, or to a faster store")  # fmt: skip
            return
        trouble = self._checkpoints.settle()
        if trouble is not None and not (self._rolls_back and is_loss(trouble)):
            self._warn(str(trouble))
        try:
            self._checkpoints.begin(number, arrays, document)
            trouble = self._checkpoints.settle() if wait else None
            if trouble is not None:
                raise trouble
        except (OSError, PSError) as error:
            self._checkpoints.settle()  # it is told here
            if wait or isinstance(error, ServerLost | BufferLost):
                raise
            self._warn(str(error))
        finally:
            trouble = None  # its traceback has this frame, and so ``arrays``

    def load(self) -> tuple[int, dict[str, DistArray], dict[str, Any]] | None:
        """As ``Keeper.load``; None as well where the first one was broken off.

        After a loss keyed spaces are again as they were then; else those that are whole stay.
        """
        try:
            found = self._checkpoints.restore(undo=self._recovers)
        except BrokenOff:
            return None
        return None if found is None else (found.number, found.arrays, found.document)

    def recovers(self, error: Exception) -> bool:
        """Whether a server was lost, and all answer again; waits for that, a minute or two."""
        if not self._rolls_back or not self._is_loss(error):
            return False
        self._checkpoints.settle()
        client = self._checkpoints.session.client
        await_all(client)
        self._lives, self._recovers = client.lives, True
        return True

    def close(self) -> None:
        """As ``Keeper.close``."""
        trouble = self._checkpoints.end()
        if trouble is not None:
            self._warn(str(trouble))

    def _is_loss(self, error: Exception) -> bool:
        """An error of a Spark job is another one than that of the task which met the loss."""
        client = self._checkpoints.session.client
        if client.session != self._session:  # since then ``resize`` has left those servers
            self._session, self._lives = client.session, client.lives
        return is_loss(error) or is_changed(client, self._lives)

    def _warn(self, why: str) -> None:
        where = self._checkpoints.store.url
        warnings.warn(f"no checkpoint in {where}: {why}", NotDurable, stacklevel=3)


LEVELS = ("none", "rollback", "replay")


@dataclass
class Durability:
    """Of one session: its level, and its checkpoints by directory.

    "none": what a lost server held is lost. "rollback": loops of ours bring everything back to the
    last checkpoint in ``directory``, and go on; other code is told where that is. "replay": all
    code goes on; what was asked for since the last checkpoint is asked for again.
    """

    level: str = "none"
    directory: str | os.PathLike[str] | None = None
    _by_directory: dict[str, Checkpoints] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice(self.level, LEVELS, "durability")
        if self.survives and self.directory is None:
            raise ValueError(
                f"durability={self.level!r} needs checkpoint=: a directory that all servers can "
                "write to, or a URL"
            )

    @property
    def survives(self) -> bool:
        """Does a server that takes the place of a lost one get back what that had?"""
        return self.level != "none"

    @property
    def replays(self) -> bool:
        """Does all code go on by itself after a loss, and not only loops of ours?"""
        return self.level == "replay"

    def refuse_others(self, level: str | None, directory: str | os.PathLike[str] | None) -> None:
        """ValueError for what is given and is not what a running session has."""
        if level is not None and level != self.level:
            raise ValueError(
                f"durability={level!r}, but a PSContext with durability={self.level!r} is running; "
                "call stop() on it first, or leave durability out to use it"
            )
        given, have = (one and os.fspath(one) for one in (directory, self.directory))
        if given is not None and given != have:
            raise ValueError(
                f"checkpoint={given!r}, but a PSContext with checkpoint={have!r} is running; call "
                "stop() on it first, or leave checkpoint out to use it"
            )

    def checkpoints(
        self, session: SessionBase, directory: str | os.PathLike[str] | None = None
    ) -> Checkpoints:
        """Those in ``directory``, or in that of the session; ``ValueError`` if there is none."""
        given = self.directory if directory is None else directory
        if given is None:
            raise ValueError(
                "no directory for checkpoints was given; pass one here, or open the session "
                "with checkpoint=..."
            )
        made = Checkpoints(session, os.fspath(given))
        return self._by_directory.setdefault(made.store.url, made)

    def keeper(
        self, session: SessionBase, directory: str | os.PathLike[str] | None = None
    ) -> SessionKeeper | None:
        """What keeps the states of a solver; None where neither says a directory."""
        if directory is None and self.directory is None:
            return None
        return SessionKeeper(self.checkpoints(session, directory), rolls_back=self.survives)

    def clear(self, session: SessionBase, directory: str | os.PathLike[str]) -> None:
        """Remove all checkpoints in ``directory``."""
        one = self.checkpoints(session, directory)
        one.clear()
        del self._by_directory[one.store.url]

    @property
    def directories(self) -> list[Checkpoints]:
        """The checkpoints in each directory that the session has used."""
        return list(self._by_directory.values())

    def end(self) -> None:
        """Wait for what is being written; what only a next checkpoint would have used goes."""
        for one in self._by_directory.values():
            one.end()
