"""The mixed engine: loops that all sweeps share, so that none needs a compilation of its own.

Steps that have inner loops, NumPy's or those of ``llvm_loops``, run on them tile by tile in the
cache, reductions included (``tile_program``); linear combinations and inner products run by the
compiled loops of ``linear``; the others by NumPy's functions. The first kind and the others take
turns, on chunks of whole blocks. Threads share the chunks out, and no bit depends on the thread
that computes one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.compiled.linear_tables import LinkTable, products_of, whole
from ps_backend.kernels.compiled.machine_code import linear_loops
from ps_backend.kernels.compiled.tile_program import (
    REGISTER,
    TILE,
    TileProgram,
    reduces_by_loop,
    runs_by_loop,
)
from ps_backend.kernels.kernel import Pause, no_pause, thread_count, threads_for, together
from ps_backend.kernels.lowering import for_loops, stages_of, work_of
from ps_backend.kernels.numpy_instructions import number_steps
from ps_backend.kernels.numpy_loops import addresses_of
from ps_backend.kernels.numpy_reductions import reduce_blocks
from ps_backend.program import ops
from ps_backend.program.sweep import Combination, Scalar, Step, Sweep, partial_dtypes

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class NumpyStep:
    """Computes one value of a sweep: ``fill(out, index, *args)``.

    ``index`` is the global index of the first element; constants among ``args`` are numbers.
    """

    value: int
    args: tuple[int, ...]
    fill: Callable[..., None]


def numpy_step(value: int, step: Step | Combination) -> NumpyStep:
    """How ``step`` is computed. What has to be compiled for it is compiled here."""
    if isinstance(step, Combination):
        return _combination(value, step)
    row = ops.TABLE[step.op]
    if step.op == "iota":
        return NumpyStep(value, (), _iota)
    if step.op == "where":
        return NumpyStep(value, step.args, _where)
    if row.converts:
        return NumpyStep(value, step.args, _converted)
    return NumpyStep(value, step.args, partial(_applied, row.numpy))


def _iota(out: Array, index: int) -> None:
    out[:] = np.arange(index, index + len(out), dtype=np.int64)


def _where(out: Array, _: int, condition: Any, first: Any, second: Any) -> None:
    np.copyto(out, second, casting="unsafe")
    np.copyto(out, first, casting="unsafe", where=condition)


def _converted(out: Array, _: int, value: Any) -> None:
    np.copyto(out, value, casting="unsafe")


def _applied(function: Callable[..., Any], out: Array, _: int, *args: Any) -> None:
    out[:] = function(*args)


def _combination(value: int, combination: Combination) -> NumpyStep:
    """Its arguments: vectors, then scalars."""
    links, dtype = combination.links, np.dtype(combination.type.dtype)
    vectors = sorted({link.vector for link in links if link.vector is not None})
    scalars = sorted({link.scalar for link in links if link.scalar is not None})
    place = (
        {None: -1} | {v: k for k, v in enumerate(vectors)} | {s: k for k, s in enumerate(scalars)}
    )
    table, count = LinkTable(links, place, dtype.name), len(vectors)
    compiled = linear_loops().combine_over

    def fill(out: Array, _: int, *args: Any) -> None:
        arrays = [one if one.ndim else np.full(len(out), one) for one in args[:count]]
        coefficients = np.array([*args[count:], 1.0], np.float64)
        compiled(*table.arguments(addresses_of(arrays), coefficients), out)

    ones = [np.ones(1, dtype)] * count + [dtype.type(1)] * len(scalars)
    fill(np.empty(1, dtype), 0, *ones)  # this compiles
    return NumpyStep(value, (*vectors, *scalars), fill)


@dataclass(frozen=True, slots=True)
class Stage:
    """Some steps by NumPy, then a program of loops."""

    numpy_steps: tuple[NumpyStep, ...]
    program: TileProgram | None
    made: tuple[int, ...]
    """The values that it fills arrays with."""
    ended: tuple[int, ...]
    """The values whose arrays nobody reads after it."""

    @property
    def steps(self) -> int:
        """How many it takes."""
        return len(self.numpy_steps) + (len(self.program.steps) if self.program else 0)


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """All stages of a sweep."""

    stages: tuple[Stage, ...]
    direct: dict[int, int]
    """By value the output that it is written to at once."""
    stores_directly: bool
    """Whether every output is one of those."""
    reduced: frozenset[int]
    """The reductions that the last program takes along."""
    most_alive: int
    """Arrays of a chunk that are needed at once, besides inputs and outputs."""

    @property
    def is_one_program(self) -> bool:
        """Whether all that is stored is written by one program."""
        return len(self.stages) == 1 and not self.stages[0].numpy_steps and self.stores_directly

    @property
    def registers(self) -> int:
        """Of the program that has most."""
        return max((one.program.registers for one in self.stages if one.program), default=0)


def plan_of(sweep: Sweep) -> ChunkPlan:
    """How to compute all that is not constant in ``sweep``."""
    first = len(sweep.inputs) + len(sweep.scalars)
    steps = [v for v in range(first, len(sweep.types)) if v not in sweep.constants]
    by_loop = {value for value in steps if runs_by_loop(sweep, value)}
    called = {v: sweep.steps[v - first].args for v in steps if v not in by_loop}
    turns = stages_of(sweep, called)
    numbers = range(turns.last + 1)
    reduced = [k for k, r in enumerate(sweep.reductions) if reduces_by_loop(sweep, r)]
    others = [r.args for k, r in enumerate(sweep.reductions) if k not in reduced]
    reads = {sweep.reductions[k].args[0]: turns.last for k in reduced}
    """By value the last stage that reads it; other results are read when all are done."""
    reads |= dict.fromkeys({*sweep.outputs}.union(*others), turns.last + 1)
    for value in steps:
        for arg in sweep.steps[value - first].args:
            reads[arg] = max(reads.get(arg, 0), turns.of[value])
    crossing = {v for v in steps if v in called or reads.get(v, turns.of[v]) > turns.of[v]}
    programs: list[TileProgram | None] = []
    for number in numbers:
        members = [v for v in steps if v in by_loop and turns.of[v] == number]
        taken = reduced if number == turns.last else []
        programs.append(TileProgram(sweep, members, crossing, taken) if members or taken else None)
    direct = _direct(sweep, programs, reads)
    stages, alive, most = [], 0, 0
    for number, program in enumerate(programs):
        here = [v for v in called if turns.of[v] == number]
        numpy_steps = [numpy_step(v, sweep.steps[v - first]) for v in here]
        made = [*(one.value for one in numpy_steps), *(program.writes if program else ())]
        mine = [v for v in crossing - direct.keys() if reads.get(v, turns.of[v]) == number]
        alive += sum(v not in direct for v in made)
        most = max(most, alive)
        alive -= len(mine)
        stages.append(Stage(tuple(numpy_steps), program, tuple(made), tuple(mine)))
    stores_directly = len(direct) == len(sweep.outputs)
    return ChunkPlan(tuple(stages), direct, stores_directly, frozenset(reduced), most)


def _direct(
    sweep: Sweep, programs: Sequence[TileProgram | None], reads: dict[int, int]
) -> dict[int, int]:
    """The values that programs may write to outputs while inputs may lie there.

    Any input of the same dtype may; so nobody may read one afterwards.
    """
    found: dict[int, int] = {}
    for number, program in enumerate(programs):
        for value in program.writes if program else ():
            if value not in sweep.outputs:
                continue
            kind = sweep.types[value].dtype
            others = [k for k, one in enumerate(sweep.inputs) if one.dtype == kind]
            at = program.steps.index(value) if program else 0
            if all(
                reads.get(k, -1) < number
                or (reads[k] == number and program and program.last_reads.get(k, -1) <= at)
                for k in others
            ):
                found[value] = sweep.outputs.index(value)
    return found


_PROGRAM_WORK = 1 << 27
"""Elements times steps of a program between two pauses."""


class ChunkRun:
    """Stages run on one chunk after the other; arrays go back to the ``spare`` ones when read."""

    def __init__(
        self,
        plan: ChunkPlan,
        dtypes: Sequence[np.dtype[Any]],
        chunk: int,
        block_size: int,
        pause: Pause,
    ) -> None:
        self._plan, self._dtypes, self._pause = plan, dtypes, pause
        self._chunk, self._block_size = chunk, block_size
        self._registers = np.empty(plan.registers * REGISTER, np.uint8)
        self._tiles: dict[TileProgram, list[Array]] = {}
        """Of constants, which are the same in all chunks."""
        self._spare: dict[np.dtype[Any], list[Array]] = defaultdict(list)
        self._taken: dict[int, Array] = {}

    def compute(
        self, values: dict[int, Any], outputs: Sequence[Array], index: int, length: int
    ) -> dict[int, Array]:
        """Add what results are taken from to ``values``, of a chunk that begins at ``index``.

        Returns the partial results of those reductions that programs take along.
        """
        partials: dict[int, Array] = {}
        for stage in self._plan.stages:
            for value in stage.made:
                output = self._plan.direct.get(value)
                values[value] = self._array(value, length) if output is None else outputs[output]
            for step in stage.numpy_steps:
                self._pause()
                args = [values[arg] for arg in step.args]
                step.fill(values[step.value], index, *args)
            if stage.program is not None:
                partials |= self._run(stage.program, values, index, length)
            for value in stage.ended:
                self._give_back(value)
        return partials

    def forget(self, values: dict[int, Any]) -> None:
        """The results have been taken; their arrays serve the next chunk."""
        values.clear()
        for value in [*self._taken]:
            self._give_back(value)

    def _run(
        self, program: TileProgram, values: dict[int, Any], index: int, length: int
    ) -> dict[int, Array]:
        block, most = self._block_size, max(TILE, _PROGRAM_WORK // max(1, len(program.steps)))
        partials = {k: np.empty(-(-length // block), kind) for k, kind in program.partials.items()}
        if program not in self._tiles:
            self._tiles[program] = program.tiles_of(values)
        tiles, results = self._tiles[program], list(partials.values())
        bound = program.bind(values, self._registers, results, block, index, tiles)
        for low, high in _pieces(length, most, block if partials else length):
            self._pause()
            bound.run(low, high)
        for k in program.picks:
            if partials[k].dtype.kind == "f":
                partials[k] += 0.0  # of zeros of both signs, who is picked depends on the processor
        return partials

    def _array(self, value: int, length: int) -> Array:
        spare = self._spare[self._dtypes[value]]
        array = spare.pop() if spare else np.empty(min(self._chunk, length), self._dtypes[value])
        self._taken[value] = array
        return array[:length]

    def _give_back(self, value: int) -> None:
        self._spare[self._dtypes[value]].append(self._taken.pop(value))


def _pieces(length: int, most: int, block: int) -> Iterator[tuple[int, int]]:
    """Some blocks each, or some tiles of one block, if that has more than ``most`` elements."""
    whole = max(1, most // block) * block if block else 1
    within = most // TILE * TILE
    for low in range(0, length, whole):
        high = min(low + whole, length)
        for first in range(low, high, within):
            yield first, min(first + within, high)


_CHUNK = 1 << 16
_PIECE_WORK = 1 << 27
"""Elements times ``work_of`` that a thread does without a pause: some 50 ms."""


def _chunk_of(block_size: int) -> int:
    """Elements of a chunk: so many whole blocks as fit the cache, and one at least."""
    return max(1, _CHUNK // block_size) * block_size


class MixedKernel:
    """See ``kernels.Kernel`` for the call.

    What is compiled is compiled here, by running it once: a sweep must not fail when it has begun.
    """

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep = for_loops(sweep)
        self._dtypes = [np.dtype(value.dtype) for value in sweep.types]
        self._products = products_of(sweep)
        self._partials = [partial_dtypes(r, sweep.types[r.args[0]]) for r in sweep.reductions]
        self._constants = number_steps(sweep)
        self._plan = plan_of(sweep)
        self._work = work_of(sweep)

    def __call__(
        self,
        inputs: Sequence[Array],
        scalars: Sequence[Scalar],
        outputs: Sequence[Array],
        offset: int,
        length: int,
        block_size: int,
        pause: Pause = no_pause,
    ) -> list[Array]:
        """Run over one server's range; see ``kernels.Kernel``."""
        unit = block_size if self._sweep.reductions else 1
        chunk = _chunk_of(block_size)
        if self._plan.is_one_program and len(self._plan.reduced) == len(self._sweep.reductions):
            # Tiles are all the cutting that it needs.
            chunk = max(1, _PIECE_WORK // (self._work * unit)) * unit
        constants = self._values(scalars)
        blocks = -(-length // block_size)
        partials = [[np.empty(blocks, dtype) for dtype in kinds] for kinds in self._partials]

        def run(low: int, high: int, pause: Pause = no_pause) -> None:
            part = ChunkRun(self._plan, self._dtypes, chunk, block_size, pause)
            # NumPy warns of the special values that the client's user handles; a server has none.
            with np.errstate(all="ignore"):
                for first in range(low, high, chunk):
                    last = min(first + chunk, high)
                    values = constants | {k: a[first:last] for k, a in enumerate(inputs)}
                    written = [array[first:last] for array in outputs]
                    reduced = part.compute(values, written, offset + first, last - first)
                    here = self._reduce(values, offset + first, last - first, block_size)
                    here |= {k: (array,) for k, array in reduced.items()}
                    for k, found in here.items():
                        for array, some in zip(partials[k], found, strict=True):
                            array[first // block_size :][: len(some)] = some
                    # Last, as an output may lie where an input was.
                    for k, value in enumerate(self._sweep.outputs):
                        if self._plan.direct.get(value) != k:
                            written[k][:] = values[value]
                    part.forget(values)

        most = max(1, _PIECE_WORK // (self._work * chunk)) * chunk  # elements of a thread
        if most * self._work > 2 * _PIECE_WORK:
            run(0, length, pause)
        else:
            self._share_out(run, length, unit, most, pause)
        return [array for arrays in partials for array in arrays]

    def working_bytes(self, length: int, block_size: int) -> int:
        """Bytes of the values that are alive at once, and of partial results."""
        chunk = min(length, _chunk_of(block_size))
        threads = min(thread_count(), -(-length // chunk)) if length else 0
        partials = len(self._partials) * -(-length // block_size)
        registers = self._plan.registers * REGISTER
        return threads * (8 * self._plan.most_alive * chunk + registers) + 16 * partials

    def _share_out(
        self, run: Callable[[int, int], None], length: int, unit: int, most: int, pause: Pause
    ) -> None:
        """Run all parts by threads: multiples of ``unit``, at most ``most`` at once."""
        threads = threads_for(length * self._work)
        for low in range(0, length, threads * most):
            if low:
                pause()
            high = min(low + threads * most, length)
            share = min(most, -(-(high - low) // (threads * unit)) * unit)
            lows = range(low, high, share)
            highs = [min(at + share, high) for at in lows]
            together(run, lows, highs)

    def _values(self, scalars: Sequence[Scalar]) -> dict[int, Any]:
        """The constants: what is given, and what is computed of that alone."""
        values: dict[int, Any] = {
            k: self._dtypes[k].type(value)
            for k, value in enumerate(scalars, len(self._sweep.inputs))
        }
        with np.errstate(all="ignore"):
            for value, args, function in self._constants:
                values[value] = function(*(values[arg] for arg in args))
        return values

    def _reduce(
        self, values: Mapping[int, Any], index: int, length: int, block_size: int
    ) -> dict[int, tuple[Array, ...]]:
        """By number the partial results of the reductions that no program takes along."""
        found: dict[int, tuple[Array, ...]] = {}
        for group in self._products:
            for k, array in group.of(values, length, block_size).items():
                found[k] = (array,)
        for k, reduction in enumerate(self._sweep.reductions):
            if k not in self._plan.reduced and k not in found:
                operand = whole(values[reduction.args[0]], length)
                found[k] = reduce_blocks(reduction, operand, index, block_size)
        return found
