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


def leave_samples(phase: Phase, columns: int) -> None:
    """Put samples of this server's run, ``columns`` of keys, beside it."""
    keys = phase.workspace[KEYS].reshape(columns, -1)
    phase.workspace.put(_SAMPLES, keys[:, :: stride(keys.shape[1])].ravel())


def stride(length: int) -> int:
    """Keys for each of the samples of a run of ``length``: fewer than there are samples."""
    return max(1, math.isqrt(length) // 2)


def _samples(length: int) -> int:
    return -(-length // stride(length))


class _Window(NamedTuple):
    """Of each run the keys among which a rank is, and how many of them come before it."""

    starts: list[int]
    stops: list[int]
    wanted: int


def cuts(
    phase: Phase, ranks: Sequence[int], lengths: Mapping[int, int], columns: int, dtype: Any
) -> npt.NDArray[np.int64]:
    """How many keys of each run come before each rank, of shape ``(ranks, columns, servers)``.

    ``lengths``: of each server's run, the same in each column. Of equal keys those of the first
    server come first. Two messages to each other server, unless all ranks are first or last.
    """
    servers, total = list(lengths), sum(lengths.values())
    found = np.zeros((len(ranks), columns, len(servers)), np.int64)
    inner = [number for number, rank in enumerate(ranks) if 0 < rank < total]
    for number, rank in enumerate(ranks):
        if rank == total:
            found[number] = list(lengths.values())
    if not inner:
        return found
    samples = {s: np.empty((columns, _samples(lengths[s])), dtype) for s in servers}
    phase.fetch(Piece(s, _SAMPLES, 0, into.size, into.ravel()) for s, into in samples.items())
    windows, pieces, fetched = {}, [], {}
    for column in range(columns):
        bounds = Bounds([samples[s][column] for s in servers], list(lengths.values()))
        for number in inner:
            window = windows[number, column] = bounds.window(ranks[number])
            for place, (s, start, stop) in enumerate(
                zip(servers, window.starts, window.stops, strict=True)
            ):
                into = fetched[number, column, place] = np.empty(stop - start, dtype)
                pieces.append(Piece(s, KEYS, column * lengths[s] + start, stop - start, into))
    phase.fetch(pieces)
    for (number, column), window in windows.items():
        parts = [fetched[number, column, place] for place in range(len(servers))]
        found[number, column] = np.array(window.starts) + before_rank(parts, window.wanted)
    return found


class Bounds:
    """What samples of the runs of one column say of ranks."""

    def __init__(self, samples: Sequence[Array], lengths: Sequence[int]) -> None:
        self._lengths = lengths
        self._strides = [stride(length) for length in lengths]
        order = np.argsort(np.concatenate(samples), kind="stable")
        ends = np.cumsum([len(some) for some in samples])
        self._run = np.searchsorted(ends, order, side="right")
        """Of each sample, in their order, the run that it is of."""
        place = order - (ends - [len(some) for some in samples])[self._run]
        strides = np.array(self._strides)[self._run]
        steps = np.minimum(strides, np.array(lengths)[self._run] - place * strides)
        most, least = np.cumsum(steps) - steps, np.where(place, strides, 1)
        self._most = most
        """So many keys at most are before each sample."""
        self._least = np.cumsum(least) - least
        """So many at least."""

    def window(self, rank: int) -> _Window:
        """Where the key of ``rank`` is."""
        low = np.searchsorted(self._most, rank, side="right") - 1
        high = np.searchsorted(self._least, rank)
        runs = range(len(self._lengths))
        below, above = (np.bincount(self._run[:at], minlength=len(runs)) for at in (low, high))
        starts = [max(0, int(below[k]) - 1) * self._strides[k] + (below[k] > 0) for k in runs]
        if low < len(self._run):
            own = self._run[low]
            starts[own] = int(below[own]) * self._strides[own]
        stops = [min(int(above[k]) * self._strides[k], self._lengths[k]) for k in runs]
        return _Window(starts, stops, rank - sum(starts))


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
