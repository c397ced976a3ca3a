"""Sorts along axis 0: each server sorts its part, and merges what is its own of all parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.moving import ordered_keys, sorting
from ps_backend.kernels.moving.sorting import Run
from ps_backend.program.sorting import ORDER, SORT, STARTS, VALUES
from ps_backend.program.spaces import Space
from ps_backend.program.types import ArrayType
from ps_backend.server.movements import phase as movement_phase
from ps_backend.server.movements.phase import Phase, Piece
from ps_backend.server.movements.runs import INDICES, KEYS, Runs, leave_samples

Array = npt.NDArray[Any]

_INDEX, _NARROW = np.dtype(np.int64), np.dtype(np.uint32)


def phases() -> Mapping[str, tuple[movement_phase.Run, ...]]:
    """The functions of each phase, by kind."""
    return {SORT: (leave_run, merge_runs)}


class _Rooms:
    """Memory for runs, which one column after the other uses."""

    def __init__(self, phase: Phase, keys: np.dtype[Any], indices: np.dtype[Any] | None) -> None:
        self._phase, self._keys, self._indices = phase, keys, indices
        self._made: dict[str, Run] = {}

    def __call__(self, name: str, length: int) -> Run:
        """That of ``name``, contents undefined; raises ``OutOfBudget``."""
        found = self._made.get(name)
        if found is None or len(found.keys) < length:
            keys = self._phase.scratch(length, self._keys)
            indices = self._phase.scratch(length, self._indices) if self._indices else None
            found = self._made[name] = Run(keys, indices)
        return found.part(0, length)


def leave_run(phase: Phase) -> None:
    """Sort the keys of this server's part: all, or as many as the first that are wanted."""
    kept, index = _run_length(phase, phase.here), _index_dtype(phase, phase.here)
    equal_zeros = bool({ORDER, STARTS} & phase.wanted)
    descending = bool(phase.params[0])
    sort_part(phase, kept, index, descending=descending, equal_zeros=equal_zeros)


def sort_part(
    phase: Phase, kept: int, index: np.dtype[Any] | None, *, descending: bool = False,
    equal_zeros: bool = False, ranks: int = 1,
) -> None:  # fmt: skip
    """Leave a run of the first ``kept`` keys of each column of the input, and samples of it.

    With an ``index`` dtype their indices among this server's elements too. ``ranks``: so many are
    to be found at once.
    """
    (x,) = phase.inputs
    length, columns = len(x), phase.call.types.inputs[0].width
    dtype = ordered_keys.key_dtype(x.dtype)
    rooms = _Rooms(phase, dtype, index)
    keys = phase.workspace.new(KEYS, columns * kept, dtype)
    indices = phase.workspace.new(INDICES, columns * kept, index) if index else None
    run = Run(keys, indices)
    for number, column in enumerate(x.reshape(length, columns).T):
        target = run.part(number * kept, (number + 1) * kept)
        room = target if kept == length else rooms("part", length)
        ordered_keys.encode(column, room.keys, descending=descending, equal_zeros=equal_zeros)
        places = None if kept == length else sorting.least(room.keys, kept)
        if places is not None:
            np.take(room.keys, places, out=target.keys)
        if target.indices is None:
            sorting.sort(target.keys)
        else:
            target.indices[:] = np.arange(length, dtype=index) if places is None else places
            made = sorting.sort_with_indices(target, rooms("spare", kept), phase.pause)
            if made is not target:
                np.copyto(target.keys, made.keys)
                np.copyto(target.indices, made.indices)
        phase.pause()
    leave_samples(phase, columns, ranks)


def merge_runs(phase: Phase) -> None:
    """Fetch what belongs here of the runs of all, and merge it."""
    source, made, rows = _source(phase), phase.outputs, _made_space(phase)
    low, high = phase.range_of(rows)
    if low == high:
        return
    dtype = ordered_keys.key_dtype(source.dtype)
    lengths = {server: _run_length(phase, server) for server in phase.servers}
    runs = Runs(phase, lengths, source.width, dtype)
    begins, ends = runs.before((low, high))
    shares = [
        _Share(phase, server, lengths[server], begins[:, place], ends[:, place])
        for place, server in enumerate(runs.servers)
    ]
    phase.fetch(piece for share in shares for piece in share.pieces())
    for share in shares:
        share.number_globally()
    last = runs.last(begins) if STARTS in made and low else None
    rooms = _Rooms(phase, dtype, _INDEX if ORDER in made else None)
    tables = {number: array.reshape(high - low, source.width) for number, array in made.items()}
    for column in range(source.width):
        at, before = 0, None if last is None else last[column]
        for block in sorting.merge([share.run(column) for share in shares], rooms):
            past = at + len(block.keys)
            if VALUES in made:
                target = tables[VALUES][at:past, column]
                ordered_keys.decode(block.keys, target, descending=bool(phase.params[0]))
            if block.indices is not None:
                tables[ORDER][at:past, column] = block.indices
            if STARTS in made:
                _mark_starts(block.keys, before, tables[STARTS][at:past, column])
                before = block.keys[-1]
            at = past
            phase.pause()


def _mark_starts(keys: Array, before: Any, starts: Array) -> None:
    """Write where another key begins, if ``before`` is the one before; None if there is none."""
    starts[0] = before is None or keys[0] != before
    np.not_equal(keys[1:], keys[:-1], out=starts[1:])


class _Share:
    """What belongs to this server of the run of one, column after column."""

    def __init__(self, phase: Phase, server: int, length: int, begins: Array, ends: Array) -> None:
        self._phase, self._server = phase, server
        self._starts = begins + np.arange(len(begins)) * length
        """Where in the run, of which each column has ``length`` keys."""
        self._cuts = np.cumsum([0, *(ends - begins)])
        """Where the keys of each column are here."""
        total, index = int(self._cuts[-1]), _index_dtype(phase, server)
        self._keys = phase.scratch(total, ordered_keys.key_dtype(_source(phase).dtype))
        self._narrow = phase.scratch(total, index) if index else None
        self._indices = phase.scratch(total, _INDEX) if index else None

    def pieces(self) -> Iterator[Piece]:
        """What must be fetched for it."""
        for name, memory in ((KEYS, self._keys), (INDICES, self._narrow)):
            if memory is not None:
                for start, (low, high) in zip(self._starts, pairwise(self._cuts), strict=True):
                    yield Piece(self._server, name, int(start), int(high - low), memory[low:high])

    def number_globally(self) -> None:
        """Once all has come: make global indices of those of the server."""
        if self._indices is not None and self._narrow is not None:
            first, _ = self._phase.range_of(_source(self._phase).space, self._server)
            np.add(self._narrow, first, out=self._indices, casting="unsafe")

    def run(self, column: int) -> Run:
        """That of one column."""
        return Run(self._keys, self._indices).part(*self._cuts[column : column + 2])


def _source(phase: Phase) -> ArrayType:
    (source,) = phase.call.types.inputs
    return source


def _made_space(phase: Phase) -> Space:
    _, type = phase.call.types.outputs[0]
    return type.space


def _run_length(phase: Phase, server: int) -> int:
    """Keys of each column in the run of a server: no more than are wanted of all."""
    low, high = phase.range_of(_source(phase).space, server)
    return min(high - low, _made_space(phase).length)


def _index_dtype(phase: Phase, server: int) -> np.dtype[Any] | None:
    """Of the indices of a server's elements among its own; None if nobody wants them."""
    low, high = phase.range_of(_source(phase).space, server)
    is_wanted = ORDER in phase.wanted
    return (_NARROW if high - low <= 1 << 32 else _INDEX) if is_wanted else None
