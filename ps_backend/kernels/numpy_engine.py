"""The NumPy engine: a sweep by NumPy's functions, over chunks of rows that fit the cache.

The blocks of a run are shared out to threads, each of which walks its own ones from the first to
the last, in slices between which others may go first. A chunk is part of a block, or some whole
ones; results of more than one row are computed block by block, so that the bits of a block are
the same wherever the run begins and ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.collectives import counting
from ps_backend.kernels.kernel import Arrays, Pause, no_pause, pool, thread_count
from ps_backend.kernels.lowering import cost_of, for_numpy
from ps_backend.kernels.numpy_instructions import (
    Expressions,
    Instruction,
    Listed,
    Recipe,
    SlotList,
    constants_of,
    fills,
    function_of,
    recipe_of,
)
from ps_backend.kernels.numpy_reductions import (
    AllRows,
    Counts,
    Fold,
    InOrder,
    InTree,
    ListedRows,
    Of,
    OfBlocks,
    PerBlock,
    WeightsOfNumbers,
    block_reduction_of,
    joined_tree,
    reduce_blocks,
    reduction_of,
    total_counts,
)
from ps_backend.program import ops
from ps_backend.program.partials import layout_of, of_tree, partial_types
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.row_ops import Place
from ps_backend.program.summation_order import rows_for_sums, sums
from ps_backend.program.sweep import Reduction, Scalar, Step, Sweep, partial_dtypes
from ps_backend.program.types import ValueType
from ps_backend.serial_blas import serial_blas


@dataclass(frozen=True, slots=True)
class Reducing:
    """A reduction as the engine runs it."""

    reduction: Reduction
    layout: str
    types: tuple[ValueType, ...]
    """Of its partial results."""
    reduce: Of
    of_blocks: OfBlocks | None
    """How several blocks are reduced at once."""

    @property
    def by_blocks(self) -> bool:
        """Whether all blocks of a chunk can be reduced at once: each to one element."""
        return not self.layout

    @property
    def values(self) -> tuple[int, ...]:
        """The arguments that have a value in each slot."""
        args = self.reduction.args
        return args[: len(args) - REDUCERS[self.reduction.op].held]


class SweepRun:
    """One call of a kernel: what all its threads share."""

    def __init__(
        self,
        sweep: Sweep,
        recipe: Recipe,
        reducing: Sequence[Reducing],
        inputs: Arrays,
        scalars: Sequence[Scalar],
        outputs: Arrays,
        place: tuple[int, int, int],
        chunks: tuple[int, int],
    ) -> None:
        """``place``: first slot, slots, slots of a block.

        ``chunks``: rows of a chunk, and of one where nothing is kept in between. A chunk is part of
        a block, or some whole ones.
        """
        self.sweep, self.recipe = sweep, recipe
        self.inputs, self.outputs = inputs, outputs
        self.offset, self.length, self.block_size = place
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
        taken = {k for k in self.listed if reducing[k].reduction.args[0] < len(inputs)}
        for k in taken:  # of an input: no chunk has to look for its part of the list
            rows = inputs[reducing[k].reduction.args[0]]
            self.listed.pop(k).copy(self.arrays[k][0], self.offset, rows)
        self.walked = [(k, one) for k, one in enumerate(reducing) if k not in taken]
        """The other reductions, and their numbers."""
        self.may_skip = not sweep.outputs and len(self.listed) == len(self.walked)
        self.types = sweep.types
        self._shared = [
            {k for k, array in enumerate(inputs) if np.may_share_memory(array, out)}
            for out in outputs
        ]
        """By output the inputs that lie where it does."""
        self.in_place = any(self._shared)
        self.direct = [self._direct(one) for one in recipe.instructions]
        """By instruction the output that it may write to at once."""
        self.keeps = any(out is None for out in self.direct)
        """Whether some value is kept in a scratch array."""
        self.chunk = chunks[0] if self.keeps else chunks[1]
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

    def _arrays_of(self, k: int, one: Reducing) -> list[npt.NDArray[Any]]:
        match one.layout:
            case "tree" | "total":
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
        is_free = self._shared[one.output].isdisjoint(one.late)
        return self.outputs[one.output] if is_free else None

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
        """What a walk from ``block`` on accumulates, for each of ``walked``."""
        return [self._fold(k, one, block) for k, one in self.walked]

    def _fold(self, k: int, one: Reducing, block: int) -> Fold:
        reducer = REDUCERS[one.reduction.op]
        first, bins = self.offset // self.block_size + block, one.reduction.bins
        compiled = counting.is_compiled(self.length)
        edges = self.constants[one.reduction.args[-1]] if bins and reducer.held else None
        match one.layout:
            case "total":
                return Counts(bins, edges, compiled=compiled)
            case "tree" if bins:
                return WeightsOfNumbers(bins, edges, first, self.block_size, compiled=compiled)
            case "tree":
                return InTree(one.reduce, one.of_blocks, reducer, first)
            case "slots":
                return AllRows(self.arrays[k][0], self.offset)
            case "listed":
                return ListedRows(self.arrays[k][0], self.listed[k])
        if reducer.in_order is not None and self.arrays[k][0].dtype == np.float64:
            return InOrder(reducer.in_order, reducer, block, self.arrays[k])
        return PerBlock(one.reduce, reducer, block, self.arrays[k])

    def partials(self, walks: Sequence[BlockWorker]) -> list[npt.NDArray[Any]]:
        """What the walks have left."""
        found = [list(arrays) for arrays in self.arrays]
        for place, (k, one) in enumerate(self.walked):
            if one.layout == "total":
                found[k].append(total_counts([walk.folds[place] for walk in walks])[None])
            if one.layout == "tree":
                tree = joined_tree([walk.folds[place] for walk in walks])
                found[k] += of_tree(self.sweep, one.reduction, tree)
        return [part for parts in found for part in parts]


class BlockWorker:
    """One thread's way over blocks ``first .. last-1`` of a job."""

    def __init__(self, job: SweepRun, first: int, last: int) -> None:
        self._job = job
        self._row = first * job.block_size
        self._end = min(last * job.block_size, job.length)
        rows = min(job.chunk, job.length)
        scratch = job.recipe.scratch if job.keeps else ()
        self._scratch = [np.empty((rows, *t.row), t.dtype) for t in scratch]
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
        job, size = self._job, self._job.block_size
        packed: dict[int, Any] = {}  # columns of a table, which several counts may read
        for (k, reducing), fold in zip(job.walked, self.folds, strict=True):
            given = [self._whole(arg, high - low) for arg in reducing.values]
            if reducing.reduction.bins:
                for at, (arg, value) in enumerate(zip(reducing.values, given, strict=True)):
                    if arg not in packed:
                        packed[arg] = np.ascontiguousarray(value)
                    given[at] = packed[arg]
            if reducing.by_blocks and size <= job.chunk:
                width = given[0].size // (high - low)
                first, values = (job.offset + low) * width, given[0].reshape(-1)
                parts = reduce_blocks(reducing.reduction, values, first, size * width)
                for array, part in zip(job.arrays[k], parts, strict=True):
                    array[low // size :][: len(part)] = part
                continue
            begin = low
            if isinstance(fold, InTree) and size <= job.chunk:
                begin += fold.add_blocks(size, *given)
            step = high - low if reducing.reduction.bins else size
            for start in range(begin, high, step):
                end = min(start + step, high)
                fold.add(job.offset + start, *[one[start - low : end - low] for one in given])
                if end % size == 0 or end == job.length:
                    fold.end_block()

    def _last(self, value: int) -> Any:
        """What is stored at the end, where nothing that is stored before can change it."""
        return self._values[value].copy() if self._job.in_place else self._values[value]

    def _whole(self, value: int, length: int) -> Any:
        """A value as an array with a row for each slot, also where it is constant."""
        if value not in self._job.constants:
            return self._values[value]
        return np.broadcast_to(self._values[value], (length, *self._job.types[value].row))


_CHUNK = 1 << 17
"""Elements of the widest value of a chunk: a few such arrays fit the cache of a core."""
_FLAT_CHUNK = 1 << 15
"""The same of flat sweeps, whose values are all as wide: more of them are kept at a time."""
_STREAMED = 1 << 18
"""The same where nothing is kept in between."""
_LEAST_ROWS = 512
"""Of a chunk, where matrices are multiplied: by fewer rows a matrix is read too often."""
_COUNTED_ROWS = 1 << 15
"""The same of chunks whose numbers are counted: each is a call for each count."""
_TRIANGLES = 4
"""Triangles that a chunk has rows for, where it is made one: else joining them costs as much."""
_SLICE_WORK = 1 << 24
"""Elements computed that a thread goes on for without a pause: some 50 ms."""
_ALONE = 1 << 23
"""Elements computed that are not worth a second thread: some 2 ms."""
_FEW_ELEMENTS = 1 << 16
"""Of all values together, for which no memory is used again: it costs more than it saves."""
_SUMMED = 1 << 15
"""Elements that are summed together: they fit the cache."""
_ITEM_BYTES = 8
"""Of the widest dtype."""
_PRODUCTS = 8
"""Products that BLAS adds up in the time of one element of a step."""


class NumpyKernel:
    """See ``kernels.Kernel`` for the call."""

    def __init__(
        self,
        sweep: Sweep,
        fuse: Callable[[Sweep], Expressions] | None = None,
        chunk: int | None = None,
    ) -> None:
        """``fuse`` finds expressions, which have threads of their own. ``chunk``: elements."""
        self._sweep = sweep = for_numpy(sweep)
        self._fuse = fuse
        self._is_flat = is_flat = sweep.is_flat and not sweep.row
        self._few = _Few(sweep) if fuse is None and is_flat else None
        self._chunk = chunk or (_FLAT_CHUNK if is_flat else _CHUNK)
        self._streamed = self._chunk if fuse is not None else _STREAMED
        self._width = max((prod(row) for row in sweep.rows), default=1)
        self._has_threads = fuse is not None

    # Few elements need none of the following, so it is not found before it is needed.

    @cached_property
    def _recipe(self) -> Recipe:
        return recipe_of(self._sweep, self._fuse)

    @cached_property
    def _reducing(self) -> list[Reducing]:
        sweep = self._sweep
        return [
            Reducing(
                r,
                layout_of(r),
                partial_types(sweep, r),
                reduction_of(sweep, r),
                block_reduction_of(sweep, r),
            )
            for r in sweep.reductions
        ]

    @cached_property
    def _multiplies(self) -> bool:
        return any(
            one.row_op is not None and one.row_op.products for one in self._recipe.instructions
        ) or any(r.op in ("gram", "triangle") for r in self._sweep.reductions)

    @cached_property
    def _least_rows(self) -> int:
        sweep, least = self._sweep, _LEAST_ROWS if self._multiplies else 1
        if any(r.op == "triangle" for r in sweep.reductions):
            least = max(_LEAST_ROWS, _TRIANGLES * max(map(prod, sweep.rows)))
        return max(least, _COUNTED_ROWS) if any(r.bins for r in sweep.reductions) else least

    @cached_property
    def _work(self) -> int:
        """Elements computed for each slot."""
        sweep = self._sweep
        steps = enumerate(sweep.steps, len(sweep.inputs) + len(sweep.scalars))
        costs = sum(cost_of(step) for value, step in steps if value not in sweep.constants)
        work = self._width * (costs + len(sweep.results) + 1)
        if self._multiplies:  # by a large matrix, or to one
            matrices = [*sweep.scalars, *(t for one in self._reducing for t in one.types)]
            work += max(prod(value.row) for value in matrices) // _PRODUCTS
        return work

    def __call__(
        self,
        inputs: Arrays,
        scalars: Sequence[Scalar],
        outputs: Arrays,
        offset: int,
        length: int,
        block_size: int,
        pause: Pause = no_pause,
    ) -> list[npt.NDArray[np.generic]]:
        """Run over one server's range; see ``kernels.Kernel``."""
        few = self._few
        if few is not None and 0 < length <= few.most:
            return few.run(inputs, scalars, outputs, offset, length, block_size)
        place = (offset, length, block_size)
        chunks = (self.chunk_rows(block_size), self.chunk_rows(block_size, self._streamed))
        # NumPy warns of the special values that the client's user handles; a server has no user.
        with np.errstate(all="ignore"), serial_blas() if self._multiplies else nullcontext():
            job = SweepRun(
                self._sweep, self._recipe, self._reducing, inputs, scalars, outputs, place, chunks
            )
            walks = self._walks(job)
            self._run(walks, max(1, _SLICE_WORK // (self._work * job.chunk)), pause)
            return job.partials(walks)

    def _walks(self, job: SweepRun) -> list[BlockWorker]:
        """One for each thread."""
        blocks = -(-job.length // job.block_size)
        threads = self._thread_count(job.length, blocks)
        cuts = [blocks * part // threads for part in range(threads + 1)]
        return [BlockWorker(job, low, high) for low, high in pairwise(cuts)]

    def _thread_count(self, length: int, blocks: int) -> int:
        is_alone = self._has_threads or self._work * length <= _ALONE
        return 1 if is_alone else max(1, min(thread_count(), blocks))

    def _run(self, walks: Sequence[BlockWorker], chunks: int, pause: Pause) -> None:
        """To their ends, with a pause after so many chunks of each."""
        while left := [walk for walk in walks if not walk.is_over]:
            if len(left) == 1:
                left[0].advance(chunks)
            else:
                list(pool().map(BlockWorker.advance, left, [chunks] * len(left)))
            pause()

    def chunk_rows(self, block_size: int, elements: int | None = None) -> int:
        """Rows of a chunk of so many ``elements``: part of a block, or some whole ones."""
        rows = max(1, (elements or self._chunk) // self._width)
        rows = max(rows, self._least_rows)
        if rows < block_size:
            return 1 << (rows.bit_length() - 1)
        return rows // block_size * block_size

    def working_bytes(self, length: int, block_size: int) -> int:
        """Bytes of scratch arrays, and of partial results, of all threads.

        And of what NumPy's functions of rows take for themselves: at most as much as one value.
        """
        if self._few is not None and length <= self._few.most:
            return _ITEM_BYTES * _FEW_ELEMENTS
        blocks = -(-length // block_size)
        threads = self._thread_count(length, blocks)
        scratch = sum(value.row_bytes for value in self._recipe.scratch)
        if not self._is_flat:
            scratch += _ITEM_BYTES * self._width
        total = threads * scratch * min(length, self.chunk_rows(block_size))
        for one in self._reducing:
            size = sum(value.row_bytes for value in one.types)
            match one.layout:
                case "tree":  # the nodes of the walks, and as arrays; a chunk's; what joins two
                    total += threads * size * (4 * blocks.bit_length() + 3)
                case "total":  # and two that take turns
                    total += 3 * threads * size
                case "slots" | "listed":
                    total += size * length
                case _:
                    total += size * blocks
        return total


class _Few:
    """A flat sweep over few elements: all at once, each step into new memory."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        first = len(sweep.inputs) + len(sweep.scalars)
        self._unknown = [None] * len(sweep.steps)
        self._types = [np.dtype(value.dtype).type for value in sweep.scalars]
        self._steps = [
            (value, step.args, self._function(step))
            for value, step in enumerate(sweep.steps, first)
        ]
        self._partials = [partial_dtypes(r, sweep.types[r.args[0]]) for r in sweep.reductions]
        summed = [
            (k, r.args[0])
            for k, r in enumerate(sweep.reductions)
            if REDUCERS[r.op].in_order is sums
            and sweep.types[r.args[0]].dtype == "float64"
            and r.args[0] not in sweep.constants
        ]
        self._sums = [(k, value, self._factors(value)) for k, value in summed]
        """Sums of floats: the number of the reduction, the operand, and its factors if it is their
        product, which nothing else needs."""
        alone = {value for _, value, factors in self._sums if factors}
        self.most = _FEW_ELEMENTS // max(1, len(sweep.types) - len(alone))
        """Elements."""
        self._first = [one for one in self._steps if one[0] not in alone]
        self._others = [k for k in range(len(sweep.reductions)) if k not in dict(summed)]

    def _factors(self, value: int) -> tuple[int, ...]:
        sweep = self._sweep
        number = value - len(sweep.inputs) - len(sweep.scalars)
        uses = [arg for one in (*sweep.steps, *sweep.reductions) for arg in one.args]
        if number < 0 or (*uses, *sweep.outputs).count(value) > 1:
            return ()
        step = sweep.steps[number]
        is_product = isinstance(step, Step) and step.op == "multiply" and fills(sweep, step)
        return step.args if is_product else ()

    def _function(self, step: Any) -> Callable[..., Any] | None:
        """None of the index, which depends on the place."""
        if step.op == "iota":
            return None
        return ops.TABLE[step.op].numpy if fills(self._sweep, step) else function_of(step)

    def run(
        self,
        inputs: Arrays,
        scalars: Sequence[Scalar],
        outputs: Arrays,
        offset: int,
        length: int,
        block_size: int,
    ) -> list[npt.NDArray[Any]]:
        """As of any kernel."""
        sweep = self._sweep
        is_one = length <= block_size
        found: list[Sequence[npt.NDArray[Any]]] = [()] * len(sweep.reductions)
        with np.errstate(all="ignore"):
            typed = [of(value) for of, value in zip(self._types, scalars, strict=True)]
            values: list[Any] = [*inputs, *typed, *self._unknown]
            for value, args, function in self._first if is_one else self._steps:
                if function is None:
                    values[value] = np.arange(offset, offset + length, dtype=np.int64)
                else:
                    values[value] = function(*[values[arg] for arg in args])
            if is_one and self._sums:
                self._sum(values, length, found)
            for k in self._others if is_one else range(len(found)):
                reduction, operand = sweep.reductions[k], values[sweep.reductions[k].args[0]]
                if operand.ndim == 0:
                    operand = np.broadcast_to(operand, (length,))
                parts = reduce_blocks(reduction, operand, offset, block_size)
                found[k] = [
                    part.astype(dtype, copy=False)
                    for part, dtype in zip(parts, self._partials[k], strict=True)
                ]
            for array, value in zip(outputs, sweep.outputs, strict=True):
                array[:] = values[value]
        return [part for parts in found for part in parts]

    def _sum(
        self, values: Sequence[Any], length: int, found: list[Sequence[npt.NDArray[Any]]]
    ) -> None:
        """All sums of floats over one block, some together, by few calls."""
        together = max(1, _SUMMED // length)
        for low in range(0, len(self._sums), together):
            some = self._sums[low : low + together]
            rows = rows_for_sums(len(some), length)
            for row, (_, value, factors) in zip(rows[:, :length], some, strict=True):
                if factors:
                    np.multiply(values[factors[0]], values[factors[1]], row)
                else:
                    row[:] = values[value]
            totals = sums(rows)
            for number, (k, _, _) in enumerate(some):
                found[k] = (totals[number : number + 1],)
