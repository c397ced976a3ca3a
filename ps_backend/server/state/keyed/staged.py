"""What tasks staged for a keyed space in a round: row programs that wait to be run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.server.state.keyed.row_run import RowRun
from ps_backend.server.state.keyed.space import KeyedSpace, KeyList
from ps_backend.server.state.memory import MemoryBlock, Reservation


@dataclass(frozen=True, slots=True, eq=False)
class StagedRows:
    """A row program on the rows of keys, and what comes along for each of them."""

    space: KeyedSpace
    run: RowRun
    keys: KeyList
    given: Sequence[npt.NDArray[Any]]
    block: MemoryBlock
    """What came."""
    wider: Sequence[MemoryBlock] = ()
    """Rows that came narrowed, as they are."""


class Prepared:
    """Row programs in the order in which they are to run, and room for the keys they insert."""

    def __init__(self, rows: Sequence[StagedRows]) -> None:
        """``OutOfBudget``, and nothing is reserved, where there is no room for all new keys.

        Where keys are admitted late, as if all were admitted.
        """
        self._rows = rows
        self._kept: dict[int, Reservation] = {}
        spaces = {id(one.space): one.space for one in rows}
        for number, space in spaces.items():
            lists = [one.keys.keys for one in rows if one.space is space]
            keys = np.unique(np.concatenate(lists))
            with space.lock:
                self._kept[number] = space.reserve_for(space.index.missing(keys))

    def apply(self) -> None:
        """Run them. ``BufferLost`` if an array was freed meanwhile."""
        for one in self._rows:
            one.run.run(one.space, one.keys, one.given, (), self._kept[id(one.space)])
