"""How much a session survives: what ``durability=`` says, and the checkpoints that it needs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from distvec.array.handle import Home
from distvec.durability.checkpoints import Checkpoints
from distvec.durability.keeper import SessionKeeper
from ps_backend.arguments import check_choice

LEVELS = ("none", "rollback")


@dataclass
class Durability:
    """Of one session: its level, and its checkpoints by directory.

    "none": what a lost server held is lost. "rollback": loops of ours bring everything back to the
    last checkpoint in ``directory``, and go on; other code is told where that is.
    """

    level: str = "none"
    directory: str | os.PathLike[str] | None = None
    _by_directory: dict[str, Checkpoints] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice(self.level, LEVELS, "durability")
        if self.level == "rollback" and self.directory is None:
            raise ValueError(
                "durability='rollback' needs checkpoint=, a directory that all servers see or a "
                "URL, to which they write"
            )

    @property
    def rolls_back(self) -> bool:
        """Do loops of ours go on by themselves after a loss?"""
        return self.level == "rollback"

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
        self, session: Home, directory: str | os.PathLike[str] | None = None
    ) -> Checkpoints:
        """Those in ``directory``, or in that of the session; ``ValueError`` if there is none."""
        given = self.directory if directory is None else directory
        if given is None:
            raise ValueError(
                "which directory? Give it here, or to the session: distvec.local(checkpoint=...)"
            )
        made = Checkpoints(session, os.fspath(given))
        return self._by_directory.setdefault(made.store.url, made)

    def keeper(
        self, session: Home, directory: str | os.PathLike[str] | None = None
    ) -> SessionKeeper | None:
        """What keeps the states of a solver; None where neither says a directory."""
        if directory is None and self.directory is None:
            return None
        return SessionKeeper(self.checkpoints(session, directory), rolls_back=self.rolls_back)

    def end(self) -> None:
        """Wait for what is being written; what only a next checkpoint would have used goes."""
        for one in self._by_directory.values():
            one.end()
