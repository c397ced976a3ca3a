"""A row program on rows of several spaces, or one that computes for which keys rows are written.

The spaces share out their keys alike, so the rows of a key are on one server. All of a piece is
computed before a key is inserted or a row is written, as the results tell where that is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

import numpy as np

from ps_backend.errors import InvalidProgram
from ps_backend.program.row_program import Scatter
from ps_backend.server.state.keyed.row_run import AT_ONCE, Ahead, Array, RowRun
from ps_backend.server.state.keyed.space import (
    KeyedSpace,
    KeyList,
    Keys,
    Locations,
    Mask,
    refuse_freed,
)


@dataclass(slots=True)
class CoupledRun(RowRun):
    """As ``RowRun``, on arrays of ``spaces``."""

    order: Sequence[KeyedSpace] = ()
    """All of them once, in the order in which their locks are taken: that of their numbers."""

    def over(
        self, home: KeyedSpace, spaces: Sequence[KeyedSpace], order: Sequence[KeyedSpace]
    ) -> Self:
        """Itself, with the spaces. ``InvalidProgram`` if they share out their keys otherwise."""
        if any(space.partition != home.partition for space in order):
            raise InvalidProgram("spaces that share out their keys in different ways")
        self.spaces, self.order = spaces, order
        return self

    def run(
        self,
        space: KeyedSpace,
        keys: KeyList,
        given: Sequence[Array],
        out: Sequence[Array],
        ahead: Ahead | None = None,
    ) -> None:
        """As ``RowRun.run``. Keys are inserted in those spaces whose rows are written at them."""
        count = len(keys.keys)
        lists = {one: keys if one is space else KeyList(keys.keys) for one in self.order}
        if ahead is None and self.program.changes and count > AT_ONCE:  # all of it, or nothing
            ahead = self._reserved(lists)
        for low in range(0, count, AT_ONCE):
            part = slice(low, min(low + AT_ONCE, count))
            with ExitStack() as locks:
                for one in self.order:
                    locks.enter_context(one.lock)
                refuse_freed(self.arrays)
                locations = {one: one.locate(lists[one])[part] for one in self.order}
                pieces = [one[part] for one in given], [one[part] for one in out]
                self._run_coupled(keys.keys[part], locations, *pieces, ahead)
                for one in self._written:
                    lists[one].version = one.version  # the others are missing still

    @property
    def _written(self) -> dict[KeyedSpace, list[Scatter]]:
        """Where rows are written, and by which scatters."""
        found: dict[KeyedSpace, list[Scatter]] = {}
        for scatter in self.program.scatters:
            found.setdefault(self.spaces[scatter.array], []).append(scatter)
        return found

    def _reserved(self, lists: dict[KeyedSpace, KeyList]) -> Ahead:
        """Room for all keys that are missing where rows are written."""
        found = {}
        for space in self._written:
            with space.lock:
                if space.admission is None:
                    missing = space.index.missing(lists[space].keys, space.locate(lists[space]))
                    found[space] = space.reserve_for(missing)
        return found

    def _run_coupled(
        self,
        keys: Keys,
        locations: dict[KeyedSpace, Locations],
        given: Sequence[Array],
        out: Sequence[Array],
        ahead: Ahead | None,
    ) -> None:
        inputs = [
            self.arrays[place].gather(locations[self.spaces[place]], keys)
            for place in self.program.gathers
        ]
        results = self._compute(inputs, keys, given, out)
        wanted = {
            space: self._missing(locations[space], scatters, results)
            for space, scatters in self._written.items()
        }
        if ahead is None:  # room for all of it, before anything changes
            ahead = {
                space: space.reserve_for(space.index.missing(keys[some], locations[space][some]))
                for space, some in wanted.items()
                if space.admission is None
            }
        # A space that counts its keys reserves by itself, which may fail: so it comes first.
        for space in sorted(wanted, key=lambda one: one.admission is None):
            some = wanted[space]
            fresh = locations[space][some]
            space.insert(keys[some], fresh, ahead.get(space))
            locations[space][some] = fresh
        for scatter in self.program.scatters:
            places = locations[self.spaces[scatter.array]]
            if scatter.where is not None:
                places = np.where(results[scatter.where], places, -1)
            store = self.arrays[scatter.array].store
            store.scatter(places, results[scatter.output], scatter.op)

    @staticmethod
    def _missing(
        locations: Locations, scatters: Sequence[Scatter], results: dict[int, Array]
    ) -> Mask:
        """Which keys a space has not, and gets."""
        missing: Mask = locations < 0
        masks = [results[one.where] for one in scatters if one.where is not None]
        if masks and len(masks) == len(scatters):
            missing &= np.logical_or.reduce(masks)
        return missing
