"""A loop that loses a server goes on from the clock at which its arrays were kept last."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from distvec import DistArray
from distvec.durability.policy import SessionKeeper, is_loss
from distvec.spark.shared_copies import SharedCopies
from ps_backend.errors import NotDurable, PSError

T = TypeVar("T")

_LOSSES = 5
"""So many in a row, without a clock kept in between, are too many."""


@dataclass
class Kept:
    """The arrays of one loop, as its checkpoints have them."""

    keeper: SessionKeeper
    name: str
    arrays: Sequence[DistArray]
    """As they were at ``clock``."""
    clock: int = 0
    _begun: bool = field(default=False, init=False)
    _losses: int = field(default=0, init=False)

    def begin(self) -> None:
        """Keep them as they are at the start, unless they are kept already."""
        if not self._begun:
            self.save(self.clock, self.arrays, wait=True)
            self._begun = True

    def save(self, clock: int, arrays: Sequence[DistArray], *, wait: bool = False) -> None:
        """Begin to keep them as they are at ``clock``."""
        named = {str(k): array for k, array in enumerate(arrays)}
        self.keeper.save(clock, named, {"loop": self.name, "clock": clock}, wait=wait)

    def end(self, clock: int, arrays: Sequence[DistArray]) -> None:
        """Keep what the loop has made; a warning ``NotDurable`` where the store fails."""
        try:
            self.save(clock, arrays, wait=True)
        except (OSError, PSError) as error:
            if is_loss(error):
                raise
            warnings.warn(f"the loop's end could not be kept: {error}", NotDurable, stacklevel=4)

    def recovers(self, error: Exception) -> bool:
        """Whether the loop can go on from ``clock``, at which ``arrays`` are again."""
        while self._losses < _LOSSES and self.keeper.recovers(error):
            self._losses += 1
            try:
                return self._load()
            except Exception as another:  # noqa: BLE001 - maybe the loss of another server
                error = another
        return False

    def _load(self) -> bool:
        found = self.keeper.load()
        if not self._begun:
            return True  # what an older checkpoint has was lost, and is there again
        if found is None or found[2].get("loop") != self.name:
            return False
        _, arrays, document = found
        if document["clock"] > self.clock:
            self.clock, self._losses = int(document["clock"]), 0
        self.arrays = [arrays[str(k)] for k in range(len(self.arrays))]
        return True


def survived(
    kept: Kept, attempt: Callable[[], tuple[T, int, Sequence[DistArray]]]
) -> tuple[T, Sequence[DistArray]]:
    """What ``attempt`` returns, tried again from what was ``kept`` after each loss.

    That is its result, and the clock and the arrays at its end, which are kept as well.
    """
    try:
        while True:
            try:
                kept.begin()
                result, clock, arrays = attempt()
                kept.end(clock, arrays)
                return result, arrays
            except Exception as error:
                if not kept.recovers(error):
                    raise
    finally:
        kept.keeper.close()


def keeps(kept: Kept, copies: SharedCopies, every: int) -> Callable[[int], None]:
    """What keeps ``copies`` when all workers stand at the gate."""
    began, session = kept.clock, copies.session

    def keep(times: int) -> None:
        if not kept.keeper.is_writing:
            arrays = [DistArray(session, node) for node in copies.snapshot()]
            kept.save(began + times * every, arrays)

    return keep
