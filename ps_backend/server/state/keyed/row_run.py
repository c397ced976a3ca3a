"""A row program on one server: find the keys, gather their rows, compute, scatter the results.

It works on some thousand keys at a time, so that what is gathered is in the cache still when it is
computed with, and written back; of hot ones at some dozens (``kernels.keyed.row_tiles``). Between
larger pieces others have their turn at the space.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ps_backend.errors import InvalidProgram
from ps_backend.kernels import Kernel, compile_sweep
from ps_backend.kernels.kernel import in_parts
from ps_backend.kernels.keyed.row_tiering import HotRows
from ps_backend.program.row_program import RowProgram
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Scalar
from ps_backend.server.state.keyed.space import (
    KeyedRows,
    KeyedSpace,
    KeyList,
    Keys,
    Locations,
    refuse_freed,
)
from ps_backend.server.state.memory import MemoryBlock, Reservation

Array = npt.NDArray[Any]
Ahead = Mapping[KeyedSpace, Reservation]
"""Room that was reserved in spaces for keys that are to be inserted."""

AT_ONCE = 1 << 16
"""Keys for which the space is held: some 10 ms of work, which others wait for."""
_CHUNK_BYTES = 1 << 18
"""Of the widest row of so many keys: what is in the cache after it was gathered."""
_LENGTH = 1 << 12
"""Kernels are compiled for batches of about so many keys; their length has no other meaning."""
_BLOCK = DenseSpace(_LENGTH).block_size
_VISIT_WORK = 100
"""Additions that take as long as to read, or to write, a row that is not in the cache."""
_REMEMBERED_SIZE = 128
"""Sweeps of more values are prepared for each call: all sessions share what is remembered."""


@dataclass(slots=True)
class RowRun:
    """One row program, ready to run on arrays of a space."""

    program: RowProgram
    arrays: Sequence[KeyedRows]
    scalars: Sequence[Scalar]
    kernel: Kernel | None
    """None where nothing is computed: results are what was gathered, or what came along."""
    computed: Sequence[int]
    """The outputs that the kernel makes, by their places among those of the sweep."""
    hot: HotRows
    """What runs it once it has run for long."""
    spaces: Sequence[KeyedSpace] = ()
    """Of each array, in a ``CoupledRun``."""

    @classmethod
    def prepare(
        cls, program: RowProgram, arrays: Sequence[KeyedRows], scalars: Sequence[Scalar]
    ) -> Self:
        """Compiled, of a sweep that the session has verified as it came.

        Raises ``InvalidProgram`` where parts of the program, or types and arrays, do not fit.
        """
        is_small = program.sweep.size <= _REMEMBERED_SIZE
        kernel, computed, hot = (_remembered if is_small else _compile)(program)
        verify_arrays(program, arrays)
        return cls(program, arrays, scalars, kernel, computed, hot)

    def run(
        self,
        space: KeyedSpace,
        keys: KeyList,
        given: Sequence[Array],
        out: Sequence[Array],
        ahead: Ahead | None = None,
    ) -> None:
        """Run on all keys. ``given``: a row for each of them; ``out``: arrays for what is returned.

        Keys that are missing are inserted if the program writes, else they have their initial
        values. ``OutOfBudget``, and nothing changed, where there is no room for them; ``ahead``:
        room that was reserved. ``BufferLost`` once an array is freed.
        """
        count = len(keys.keys)
        reserved = None if ahead is None else ahead[space]
        if ahead is None and self.program.changes and count > AT_ONCE:  # all of it, or nothing
            with space.lock:
                locations = space.locate(keys)
                if space.admission is None and locations.min() < 0:
                    reserved = space.reserve_for(space.index.missing(keys.keys, locations))
        for low in range(0, count, AT_ONCE):
            high = min(low + AT_ONCE, count)
            with space.lock:
                refuse_freed(self.arrays)
                locations = space.locate(keys)[low:high]
                if self.program.changes:
                    space.insert(keys.keys[low:high], locations, reserved)
                    keys.version = space.version  # the others of these keys are missing still
                self._run_piece(keys.keys, locations, low, given, out)

    def _run_piece(
        self,
        keys: Keys,
        locations: Locations,
        low: int,
        given: Sequence[Array],
        out: Sequence[Array],
    ) -> None:
        """Run on the keys from ``low`` on that have these ``locations``."""
        if not len(locations):
            return
        keys = keys[low : low + len(locations)]
        given, out = ([one[low : low + len(locations)] for one in some] for some in (given, out))
        tiles = self.hot.tiles if locations.min() >= 0 else None

        def run(first: int, last: int) -> None:
            part = slice(first, last)
            inputs, results = [one[part] for one in given], [one[part] for one in out]
            if tiles is None:
                self._run_chunks(keys[part], locations[part], inputs, results)
                return
            if self.program.with_keys:
                inputs.append(keys[part])
            stores = [array.store for array in self.arrays]
            tiles.run(stores, locations[part], inputs, self.scalars, results)

        if tiles is not None or self.kernel is None:
            in_parts(run, len(locations), self._work)
            return
        began = time.perf_counter()  # its kernel has threads of its own
        run(0, len(locations))
        self.hot.ran(time.perf_counter() - began)

    @property
    def _work(self) -> int:
        """Additions that take as long as one row."""
        program = self.program
        elements = max((prod(value.row) for value in program.sweep.types), default=1)
        visits = len(program.gathers) + len(program.scatters)
        return _VISIT_WORK * visits + elements * len(program.sweep.steps)

    def _run_chunks(
        self, keys: Keys, locations: Locations, given: Sequence[Array], out: Sequence[Array]
    ) -> None:
        """Run on these keys, chunk by chunk."""
        types = (*self.program.sweep.inputs, *self.program.sweep.stored)
        step = max(1, _CHUNK_BYTES // max((value.row_bytes for value in types), default=1))
        for first in range(0, len(locations), step):
            rows = slice(first, first + step)
            parts = [one[rows] for one in given], [one[rows] for one in out]
            self._run_chunk(keys[rows], locations[rows], *parts)

    def _run_chunk(
        self, keys: Keys, locations: Locations, given: Sequence[Array], out: Sequence[Array]
    ) -> None:
        program = self.program
        returned = zip(program.returns, out, strict=True)
        places = {program.sweep.outputs[k]: array for k, array in returned}
        inputs: list[Array] = []
        for number, place in enumerate(program.gathers):
            inputs.append(self.arrays[place].gather(locations, keys, places.get(number)))
        results = self._compute(inputs, keys, given, out)
        for scatter in program.scatters:
            self.arrays[scatter.array].store.scatter(locations, results[scatter.output], scatter.op)

    def _compute(
        self, inputs: list[Array], keys: Keys, given: Sequence[Array], out: Sequence[Array]
    ) -> dict[int, Array]:
        """The outputs of the sweep, by place, of rows that were gathered: ``inputs``."""
        program, sweep, count = self.program, self.program.sweep, len(keys)
        returned = dict(zip(program.returns, out, strict=True))
        inputs += given
        if program.with_keys:
            inputs.append(keys)
        results: dict[int, Array] = {}
        for k, value in enumerate(sweep.outputs):
            if value < len(inputs):
                results[k] = inputs[value]
            elif k in returned:
                results[k] = returned[k]
            else:
                type = sweep.types[value]
                results[k] = np.empty((count, *type.row), type.dtype)
        if self.kernel is not None:
            made = [results[k] for k in self.computed]
            with np.errstate(all="ignore"):
                self.kernel(inputs, self.scalars, made, 0, count, _BLOCK)
        for k, target in returned.items():
            if results[k] is not target:
                np.copyto(target, results[k])
        return results


def _compile(program: RowProgram) -> tuple[Kernel | None, Sequence[int], HotRows]:
    """The kernel of a program, the outputs that it makes, and its heat. Its sweep is verified."""
    program.verify()
    sweep = program.sweep
    computed = [k for k, v in enumerate(sweep.outputs) if v >= len(sweep.inputs)]
    if not computed:
        return None, computed, HotRows(program)
    outputs = tuple(sweep.outputs[k] for k in computed)
    return compile_sweep(replace(sweep, outputs=outputs), _LENGTH), computed, HotRows(program)


_remembered = lru_cache(maxsize=1024)(_compile)


def verify_arrays(program: RowProgram, arrays: Sequence[KeyedRows]) -> None:
    """Raise ``InvalidProgram`` unless the arrays are of the types that a program has there."""
    sweep = program.sweep
    pairs = [(place, sweep.inputs[number]) for number, place in enumerate(program.gathers)]
    pairs += [(one.array, program.results[one.output]) for one in program.scatters]
    for place, type in pairs:
        if place >= len(arrays):
            raise InvalidProgram(f"a row program with {len(arrays)} arrays has no array {place}")
        if arrays[place].type != type:
            raise InvalidProgram(f"array {place} must be {type}, got {arrays[place].type}")


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


class PreparedRows:
    """Row programs in the order in which they are to run, and room for the keys they insert."""

    def __init__(self, rows: Sequence[StagedRows]) -> None:
        """``OutOfBudget``, and nothing is reserved, where there is no room for all new keys.

        Where keys are admitted late, as if all were admitted.
        """
        self._rows = rows
        self._kept: dict[KeyedSpace, Reservation] = {}
        lists: dict[KeyedSpace, list[Keys]] = {}
        for one in rows:
            for space in {one.space, *one.run.spaces}:
                lists.setdefault(space, []).append(one.keys.keys)
        for space, some in lists.items():
            keys = np.unique(np.concatenate(some))
            with space.lock:
                self._kept[space] = space.reserve_for(space.index.missing(keys))

    def apply(self) -> None:
        """Run them. ``BufferLost`` if an array was freed meanwhile."""
        for one in self._rows:
            one.run.run(one.space, one.keys, one.given, (), self._kept)
