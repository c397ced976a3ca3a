"""Sorted runs of all servers, and where to cut them: what comes before a rank of all of them.

A run is an array of keys in the workspace, column after column. Beside it lie samples, each so many
keys; they say roughly where a rank is, and a window of each run says it exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ps_backend.server.movements.phase import Phase, Piece

Array = npt.NDArray[Any]

KEYS, INDICES, _SAMPLES = "keys", "indices", "samples"


def leave_samples(phase: Phase, columns: int, ranks: int = 1) -> None:
    """Put samples of this server's run, ``columns`` of keys, beside it: to find so many ranks."""
    keys = phase.workspace[KEYS].reshape(columns, -1)
    phase.workspace.put(_SAMPLES, keys[:, :: stride(keys.shape[1], ranks)].ravel())


def stride(length: int, ranks: int = 1) -> int:
    """Keys for each of the samples of a run of ``length``.

    About as much is fetched of the samples as of the windows around ``ranks``.
    """
    return max(1, math.isqrt(length // ranks) // 2)


class Runs:
    """The runs of all servers: what they hold at some ranks, or before these.

    ``lengths``: of each server's run, the same in each of ``columns``. Equal keys are in the order
    of the servers.
    """

    def __init__(
        self, phase: Phase, lengths: Mapping[int, int], columns: int, dtype: Any, ranks: int = 1
    ) -> None:
        self._phase, self._dtype, self._ranks = phase, dtype, ranks
        self._lengths = {server: length for server, length in lengths.items() if length}
        self._columns = columns

    @property
    def servers(self) -> list[int]:
        """Those that have some keys."""
        return list(self._lengths)

    def before(self, ranks: Sequence[int]) -> npt.NDArray[np.int64]:
        """How many keys of each run come before each rank, ``(ranks, columns, servers)``.

        Two messages to each other server, unless all ranks are first or last.
        """
        lengths = np.array(list(self._lengths.values()))
        found = np.zeros((len(ranks), self._columns, len(lengths)), np.int64)
        inner: dict[tuple[int, ...], tuple[int, int]] = {}
        for number, rank in enumerate(ranks):
            if 0 < rank < lengths.sum():
                inner |= {(number, column): (rank, rank) for column in range(self._columns)}
            elif rank:
                found[number] = lengths
        for place, window in self._windows(inner).items():
            found[place] = np.array(window.starts) + before_rank(window.parts, window.wanted)
        return found

    def last(self, cut: npt.NDArray[np.int64]) -> Array:
        """The greatest key before a cut, ``(columns, servers)``, in each column; there is one."""
        places = [*np.argwhere(cut > 0).tolist()]
        found = np.zeros(cut.shape, self._dtype)
        self._phase.fetch(
            Piece(
                self.servers[run],
                KEYS,
                column * self._lengths[self.servers[run]] + int(cut[column, run]) - 1,
                1,
                found[column, run : run + 1],
            )
            for column, run in places
        )
        greatest: Array = found.max(axis=1)
        return greatest

    def at(self, ranks: npt.NDArray[np.int64]) -> Array:
        """The keys at ``ranks``, of shape ``(ranks, columns)``. Two messages to each server."""
        found = np.empty(ranks.shape, self._dtype)
        wanted = {place: (int(rank), int(rank) + 1) for place, rank in np.ndenumerate(ranks)}
        for place, window in self._windows(wanted).items():
            keys = np.concatenate(window.parts)
            found[place] = np.partition(keys, window.wanted)[window.wanted]
        return found

    def _windows(self, wanted: Mapping[tuple[int, ...], tuple[int, int]]) -> dict[Any, Window]:
        """By number and column, the keys among which are those of some ranks, and maybe others."""
        if not wanted:
            return {}
        lengths, columns = list(self._lengths.values()), self._columns
        strides = [stride(length, self._ranks) for length in lengths]
        samples = [
            np.empty((columns, -(-n // step)), self._dtype)
            for n, step in zip(lengths, strides, strict=True)
        ]
        self._phase.fetch(
            Piece(server, _SAMPLES, 0, into.size, into.ravel())
            for server, into in zip(self.servers, samples, strict=True)
        )
        bounds = [
            Bounds([of_run[column] for of_run in samples], lengths, strides)
            for column in range(columns)
        ]
        found = {
            (number, column): bounds[column].window(*ranks, self._dtype)
            for (number, column), ranks in wanted.items()
        }
        self._phase.fetch(
            Piece(server, KEYS, column * self._lengths[server] + start, len(part), part)
            for (_, column), window in found.items()
            for server, start, part in zip(self.servers, window.starts, window.parts, strict=True)
        )
        return found


class Window(NamedTuple):
    """Of each run the keys among which those of some ranks are."""

    starts: list[int]
    """Where they begin in each run."""
    parts: list[Array]
    """They themselves, once they have come."""
    wanted: int
    """The first rank, counted from the first of these keys."""


class Bounds:
    """What samples of the runs of one column say of ranks."""

    def __init__(
        self, samples: Sequence[Array], lengths: Sequence[int], strides: Sequence[int]
    ) -> None:
        self._lengths, self._strides = lengths, strides
        counts = np.array([len(some) for some in samples])
        ends = np.cumsum(counts)
        order = np.argsort(np.concatenate(samples), kind="stable")
        self._run = np.searchsorted(ends, order, side="right")
        """Of each sample, in their order, the run that it is of."""
        place, steps = order - (ends - counts)[self._run], np.array(strides)[self._run]
        most = np.minimum(steps, np.array(lengths)[self._run] - place * steps)
        least = np.where(place, steps, 1)
        self._most, self._least = np.cumsum(most) - most, np.cumsum(least) - least
        """How many keys are before each sample, at most and at least."""

    def window(self, first: int, past: int, dtype: Any) -> Window:
        """Room for the keys of the ranks from ``first`` to ``past``, and maybe some others."""
        low = int(np.searchsorted(self._most, first, side="right")) - 1
        high = int(np.searchsorted(self._least, past))
        below, above = (
            np.bincount(self._run[:at], minlength=len(self._lengths)).tolist() for at in (low, high)
        )
        runs = range(len(self._lengths))
        starts = [(below[k] - 1) * self._strides[k] + 1 if below[k] else 0 for k in runs]
        own = int(self._run[low])
        starts[own] = below[own] * self._strides[own]
        stops = [min(above[k] * self._strides[k], self._lengths[k]) for k in runs]
        parts = [np.empty(stop - start, dtype) for start, stop in zip(starts, stops, strict=True)]
        return Window(starts, parts, first - sum(starts))


def before_rank(parts: Sequence[Array], rank: int) -> npt.NDArray[np.int64]:
    """How many keys of each sorted part are among the ``rank`` first of all of them.

    Of equal keys those of the first part come first.
    """
    if rank == 0:
        return np.zeros(len(parts), np.int64)
    pivot: Any = np.partition(np.concatenate(parts), rank - 1)[rank - 1]
    below = np.array([np.searchsorted(part, pivot, "left") for part in parts])
    equal = np.array([np.searchsorted(part, pivot, "right") for part in parts]) - below
    free = rank - below.sum() - (np.cumsum(equal) - equal)  # for equal ones of each part
    first: npt.NDArray[np.int64] = below + np.clip(free, 0, equal)
    return first
