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
    dtype = ordered_keys.key_dtype(x.dtype)
    rooms = _Rooms(phase, dtype, index)
    keys = phase.workspace.new(KEYS, columns * kept, dtype)
    indices = phase.workspace.new(INDICES, columns * kept, index) if index else None
    run = Run(keys, indices)
    for number, column in enumerate(x.reshape(length, columns).T):
        target = run.part(number * kept, (number + 1) * kept)
        room = target if kept == length else rooms("part", length)
        ordered_keys.encode(column, room.keys, descending=descending, equal_zeros=equal_zeros)
        places = None
        if kept < length:
            places = sorting.least(room.keys, kept, rooms("spare", length).keys)
            np.take(room.keys, places, out=target.keys)
        if target.indices is None:
            sorting.sort(target.keys)
        else:
            first, _ = phase.range_of(_source(phase).space)
            if places is None:
                sorting.number(target.indices, first)
            else:
                np.add(places, first, out=target.indices, casting="unsafe")
            made = sorting.sort_with_indices(target, rooms("spare", kept), phase.pause)
            if made is not target:
                np.copyto(target.keys, made.keys)
                np.copyto(target.indices, made.indices)
        phase.pause()
    leave_samples(phase, columns, ranks)


def merge_runs(phase: Phase) -> None:
    """Fetch what belongs here of the runs of all, and merge it."""
    source, made = _source(phase), phase.outputs
    low, high = phase.range_of(_made_space(phase))
    if low == high:
        return
    dtype = ordered_keys.key_dtype(source.dtype)
    lengths = {server: _run_length(phase, server) for server in phase.servers}
    runs = Runs(phase, lengths, source.width, dtype)
    begins, ends = runs.before((low, high))
    rooms = _Rooms(phase, dtype, _index_dtype(phase))
    # As much memory each time, so that it is used again.
    room, free = rooms("fetched", source.width * (high - low)), 0
    shares = []
    for place, server in enumerate(runs.servers):
        begin, end = begins[:, place], ends[:, place]
        past = free + (0 if server == phase.here else int((end - begin).sum()))
        own = room.part(free, past)
        shares.append(_Share(phase, server, lengths[server], begin, end, own))
        free = past
    phase.fetch(piece for share in shares for piece in share.pieces())
    last = runs.last(begins) if STARTS in made and low else None
    tables = {number: array.reshape(high - low, source.width) for number, array in made.items()}
    for column in range(source.width):
        outputs = {number: table[:, column] for number, table in tables.items()}
        blocks = sorting.merge([share.run(column) for share in shares], rooms)
        _write(phase, blocks, outputs, None if last is None else last[column])


def _write(phase: Phase, blocks: Iterator[Run], outputs: Mapping[int, Array], before: Any) -> None:
    """The outputs of one column; ``before``: the key before the first one, or None."""
    at = 0
    for block in blocks:
        now = slice(at, at + len(block.keys))
        if VALUES in outputs:
            descending = bool(phase.params[0])
            ordered_keys.decode(block.keys, outputs[VALUES][now], descending=descending)
        if ORDER in outputs:
            outputs[ORDER][now] = block.indices
        if STARTS in outputs:
            starts = outputs[STARTS][now]
            starts[0] = before is None or block.keys[0] != before
            np.not_equal(block.keys[1:], block.keys[:-1], out=starts[1:])
            before = block.keys[-1]
        at = now.stop
        phase.pause()


class _Share:
    """What belongs to this server of the run of one, column after column."""

    def __init__(
        self, phase: Phase, server: int, length: int, begins: Array, ends: Array, room: Run
    ) -> None:
        self._phase, self._server, self._room = phase, server, room
        self._starts = (begins + np.arange(len(begins)) * length).tolist()
        """Where in the run, of which each column has ``length`` keys."""
        self._cuts = np.cumsum([0, *(ends - begins)]).tolist()
        """Where the keys of each column are here."""

    def pieces(self) -> Iterator[Piece]:
        """What must be fetched for it."""
        if self._server != self._phase.here:
            for name, memory in ((KEYS, self._room.keys), (INDICES, self._room.indices)):
                if memory is not None:
                    for start, (low, high) in zip(self._starts, pairwise(self._cuts), strict=True):
                        yield Piece(self._server, name, start, high - low, memory[low:high])

    def run(self, column: int) -> Run:
        """That of one column."""
        low, high = self._cuts[column : column + 2]
        if self._server != self._phase.here:
            return self._room.part(low, high)
        own, start = self._phase.workspace, self._starts[column]
        with_indices = ORDER in self._phase.wanted
        run = Run(own[KEYS], own[INDICES] if with_indices else None)
        return run.part(start, start + high - low)


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


def _index_dtype(phase: Phase) -> np.dtype[Any] | None:
    """Of indices on their way; None if nobody wants them."""
    if ORDER not in phase.wanted:
        return None
    return np.dtype(np.uint32 if _source(phase).space.length <= 1 << 32 else np.int64)
