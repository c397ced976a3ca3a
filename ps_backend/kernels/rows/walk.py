"""Over the blocks of a run: chunk by chunk, each thread from its first block to its last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.kernel import Arrays
from ps_backend.kernels.rows.instructions import Instruction, Recipe, constants_of
from ps_backend.kernels.rows.reductions import (
    AllRows,
    Fold,
    InOrder,
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


@dataclass(frozen=True, slots=True)
class Reducing:
    """A reduction as the engine runs it."""

    reduction: Reduction
    layout: str
    types: tuple[ValueType, ...]
    """Of its partial results."""
    reduce: Of

    @property
    def values(self) -> tuple[int, ...]:
        """The arguments that have a value in each slot."""
        return self.reduction.args[: 1 if self.layout == "listed" else None]


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
        """``place``: first slot, slots, slots of a block, most slots of a chunk.

        A chunk is part of a block, or some whole ones.
        """
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
        self.types = sweep.types
        self.direct = [self._direct(one) for one in recipe.instructions]
        """By instruction the output that it may write to at once."""
        written = {one.target for one, array in self._placed() if array is not None}
        first = {value: k for k, value in reversed(list(enumerate(sweep.outputs)))}
        self.stores = [
            (outputs[k], value)
            for k, value in enumerate(sweep.outputs)
            if value not in written or k != first[value]
        ]
        """The other outputs, and their values."""
        self.tiles = self._tiles()
        """What is the same in every row, so often as rows are taken together."""
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

    def _placed(self) -> Iterator[tuple[Instruction, npt.NDArray[Any] | None]]:
        return zip(self.recipe.instructions, self.direct, strict=True)

    def _direct(self, one: Instruction) -> npt.NDArray[Any] | None:
        if one.output is None:
            return None
        out = self.outputs[one.output]
        is_free = not any(np.may_share_memory(out, self.inputs[k]) for k in one.late)
        return out if is_free else None

    def _tiles(self) -> dict[tuple[int, int], npt.NDArray[Any]]:
        return {
            (one.tiled, arg): np.tile(self.constants[arg], one.tiled)
            if self.constants[arg].ndim
            else self.constants[arg]
            for one in self.recipe.instructions
            if one.tiled
            for arg in one.args
            if arg in self.constants
        }

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
        if reducer.in_order is not None and self.arrays[k][0].dtype == np.float64:
            return InOrder(reducer.in_order, reducer, block, self.arrays[k])
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
        self._place = Place(block=job.block_size)
        self._values: list[Any] = [job.constants.get(value) for value in range(len(job.types))]
        self.folds = job.folds(first)

    @property
    def is_over(self) -> bool:
        """Whether it has come to its end."""
        return self._row >= self._end

    def advance(self, chunks: int) -> None:
        """Go on for so many chunks."""
        size = max(self._job.block_size, self._job.chunk)
        with np.errstate(all="ignore"):  # of this thread
            for _ in range(chunks):
                if self._job.may_skip:
                    self._skip()
                if self.is_over:
                    return
                low = self._row
                self._row = min(low + self._job.chunk, low - low % size + size, self._end)
                self._chunk(low, self._row)

    def _skip(self) -> None:
        """To the next chunk that something is wanted of."""
        job = self._job
        wanted = [one.next(job.offset + self._row) for one in job.listed.values()]
        row = min((slot - job.offset for slot in wanted if slot is not None), default=self._end)
        start = row - row % job.block_size
        self._row = max(self._row, start + (row - start) // job.chunk * job.chunk)

    def _chunk(self, low: int, high: int) -> None:
        job, values, length = self._job, self._values, high - low
        self._place.first, self._place.length = job.offset + low, length
        for value, array in enumerate(job.inputs):
            values[value] = array[low:high]
        for one, output in zip(job.recipe.instructions, job.direct, strict=True):
            if output is not None:
                out: Any = output[low:high]
            else:
                out = None if one.scratch is None else self._scratch[one.scratch][:length]
            args = [values[arg] for arg in one.args]
            if one.row_op is not None:
                values[one.target] = self._of_rows(one, out, args)
            elif one.tiled and length % one.tiled == 0:
                self._side_by_side(one, out, args)
                values[one.target] = out
            else:
                values[one.target] = one.run(out, self._place, *args)
        if self.folds:
            self._reduce(low, high)
        # Last, as an output may lie where an input was, which others may be views of.
        for output, given in [(array[low:high], self._last(value)) for array, value in job.stores]:
            np.copyto(output, given)

    def _of_rows(self, one: Instruction, out: Any, args: list[Any]) -> Any:
        place = self._place
        place.params, place.row = one.step.params, one.step.type.row
        if one.listed is not None:
            listed = self._job.lists[one.listed]
            place.entries, place.slots = listed.within(place.first, place.length)
        for k in one.constants:
            args[k] = self._whole(one.args[k], place.length)
        return one.run(out, place, *args)

    def _side_by_side(self, one: Instruction, out: Any, args: list[Any]) -> None:
        """Many short rows as one, beside as many copies of what is the same in each of them."""
        tiles, rows = self._job.tiles, out.shape[0] // one.tiled
        wide = [
            tiles[one.tiled, arg] if (one.tiled, arg) in tiles else value.reshape(rows, -1)
            for arg, value in zip(one.args, args, strict=True)
        ]
        one.run(out.reshape(rows, -1), self._place, *wide)

    def _reduce(self, low: int, high: int) -> None:
        """Take the chunk into the accumulators: part of a block, or some whole ones."""
        job = self._job
        for start in range(low, high, job.block_size):
            end = min(start + job.block_size, high)
            is_last = end % job.block_size == 0 or end == job.length
            for reducing, fold in zip(job.reducing, self.folds, strict=True):
                given = [self._whole(arg, high - low) for arg in reducing.values]
                fold.add(job.offset + start, *[one[start - low : end - low] for one in given])
                if is_last:
                    fold.end_block()

    def _last(self, value: int) -> Any:
        """What is stored at the end, where nothing that is stored before can change it."""
        return self._values[value].copy() if self._job.in_place else self._values[value]

    def _whole(self, value: int, length: int) -> Any:
        """A value as an array with a row for each slot, also where it is constant."""
        if value not in self._job.constants:
            return self._values[value]
        return np.broadcast_to(self._values[value], (length, *self._job.types[value].row))
