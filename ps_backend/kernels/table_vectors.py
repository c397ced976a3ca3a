"""Sweeps that read tables through vectors: as sweeps over vectors, part by part.

``r = A @ w - b; A.T @ r`` takes a vector of a table, computes on vectors alone, and reduces the
table and a vector at the end. The first and the last are loops of BLAS. The steps between are a
sweep over vectors, which has engines that one over whole rows lacks, and which all columns
``A[:, j]`` of a table share. A part of the table stays in the cache meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.kernel import Arrays, Kernel, Pause, no_pause, thread_count, together
from ps_backend.kernels.numpy_reductions import (
    InTree,
    block_reduction_of,
    joined_tree,
    reduction_of,
)
from ps_backend.program import row_ops
from ps_backend.program.partials import of_tree, partial_types
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.row_ops import Place
from ps_backend.program.sweep import Combination, Reduction, Scalar, Step, Sweep
from ps_backend.serial_blas import serial_blas

Array = npt.NDArray[Any]

_HERE, _GIVEN, _STORED = range(3)
"""Lists of arrays: inputs of the whole sweep, inputs of the sweep over vectors, outputs of it."""


@dataclass(frozen=True, slots=True)
class TableVectors:
    """The parts of a sweep."""

    sweep: Sweep
    vectors: Sweep
    """What is computed on vectors. Its outputs are those of the whole sweep, then ``extra``."""
    sources: tuple[int | Step, ...]
    """By input of it an input of the whole one, or the step that makes it of tables."""
    scalars: tuple[int, ...]
    """Which scalars of the whole sweep it has."""
    joined: tuple[int, ...]
    """Which reductions read tables. Its own are the others."""
    extra: tuple[int, ...]
    """The other values of the whole sweep that these read."""

    @property
    def multiplies(self) -> bool:
        """Whether BLAS has work."""
        made = any(isinstance(s, Step) and row_ops.TABLE[s.op].products for s in self.sources)
        return made or any(self.sweep.reductions[k].op == "gram" for k in self.joined)


@lru_cache(maxsize=1024)
def through_vectors(sweep: Sweep) -> TableVectors | None:
    """How ``sweep`` falls into parts; None if it computes on rows, or on no vector of a table."""
    first, after = len(sweep.inputs), len(sweep.inputs) + len(sweep.scalars)
    types, tables = sweep.types, {k for k, value in enumerate(sweep.inputs) if value.row}
    made, plain = dict[int, Step](), dict[int, Step | Combination]()
    for value, step in enumerate(sweep.steps, after):
        if isinstance(step, Step) and step.op in row_ops.TABLE:
            made[value] = step
        else:
            plain[value] = step
    joined = [k for k, r in enumerate(sweep.reductions) if not tables.isdisjoint(r.args)]
    own = [r for k, r in enumerate(sweep.reductions) if k not in joined]
    read = {*sweep.outputs}.union(*(one.args for one in (*plain.values(), *own)))
    extra = {arg for k in joined for arg in sweep.reductions[k].args if arg >= after} - made.keys()
    if (
        not (tables and sweep.steps)
        or any(types[value].row for value in (*read, *made, *plain, *extra))
        or not all(_makes_vector(sweep, step) for step in made.values())
        or not all(_is_tree(sweep, sweep.reductions[k]) for k in joined)
    ):
        return None
    sources: dict[int | Step, int] = {k: 0 for k in range(first) if k not in tables}
    sources |= dict.fromkeys(made.values(), 0)
    sources = {source: at for at, source in enumerate(sources)}
    scalars = [k for k in range(first, after) if not types[k].row]
    number = {k: at for k, at in sources.items() if isinstance(k, int)}
    number |= {k: at for at, k in enumerate(scalars, len(sources))}
    number |= {value: sources[step] for value, step in made.items()}
    number |= {value: at for at, value in enumerate(plain, len(sources) + len(scalars))}
    stored = sorted(extra - {*sweep.outputs})
    vectors = Sweep(
        tuple(types[s] if isinstance(s, int) else s.type for s in sources),
        tuple(types[k] for k in scalars),
        tuple(step.renumbered(number) for step in plain.values()),
        tuple(number[value] for value in (*sweep.outputs, *stored)),
        tuple(r.renumbered(number) for r in own),
    )
    return TableVectors(
        sweep,
        vectors,
        tuple(sources),
        tuple(k - first for k in scalars),
        tuple(joined),
        tuple(stored),
    )


def _makes_vector(sweep: Sweep, step: Step) -> bool:
    """Whether it reads only rows of inputs, and runtime scalars."""
    op = row_ops.TABLE[step.op]
    own, held = step.args[: op.arity - op.held], step.args[op.arity - op.held :]
    is_plain = op.slots is None and not (op.whole or op.may_fail)
    first = len(sweep.inputs)
    return (
        is_plain
        and all(arg < first and sweep.inputs[arg].row for arg in own)
        and all(first <= arg < first + len(sweep.scalars) for arg in held)
    )


def _is_tree(sweep: Sweep, reduction: Reduction) -> bool:
    """Whether it leaves sums over blocks, of values in the slots."""
    args, scalars = reduction.args, range(len(sweep.inputs), len(sweep.inputs) + len(sweep.scalars))
    is_sum = reduction.op == "gram" or (reduction.axis == 0 and not reduction.bins)
    is_by_slot = sweep.constants.isdisjoint(args) and not any(arg in scalars for arg in args)
    return is_sum and is_by_slot and block_reduction_of(sweep, reduction) is not None


LEAST_ELEMENTS = 1 << 17
"""Elements of all tables below which a part takes less time than to begin it."""
_CHUNK = 1 << 20
"""Elements of the tables in a part, in whole blocks: with fewer, threads wait longer for each
other's turns with the interpreter than the cache saves."""
_LEAST_ROWS = 1 << 14
"""Of a part."""
_SHARED = 1 << 20
"""Elements for each thread from which a second one is worth the turns with it."""
_TILE = 1 << 13
"""Slots that are copied of columns at a time: the next column is in the same lines of memory."""
_PARTS_AT_ONCE = 8
"""So many parts a thread goes on for without a pause."""


class TableVectorKernel:
    """See ``kernels.Kernel`` for the call."""

    def __init__(self, parts: TableVectors, kernel: Kernel) -> None:
        """``kernel`` is one of the sweep over vectors."""
        self._parts, self._kernel = parts, kernel
        sweep = parts.sweep
        self._width = sum(prod(value.row) for value in sweep.inputs if value.row)
        self._joined = [sweep.reductions[k] for k in parts.joined]
        self._folds = [
            (reduction_of(sweep, r), block_reduction_of(sweep, r), REDUCERS[r.op])
            for r in self._joined
        ]
        self._read = [[self._place_of(arg) for arg in r.args] for r in self._joined]
        self._multiplies = parts.multiplies
        self._is_whole = parts.vectors.leaves_rows

    def __call__(
        self,
        inputs: Arrays,
        scalars: Sequence[Scalar],
        outputs: Arrays,
        offset: int,
        length: int,
        block_size: int,
        pause: Pause = no_pause,
    ) -> list[Array]:
        """Run over one server's range; see ``kernels.Kernel``."""
        rows, threads = self._rows(length, block_size), self._threads(length)
        look = pause if threads == 1 else no_pause
        walk = partial(self._walk, inputs, scalars, outputs, offset, block_size, look)
        walks: list[_Walk] = []
        with serial_blas() if self._multiplies else nullcontext():
            for low in range(0, max(length, 1), threads * _PARTS_AT_ONCE * rows):
                if low:
                    pause()
                parts = min(threads * _PARTS_AT_ONCE, max(1, -(-(length - low) // rows)))
                cuts = [low + parts * part // threads * rows for part in range(threads)]
                ends = [*cuts[1:], min(low + parts * rows, length)]
                walks += together(walk, [rows] * threads, cuts, ends)
        return self._results(walks)

    def working_bytes(self, length: int, block_size: int) -> int:
        """As of any kernel."""
        parts, rows = self._parts, self._rows(length, block_size)
        vectors = parts.vectors
        made = [vectors.inputs[at] for at, s in enumerate(parts.sources) if isinstance(s, Step)]
        extra = vectors.stored[len(parts.sweep.outputs) :]
        kept = [  # copies of inputs that outputs may lie over
            parts.sweep.inputs[at]
            for places in self._read
            for kind, at in places
            if kind == _HERE and not parts.sweep.inputs[at].row
        ]
        scratch = rows * sum(value.row_bytes for value in (*made, *extra, *kept))
        nodes = 4 * (length // block_size + 1).bit_length() + rows // block_size + 3
        for reduction in self._joined:
            types = partial_types(parts.sweep, reduction)
            scratch += nodes * sum(value.row_bytes for value in types)
        blocks = 8 * len(vectors.reductions) * (length // block_size + 1)
        each = scratch + self._kernel.working_bytes(rows, block_size)
        return self._threads(length) * each + blocks

    def _rows(self, length: int, block_size: int) -> int:
        """Slots of a part: some whole blocks, or all where a result is not one for each block."""
        if self._is_whole:
            return max(length, 1)
        return min(self._wanted_rows(block_size), max(1, -(-length // block_size)) * block_size)

    def _wanted_rows(self, block_size: int) -> int:
        """Of a part of a long table."""
        return max(1, max(_LEAST_ROWS, _CHUNK // self._width) // block_size) * block_size

    def _threads(self, length: int) -> int:
        wanted = 1 if self._is_whole else length * self._width // _SHARED
        return 1 if wanted < 2 else min(thread_count(), wanted)

    def _walk(
        self,
        inputs: Arrays,
        scalars: Sequence[Scalar],
        outputs: Arrays,
        offset: int,
        block_size: int,
        pause: Pause,
        rows: int,
        low: int,
        high: int,
    ) -> _Walk:
        """All parts from slot ``low`` to ``high``."""
        parts, most = self._parts, min(rows, high - low)
        vectors, own = parts.vectors, len(parts.sweep.outputs)
        spare = {
            at: np.empty(most, value.dtype)
            for at, value in enumerate(vectors.inputs)
            if isinstance(parts.sources[at], Step)
        }
        extra = [np.empty(most, value.dtype) for value in vectors.stored[own:]]
        numbers = [scalars[k] for k in parts.scalars]
        done = _Walk([], [InTree(*fold, (offset + low) // block_size) for fold in self._folds])
        with np.errstate(all="ignore"):  # of this thread
            for first in range(low, max(high, low + 1), rows):
                last = min(first + rows, high)
                place = Place(offset + first, last - first, block_size)
                here = [array[first:last] for array in inputs]
                given = [
                    here[source] if isinstance(source, int) else spare[at][: last - first]
                    for at, source in enumerate(parts.sources)
                ]
                self._make(here, scalars, given, place, pause)
                written = [array[first:last] for array in outputs]
                stored = [*written, *(array[: last - first] for array in extra)]
                operands = self._operands(here, given, stored)
                done.partials.append(
                    self._kernel(
                        given, numbers, stored, offset + first, last - first, block_size, pause
                    )
                )
                for fold, values in zip(done.folds, operands, strict=True):
                    _fold(fold, values, place)
        return done

    def _place_of(self, value: int) -> tuple[int, int]:
        """The list, and the place in it, of a value that is reduced with a table."""
        parts, sweep = self._parts, self._parts.sweep
        if value < len(sweep.inputs):
            return _HERE, value
        step = sweep.steps[value - len(sweep.inputs) - len(sweep.scalars)]
        if step in parts.sources:
            return _GIVEN, parts.sources.index(step)
        return _STORED, [*sweep.outputs, *parts.extra].index(value)

    def _make(
        self,
        here: Sequence[Array],
        scalars: Sequence[Scalar],
        given: Sequence[Array],
        place: Place,
        pause: Pause,
    ) -> None:
        """Fill those of ``given`` that are made of tables."""
        rows = self._wanted_rows(place.block)
        for low in range(0, place.length, rows):
            if low:
                pause()
            part = slice(low, min(low + rows, place.length))
            piece = Place(place.first + low, part.stop - low, place.block)
            columns = []
            for out, source in zip(given, self._parts.sources, strict=True):
                if isinstance(source, Step):
                    row_op, out = row_ops.TABLE[source.op], out[part]
                    args = [
                        here[arg][part] if arg < len(here) else scalars[arg - len(here)]
                        for arg in source.args
                    ]
                    piece.params = source.params
                    found = row_op.run(None if row_op.view else out, piece, *args)
                    if found is not out:
                        columns.append((found, out))
            for first in range(0, piece.length if columns else 0, _TILE):
                for column, out in columns:
                    out[first : first + _TILE] = column[first : first + _TILE]

    def _operands(
        self, here: Sequence[Array], given: Sequence[Array], stored: Sequence[Array]
    ) -> list[list[Array]]:
        """By reduction that reads a table its arguments, as they are when vectors are computed."""
        found = [[(here, given, stored)[kind][at] for kind, at in places] for places in self._read]
        outputs = stored[: len(self._parts.sweep.outputs)]
        for places, values in zip(self._read, found, strict=True):
            for at, (kind, _) in enumerate(places):
                if kind == _HERE and any(np.may_share_memory(values[at], o) for o in outputs):
                    values[at] = values[at].copy()
        return found

    def _results(self, walks: Sequence[_Walk]) -> list[Array]:
        """The partial results, in the order of the reductions."""
        parts, sweep = self._parts, self._parts.sweep
        runs = [arrays for walk in walks for arrays in walk.partials]
        own = runs[0]
        if len(runs) > 1:
            own = [np.concatenate(some) for some in zip(*runs, strict=True)]
        done: list[Array] = []
        for k, reduction in enumerate(sweep.reductions):
            if k in parts.joined:
                at = parts.joined.index(k)
                tree = joined_tree([walk.folds[at] for walk in walks])
                done += of_tree(sweep, reduction, tree)
            else:
                count = len(partial_types(sweep, reduction))
                done, own = [*done, *own[:count]], own[count:]
        return done


@dataclass(frozen=True, slots=True)
class _Walk:
    """The results of some parts: arrays of the sweep over vectors by part, and nodes of trees."""

    partials: list[list[Array]]
    folds: list[InTree]


def _fold(tree: InTree, values: Sequence[Array], place: Place) -> None:
    """The blocks of a part, the last of which may be short."""
    done = tree.add_blocks(place.block, *values)
    if done < place.length:
        tree.add(place.first + done, *(value[done:] for value in values))
        tree.end_block()
