"""What solvers ask of a session: to keep the states of a run, and to bring them back."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from distvec.array.dist_array import DistArray
from distvec.durability.checkpoints import Checkpoints
from distvec.durability.losses import await_all, is_changed, is_loss
from ps_backend.durability.folder import BrokenOff
from ps_backend.errors import BufferLost, NotDurable, PSError, ServerLost


class SessionKeeper:
    """Keeps checkpoints of a run by those of its session (``optim``'s ``Keeper``).

    Each holds all arrays of the session, also those that the objective needs. Where the session's
    durability is "rollback", a lost server is recovered from; else that is raised.
    """

    def __init__(self, checkpoints: Checkpoints, *, rolls_back: bool) -> None:
        self._checkpoints, self._rolls_back = checkpoints, rolls_back
        self._lives = checkpoints.session.client.lives
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
        return is_loss(error) or is_changed(self._checkpoints.session.client, self._lives)

    def _warn(self, why: str) -> None:
        where = self._checkpoints.store.url
        warnings.warn(f"no checkpoint in {where}: {why}", NotDurable, stacklevel=3)
