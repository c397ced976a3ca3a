"""Over the blocks of a run: chunk by chunk, each thread from its first block to its last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.kernel import Arrays
from ps_backend.kernels.rows.instructions import Instruction, Recipe, constants_of
from ps_backend.kernels.rows.reductions import (
    AllRows,
    Fold,
    InTree,
    ListedRows,
    Of,
    PerBlock,
    joined_tree,
)
from ps_backend.kernels.rows.slot_lists import Listed, SlotList
from ps_backend.program.partials import of_tree
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.row_ops import Place
from ps_backend.program.sweep import Reduction, Scalar, Sweep
from ps_backend.program.types import ValueType

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Reducing:
    """A reduction as the engine runs it."""

    reduction: Reduction
    layout: str
    types: tuple[ValueType, ...]
    """Of its partial results."""
    reduce: Of


class Job:
    """One call of a kernel: what all its threads share."""

    def __init__(
        self,
        sweep: Sweep,
        recipe: Recipe,
        reducing: Sequence[Reducing],
        inputs: Arrays,
        scalars: Sequence[Scalar],
        outputs: Arrays,
        place: tuple[int, int, int, int],
    ) -> None:
        """``place``: first slot, slots, slots of a block, most slots of a chunk."""
        self.sweep, self.recipe, self.reducing = sweep, recipe, reducing
        self.inputs, self.outputs = inputs, outputs
        self.offset, self.length, self.block_size, self.chunk = place
        self.constants = constants_of(recipe, sweep, scalars)
        named = [one.listed for one in recipe.instructions if one.listed is not None]
        named += [one.reduction.args[1] for one in reducing if one.layout == "listed"]
        self.lists = {value: SlotList(self.constants[value]) for value in named}
        self.listed = {
            k: Listed(self.lists[one.reduction.args[1]], self.offset, self.length)
            for k, one in enumerate(reducing)
            if one.layout == "listed"
        }
        self.arrays = [self._arrays_of(k, one) for k, one in enumerate(reducing)]
        """By reduction what its partial results go to, but for those in trees."""
        self.may_skip = not sweep.outputs and len(self.listed) == len(reducing)
        self.direct = [self._is_direct(one) for one in recipe.instructions]
        self.in_place = any(np.may_share_memory(a, b) for a in inputs for b in outputs)

    def _arrays_of(self, k: int, one: Reducing) -> list[npt.NDArray[Any]]:
        match one.layout:
            case "tree":
                return []
            case "slots":
                entries = self.length
            case "listed":
                entries = self.listed[k].count
            case _:
                entries = -(-self.length // self.block_size)
        return [np.empty((entries, *value.row), value.dtype) for value in one.types]

    def _is_direct(self, one: Instruction) -> bool:
        """Whether the value may be written to its output at once."""
        if one.output is None:
            return False
        out = self.outputs[one.output]
        return not any(np.may_share_memory(out, self.inputs[k]) for k in one.late)

    def folds(self, block: int) -> list[Fold]:
        """What a walk from ``block`` on accumulates."""
        return [self._fold(k, one, block) for k, one in enumerate(self.reducing)]

    def _fold(self, k: int, one: Reducing, block: int) -> Fold:
        reducer = REDUCERS[one.reduction.op]
        match one.layout:
            case "tree":
                return InTree(one.reduce, reducer, self.offset // self.block_size + block)
            case "slots":
                return AllRows(self.arrays[k][0], self.offset)
            case "listed":
                return ListedRows(self.arrays[k][0], self.listed[k])
        return PerBlock(one.reduce, reducer, block, self.arrays[k])

    def partials(self, walks: Sequence[Walk]) -> list[npt.NDArray[Any]]:
        """What the walks have left."""
        found: list[npt.NDArray[Any]] = []
        for k, one in enumerate(self.reducing):
            found += self.arrays[k]
            if one.layout == "tree":
                tree = joined_tree([walk.folds[k] for walk in walks])
                found += of_tree(self.sweep, one.reduction, tree)
        return found


class Walk:
    """One thread's way over blocks ``first .. last-1`` of a job."""

    def __init__(self, job: Job, first: int, last: int) -> None:
        self._job = job
        self._row = first * job.block_size
        self._end = min(last * job.block_size, job.length)
        rows = min(job.chunk, job.length)
        self._scratch = [np.empty((rows, *t.row), t.dtype) for t in job.recipe.scratch]
        self.folds = job.folds(first)

    @property
    def is_over(self) -> bool:
        """Whether it has come to its end."""
        return self._row >= self._end

    def advance(self, chunks: int) -> None:
        """Go on for so many chunks."""
        size = self._job.block_size
        with np.errstate(all="ignore"):  # of this thread
            for _ in range(chunks):
                if self._job.may_skip:
                    self._skip()
                if self.is_over:
                    return
                low = self._row
                block_end = min(low - low % size + size, self._end)
                self._row = high = min(low + self._job.chunk, block_end)
                self._chunk(low, high)
                if high == block_end:
                    for fold in self.folds:
                        fold.end_block()

    def _skip(self) -> None:
        """To the next chunk that something is wanted of."""
        job = self._job
        wanted = [one.next(job.offset + self._row) for one in job.listed.values()]
        row = min((slot - job.offset for slot in wanted if slot is not None), default=self._end)
        start = row - row % job.block_size
        self._row = start + (row - start) // job.chunk * job.chunk

    def _chunk(self, low: int, high: int) -> None:
        job, length = self._job, high - low
        first = job.offset + low
        values: dict[int, Any] = dict(enumerate(array[low:high] for array in job.inputs))
        values |= job.constants
        left = dict(enumerate(job.sweep.outputs))
        for one, direct in zip(job.recipe.instructions, job.direct, strict=True):
            if direct and one.output is not None:
                out: Any = job.outputs[one.output][low:high]
                del left[one.output]
            else:
                out = None if one.scratch is None else self._scratch[one.scratch][:length]
            values[one.target] = self._computed(one, values, out, first, length)
        for reducing, fold in zip(job.reducing, self.folds, strict=True):
            args = reducing.reduction.args[: 1 if reducing.layout == "listed" else None]
            fold.add(first, *[self._whole(values, arg, length) for arg in args])
        # Last, as an output may lie where an input was, which others may be views of.
        stored = [(k, values[v].copy() if job.in_place else values[v]) for k, v in left.items()]
        for k, value in stored:
            np.copyto(job.outputs[k][low:high], value)

    def _computed(
        self, one: Instruction, values: dict[int, Any], out: Any, first: int, length: int
    ) -> Any:
        row_op, step = one.row_op, one.step
        if row_op is None:
            place = Place((), step.type, first, length, _NONE, _NONE)
            return one.run(out, place, *[values[arg] for arg in one.args])
        entries = slots = _NONE
        if one.listed is not None:
            entries, slots = self._job.lists[one.listed].within(first, length)
        place = Place(step.params, step.type, first, length, entries, slots)
        own = row_op.arity - row_op.held
        args = [self._whole(values, arg, length) for arg in one.args[:own]]
        return one.run(out, place, *args, *[values[arg] for arg in one.args[own:]])

    def _whole(self, values: dict[int, Any], value: int, length: int) -> Any:
        """A value as an array with a row for each slot, also where it is constant."""
        if value not in self._job.constants:
            return values[value]
        return np.broadcast_to(values[value], (length, *self._job.sweep.types[value].row))
