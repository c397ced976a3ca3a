"""Drawing places with given probabilities in constant time, by counter."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array.moving.search import looked_up
from distvec.array.operators import Arithmetic
from distvec.array.random import uniform_at
from distvec.graph.host_eval import MOST_ELEMENTS


class AliasTable:
    """Draws of ``0, ..., n - 1`` with probabilities as given: a table, made once, in O(n).

        table = dv.AliasTable(counts ** 0.75)
        negatives = table.draw(np.arange(1000), seed=7)

    A draw is a function of seed and counter alone, so it is repeated wherever it is needed: in a
    task that runs again, on a server, or in a function of rows, ``table.draw(keys * 8 + k)``. There
    the table goes along with each call, 16 bytes an entry.

    Source: A. J. Walker, ACM Trans. Math. Softw. 3 (1977) 253-256; made by sweeping over prefix
    sums of what places have too little and too much: L. Huebschle-Schneider, P. Sanders, ESA 2019.
    """

    def __init__(self, weights: npt.ArrayLike) -> None:
        """``weights``: shape ``(n,)``, at least 0, in any sum. ``ValueError`` for others."""
        given = np.asarray(weights, np.float64)
        if given.ndim != 1 or not 0 < len(given) <= MOST_ELEMENTS:
            raise ValueError(
                f"weights must be a vector of 1 .. {MOST_ELEMENTS} numbers, got {given.shape}"
            )
        total = given.sum()
        if not (given.min() >= 0 and 0 < total < np.inf):
            raise ValueError(
                f"weights must be at least 0, and have a finite sum above 0; they are from "
                f"{given.min()} on and sum up to {total}"
            )
        self._threshold, self._alias = _swept(given * (len(given) / total))

    def __len__(self) -> int:
        return len(self._alias)

    @property
    def probabilities(self) -> npt.NDArray[np.float64]:
        """How likely each place is, as the table has it: shape ``(n,)``."""
        given_away = np.bincount(self._alias, 1.0 - self._threshold, len(self))
        found: npt.NDArray[np.float64] = (self._threshold + given_away) / len(self)
        return found

    def draw(self, counters: Any, *, seed: int = 0) -> Any:
        """A place for each of ``counters``, int64 of their shape; lazy of arrays on the servers.

        ``counters``: integers; equal ones draw the same. No message.
        """
        scaled = uniform_at(counters, seed) * float(len(self))
        place = np.minimum(np.floor(scaled), len(self) - 1.0).astype(np.int64)
        within = scaled - place
        return np.where(within < self._at(place, "_threshold"), place, self._at(place, "_alias"))

    def _at(self, place: Any, name: str) -> Any:
        table = getattr(self, name)
        if isinstance(place, Arithmetic):
            return looked_up(place, "looked_up", table.dtype, [table])
        return table[place]

    def __repr__(self) -> str:
        return f"<alias table of {len(self)} places>"


def _swept(
    weights: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """For weights of mean 1: how much of each place is its own, and whose the rest is.

    Places with too little get the rest from those with too much, in order; one of these that has
    given away more than it had too much gets that from the next.
    """
    threshold, alias = np.ones(len(weights)), np.arange(len(weights))
    light, heavy = np.flatnonzero(weights < 1.0), np.flatnonzero(weights >= 1.0)
    if not (len(light) and len(heavy)):  # they are equal, but for roundings
        return threshold, alias
    needed, spare = np.cumsum(1.0 - weights[light]), np.cumsum(weights[heavy] - 1.0)
    before = np.append(0.0, needed[:-1])
    giver = np.minimum(np.searchsorted(spare, before, side="right"), len(heavy) - 1)
    threshold[light], alias[light] = weights[light], heavy[giver]
    served = np.searchsorted(before, spare[:-1], side="left")  # so many, by this one or before
    over = np.where(served > 0, needed[served - 1], 0.0) - spare[:-1]
    threshold[heavy[:-1]] = 1.0 - np.clip(over, 0.0, 1.0)
    alias[heavy[:-1]] = heavy[1:]
    return threshold, alias
