"""Sorts and order statistics along axis 0: each server sorts its part, and merges its own of all.

A run is an array of keys in the workspace, column after column. Beside it lie samples, each so many
keys; they say roughly where a rank is, and a window of each run says it exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.collectives import sorting
from ps_backend.kernels.collectives.sorting import SortedRun
from ps_backend.program.collectives import ORDER, ORDER_STATISTICS, SORT, STARTS, VALUES
from ps_backend.program.types import ArrayType
from ps_backend.server.collectives.phase import Phase, PhaseFunction, RemoteRows

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


_FEW_BYTES = 1 << 19
"""Keys of other servers that are fetched whole: that takes less time than two more messages."""


class DistributedRuns:
    """The runs of all servers: what they hold at some ranks, or before these.

    ``lengths``: of each server's run, the same in each of ``columns``. Equal keys are in the order
    of the servers. Of runs with ``few`` bytes of keys elsewhere all is fetched, by one message to
    each other server, with indices of dtype ``index`` if there is one.
    """

    def __init__(
        self, phase: Phase, lengths: Mapping[int, int], columns: int, dtype: Any, ranks: int = 1,
        index: np.dtype[Any] | None = None, few: int = _FEW_BYTES,
    ) -> None:  # fmt: skip
        self._phase, self._dtype, self._ranks = phase, np.dtype(dtype), ranks
        self._lengths = {server: length for server, length in lengths.items() if length}
        self._columns = columns
        self.whole: dict[int, SortedRun] = {}
        """By server, its run of all columns, if runs are short."""
        others = sum(length for server, length in self._lengths.items() if server != phase.here)
        if others * columns * self._dtype.itemsize <= few:
            self._fetch_whole({KEYS: self._dtype} | ({INDICES: index} if index else {}))

    def _fetch_whole(self, dtypes: Mapping[str, np.dtype[Any]]) -> None:
        phase, pieces = self._phase, []
        for server, length in self._lengths.items():
            size = length * self._columns
            if server == phase.here:
                found = [phase.workspace[name] for name in dtypes]
            else:
                found = [phase.scratch(size, dtype) for dtype in dtypes.values()]
                for name, into in zip(dtypes, found, strict=True):
                    pieces.append(RemoteRows(server, name, 0, size, into))
            self.whole[server] = SortedRun(*found)
        phase.fetch(pieces)

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
            found[place] = np.array(window.starts) + split_at_rank(window.parts, window.wanted)
        return found

    def last(self, cut: npt.NDArray[np.int64]) -> Array:
        """The greatest key before a cut, ``(columns, servers)``, in each column; there is one."""
        places = [*np.argwhere(cut > 0).tolist()]
        found = np.zeros(cut.shape, self._dtype)
        self._read(
            RemoteRows(
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

    def _read(self, pieces: Iterable[RemoteRows]) -> None:
        """Bring pieces of keys to where they are to go."""
        if not self.whole:
            self._phase.fetch(pieces)
            return
        for one in pieces:
            one.into[...] = self.whole[one.server].keys[one.start : one.start + one.rows]

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
        if self.whole:
            for server, into, step in zip(self.servers, samples, strides, strict=True):
                into[...] = self.whole[server].keys.reshape(columns, -1)[:, ::step]
        else:
            self._phase.fetch(
                RemoteRows(server, _SAMPLES, 0, into.size, into.ravel())
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
        self._read(
            RemoteRows(server, KEYS, column * self._lengths[server] + start, len(part), part)
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


def split_at_rank(parts: Sequence[Array], rank: int) -> npt.NDArray[np.int64]:
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


class _Rooms:
    """Memory for runs, which one column after the other uses."""

    def __init__(self, phase: Phase, keys: np.dtype[Any], indices: np.dtype[Any] | None) -> None:
        self._phase, self._keys, self._indices = phase, keys, indices
        self._made: dict[str, SortedRun] = {}

    def __call__(self, name: str, length: int) -> SortedRun:
        """That of ``name``, contents undefined; raises ``OutOfBudget``."""
        found = self._made.get(name)
        if found is None or len(found.keys) < length:
            keys = self._phase.scratch(length, self._keys)
            indices = self._phase.scratch(length, self._indices) if self._indices else None
            found = self._made[name] = SortedRun(keys, indices)
        return found.part(0, length)


def leave_run(phase: Phase) -> None:
    """Sort the keys of this server's part: all, or as many as the first that are wanted."""
    if _sorts_into_output(phase) or _orders_into_output(phase):
        return
    kept, index = _run_length(phase, phase.here), _index_dtype(phase)
    descending, equal_zeros = map(bool, phase.params)
    sort_part(phase, kept, index, descending=descending, equal_zeros=equal_zeros)


def sort_part(
    phase: Phase, kept: int, index: np.dtype[Any] | None, *, descending: bool = False,
    equal_zeros: bool = False, ranks: int = 1,
) -> None:  # fmt: skip
    """Leave a run of the first ``kept`` keys of each column of the input, and samples of it.

    With an ``index`` dtype their indices too. ``ranks``: so many are to be found at once.
    """
    (x,) = phase.inputs
    length, columns = len(x), phase.call.types.inputs[0].width
    dtype = sorting.key_dtype(x.dtype)
    rooms = _Rooms(phase, dtype, index)
    keys = phase.workspace.new(KEYS, columns * kept, dtype)
    indices = phase.workspace.new(INDICES, columns * kept, index) if index else None
    order = phase.scratch(kept if index else 0, np.uint64)
    first, _ = phase.range_of(_source(phase).space)
    for number, column in enumerate(x.reshape(length, columns).T):
        target = slice(number * kept, (number + 1) * kept)
        room = keys[target] if kept == length and not index else rooms("part", length).keys
        sorting.encode_keys(column, room, descending=descending, equal_zeros=equal_zeros)
        places = None
        if kept < length:
            spare = rooms("spare", length).keys
            places = sorting.least_keys(room, kept, spare)
            room = np.take(room, places, out=keys[target] if indices is None else spare[:kept])
        if indices is None:
            sorting.sort(keys[target])
        else:
            sorting.find_order(room, order)
            stood = order.view(np.int64)
            np.take(room, stood, out=keys[target], mode="clip")
            some = stood if places is None else places[stood]
            np.add(some, first, out=indices[target], casting="unsafe")
        phase.pause()
    leave_samples(phase, columns, ranks)


def merge_runs(phase: Phase) -> None:
    """Fetch what belongs here of the runs of all, and merge it."""
    source, made = _source(phase), phase.outputs
    low, high = phase.range_of(phase.call.types.made.space)
    if low == high:
        return
    if _sorts_into_output(phase):
        sorting.sort_into(phase.inputs[0], made[VALUES], equal_zeros=bool(phase.params[1]))
        if STARTS in made:
            _mark_starts(made[VALUES].view(sorting.key_dtype(source.dtype)), made[STARTS], None)
        return
    dtype = sorting.key_dtype(source.dtype)
    if _orders_into_output(phase):
        descending, equal_zeros = map(bool, phase.params)
        keys, x = phase.scratch(high - low, dtype), phase.inputs[0].reshape(-1)
        sorting.encode_keys(x, keys, descending=descending, equal_zeros=equal_zeros)
        sorting.find_order(keys, made[ORDER].reshape(-1).view(np.uint64))
        return
    lengths = {server: _run_length(phase, server) for server in phase.servers}
    runs = DistributedRuns(phase, lengths, source.width, dtype, index=_index_dtype(phase))
    begins, ends = runs.before((low, high))
    rooms = _Rooms(phase, dtype, _index_dtype(phase))
    # As much memory each time, so that it is used again.
    room, free = rooms("fetched", 0 if runs.whole else source.width * (high - low)), 0
    shares = []
    for place, server in enumerate(runs.servers):
        begin, end = begins[:, place], ends[:, place]
        is_here = server == phase.here or bool(runs.whole)
        past = free + (0 if is_here else int((end - begin).sum()))
        own = room.part(free, past)
        held = _own_run(phase) if server == phase.here else runs.whole.get(server)
        shares.append(_Share(server, lengths[server], begin, end, own, held))
        free = past
    phase.fetch(piece for share in shares for piece in share.pieces())
    last = runs.last(begins) if STARTS in made and low else None
    tables = {number: array.reshape(high - low, source.width) for number, array in made.items()}
    for column in range(source.width):
        outputs = {number: table[:, column] for number, table in tables.items()}
        blocks = sorting.merge([share.run(column) for share in shares], rooms)
        _write(phase, blocks, outputs, None if last is None else last[column])


def _write(
    phase: Phase, blocks: Iterator[SortedRun], outputs: Mapping[int, Array], before: Any
) -> None:
    """The outputs of one column; ``before``: the key before the first one, or None."""
    at = 0
    for block in blocks:
        now = slice(at, at + len(block.keys))
        if VALUES in outputs:
            descending = bool(phase.params[0])
            sorting.decode_keys(block.keys, outputs[VALUES][now], descending=descending)
        if ORDER in outputs:
            outputs[ORDER][now] = block.indices
        if STARTS in outputs:
            _mark_starts(block.keys, outputs[STARTS][now], before)
            before = block.keys[-1]
        at = now.stop
        phase.pause()


def _mark_starts(keys: Array, starts: Array, before: Any) -> None:
    """Mark the first of equal keys; ``before``: the key before them, or None."""
    starts[0] = before is None or keys[0] != before
    np.not_equal(keys[1:], keys[:-1], out=starts[1:])


def _sorts_into_output(phase: Phase) -> bool:
    """Whether one server has all, and sorts it where the result is to be."""
    is_quick = sorting.sorts_elements(_source(phase).dtype, descending=bool(phase.params[0]))
    wanted = phase.wanted
    return _is_one_run(phase) and VALUES in wanted and ORDER not in wanted and is_quick


def _orders_into_output(phase: Phase) -> bool:
    """Whether one server has all, and nothing but the order is asked for."""
    return _is_one_run(phase) and phase.wanted == {ORDER}


def _is_one_run(phase: Phase) -> bool:
    """Whether one server sorts a single column, all of it."""
    call, source = phase.call, _source(phase)
    length = call.types.made.space.length
    return call.whole and source.width == 1 and length == source.space.length


class _Share:
    """What belongs to this server of the run of one, column after column."""

    def __init__(
        self, server: int, length: int, begins: Array, ends: Array, room: SortedRun,
        held: SortedRun | None,
    ) -> None:  # fmt: skip
        """``held``: the whole run, if it is here; else ``room`` for the share."""
        self._server, self._room, self._held = server, room, held
        self._starts = (begins + np.arange(len(begins)) * length).tolist()
        """Where in the run, of which each column has ``length`` keys."""
        self._cuts = np.cumsum([0, *(ends - begins)]).tolist()
        """Where the keys of each column are here."""

    def pieces(self) -> Iterator[RemoteRows]:
        """What must be fetched for it."""
        if self._held is None:
            for name, memory in ((KEYS, self._room.keys), (INDICES, self._room.indices)):
                if memory is not None:
                    for start, (low, high) in zip(self._starts, pairwise(self._cuts), strict=True):
                        yield RemoteRows(self._server, name, start, high - low, memory[low:high])

    def run(self, column: int) -> SortedRun:
        """That of one column."""
        low, high = self._cuts[column : column + 2]
        if self._held is None:
            return self._room.part(low, high)
        start = self._starts[column]
        return self._held.part(start, start + high - low)


def _own_run(phase: Phase) -> SortedRun:
    """The keys of all columns on this server, and their indices if these are wanted."""
    own = phase.workspace
    return SortedRun(own[KEYS], own[INDICES] if ORDER in phase.wanted else None)


def _source(phase: Phase) -> ArrayType:
    (source,) = phase.call.types.inputs
    return source


def _run_length(phase: Phase, server: int) -> int:
    """Keys of each column in the run of a server: no more than are wanted of all."""
    low, high = phase.range_of(_source(phase).space, server)
    return min(high - low, phase.call.types.made.space.length)


def _index_dtype(phase: Phase) -> np.dtype[Any] | None:
    """Of indices on their way; None if nobody wants them."""
    if ORDER not in phase.wanted:
        return None
    return np.dtype(np.uint32 if _source(phase).space.length <= 1 << 32 else np.int64)


def leave_whole_run(phase: Phase) -> None:
    """Sort this server's part, unless it is the whole."""
    if phase.call.whole:
        return
    sort_part(phase, len(phase.inputs[0]), None, ranks=_ranks(phase))


def find_order_statistics(phase: Phase) -> None:
    """The first server looks at the runs of all around each rank."""
    if phase.here != phase.servers[0]:
        return
    (source,), (given,) = phase.call.types.inputs, phase.operands
    lengths = {}
    for server in phase.servers:
        low, high = phase.range_of(source.space, server)
        lengths[server] = high - low
    last = source.space.length - 1
    ranks = np.broadcast_to(np.clip(given, 0, last), (len(given), source.width))
    if phase.call.whole:
        phase.results[0] = _at_ranks(phase, ranks).reshape(len(given), *source.row)
        return
    dtype = sorting.key_dtype(source.dtype)
    runs = DistributedRuns(phase, lengths, source.width, dtype, _ranks(phase), few=_FEW_BYTES // 8)
    keys = runs.at(ranks).ravel()
    found = np.empty(len(keys), source.dtype)
    sorting.decode_keys(keys, found)
    phase.results[0] = found.reshape(len(given), *source.row)


def _at_ranks(phase: Phase, ranks: Array) -> Array:
    """What a table of one server holds at ``ranks``, of shape ``(ranks, columns)``."""
    (x,) = phase.inputs
    found, room = np.empty(ranks.shape, x.dtype), phase.scratch(len(x), x.dtype)
    for number, column in enumerate(x.reshape(len(x), ranks.shape[1]).T):
        found[:, number] = sorting.at_ranks(column, ranks[:, number], room)
        phase.pause()
    return found


def _ranks(phase: Phase) -> int:
    """How many are to be found in each column."""
    return phase.call.types.operands[0].row[0]


PHASES: dict[str, tuple[PhaseFunction, ...]] = {
    SORT: (leave_run, merge_runs),
    ORDER_STATISTICS: (leave_whole_run, find_order_statistics),
}
"""By kind, the functions of the phases."""
