"""Steps and reductions by inner loops, as instructions of the interpreter in ``tile_interpreter``.

Values that only these steps need live in registers of one tile each: a step takes over the register
of an argument that no later step reads, so a chain of any length needs few of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.compiled.llvm_loops import MOST, SUM_OF_FLOATS, own_loop, own_sum
from ps_backend.kernels.compiled.machine_code import tile_loop
from ps_backend.kernels.numpy_loops import address_of, has_loop, loop_of
from ps_backend.program import ops
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.sweep import Reduction, Step, Sweep

TILE = 1024
"""Elements. A step takes some 20 ns a tile besides its work, a tenth of it for an addition."""
REGISTER = 8 * TILE
"""Bytes."""
_CONSTANT = _WORD = 8
"""Bytes of each."""
_LEVELS = 64
"""Of the tree over the chunks of a block: more than it can have."""
_WITH_PYTHON = frozenset({"int_pow"})
"""Ops whose loops raise errors."""

Array = npt.NDArray[np.generic]


def runs_by_loop(sweep: Sweep, value: int) -> bool:
    """Whether the step that computes ``value`` can be one of a ``TileProgram``."""
    step = sweep.steps[value - len(sweep.inputs) - len(sweep.scalars)]
    if not isinstance(step, Step) or step.op in _WITH_PYTHON:
        return False
    dtypes = _dtypes(sweep, value)
    return has_loop(step.op, dtypes) or own_loop(step.op, dtypes) is not None


def reduces_by_loop(sweep: Sweep, reduction: Reduction) -> bool:
    """Whether a ``TileProgram`` can reduce the value."""
    value = reduction.args[0]
    if len(reduction.args) > 1 or value in sweep.constants:
        return False
    dtype = sweep.types[value].dtype
    if reduction.op == "sum":
        return own_sum(dtype) is not None
    row = REDUCERS[reduction.op]
    if row.layout or row.locates or not (row.truth if dtype == "bool" else row.picks):
        return False
    name = ops.NAMES.get(row.numpy)
    return name is not None and has_loop(name, (dtype,) * 3)


def _dtypes(sweep: Sweep, value: int) -> tuple[str, ...]:
    """Of the arguments of a step, then of its result."""
    step = sweep.steps[value - len(sweep.inputs) - len(sweep.scalars)]
    return (*(sweep.types[arg].dtype for arg in step.args), step.type.dtype)


class TileProgram:
    """Some steps of ``sweep``, in order; those that are ``wanted`` are written to arrays."""

    def __init__(
        self,
        sweep: Sweep,
        steps: Sequence[int],
        wanted: AbstractSet[int],
        reductions: Sequence[int] = (),
        tiled: AbstractSet[int] = frozenset(),
    ) -> None:
        """``steps`` and ``wanted`` are values of the sweep; ``reductions`` are numbers of its.

        The arrays of those that are ``tiled`` have one tile, which each tile uses anew.
        """
        own, first = set(steps), len(sweep.inputs) + len(sweep.scalars)
        self._args = {value: sweep.steps[value - first].args for value in steps}
        self.reductions = {k: sweep.reductions[k].args[0] for k in reductions}
        """By number of each what it reduces."""
        read = [arg for value in steps for arg in self._args[value]]
        taken = dict.fromkeys(v for v in (*read, *self.reductions.values()) if v not in own)
        self.writes = [value for value in steps if value in wanted]
        self.constants = [value for value in taken if value in sweep.constants]
        self.reads = [value for value in taken if value not in sweep.constants]
        self.last_reads = {arg: at for at, value in enumerate(steps) for arg in self._args[value]}
        """By value: which of the steps is the last to read it."""
        self.last_reads |= dict.fromkeys(self.reductions.values(), len(steps))
        self.steps = list(steps)
        self.registers = 0
        """How many there are."""
        self._run = tile_loop()
        self._types = [np.dtype(value.dtype) for value in sweep.types]
        self._numpys = {v for v in steps if has_loop(sweep.steps[v - first].op, _dtypes(sweep, v))}
        """Those whose loops are NumPy's."""
        self._register = self._registers(own - set(self.writes))
        self._operands = _Operands(self, tiled)
        instructions = [self._instruction(sweep, value) for value in steps]
        self._instructions = np.array(instructions, np.int64).reshape(-1, 5)
        rows = [self._reduction(sweep, k) for k in reductions]
        sums = [at for at, row in enumerate(rows) if row[0] == SUM_OF_FLOATS]
        self._reductions = np.array(rows, np.int64).reshape(-1, 7)
        self._reductions[sums, 6] = range(len(sums))
        self._columns = len(sums)
        self._places, self._bases = self._operands.tables()
        self.partials = {
            k: self._types[value] if row[0] >= MOST else REDUCERS["sum"].wide(self._types[value])
            for row, (k, value) in zip(rows, self.reductions.items(), strict=True)
        }
        """By number the dtype of its results, which may be narrower than what is handed on."""
        self.picks = [k for k in reductions if REDUCERS[sweep.reductions[k].op].picks]

    def _registers(self, own: AbstractSet[int]) -> dict[int, int]:
        """The register of each of ``own``."""
        register: dict[int, int] = {}
        free: list[int] = []
        for at, value in enumerate(self.steps):
            ended = {v for v in self._args[value] if v in own and self.last_reads[v] == at}
            # Where elements have two sizes, a loop would write over what it has not read yet; and
            # loops of ours are slower in place, as their vector code is for arrays apart.
            size = self._types[value].itemsize
            same = {v for v in ended if self._types[v].itemsize == size and value in self._numpys}
            free += [register[arg] for arg in sorted(same)]
            if value in own:
                if not free:
                    free.append(self.registers)
                    self.registers += 1
                register[value] = free.pop()
                if value not in self.last_reads:
                    free.append(register[value])
            free += [register[arg] for arg in sorted(ended - same)]
        return register

    def _instruction(self, sweep: Sweep, value: int) -> tuple[int, ...]:
        """The step that computes ``value``."""
        op = sweep.steps[value - len(sweep.inputs) - len(sweep.scalars)].op
        dtypes = _dtypes(sweep, value)
        concerned, is_numpys = (*self._args[value], value), value in self._numpys
        places = [self._operands.add(one, everywhere=not is_numpys) for one in concerned]
        if is_numpys:
            strides = tuple(self._operands.strides[place] for place in places)
            return (*loop_of(op, dtypes, strides).tolist(), places[0], len(places))
        return (own_loop(op, dtypes) or 0, 0, 0, places[0], len(places))

    def _reduction(self, sweep: Sweep, number: int) -> tuple[int, ...]:
        """The reduction of that number."""
        op, value = sweep.reductions[number].op, self.reductions[number]
        dtype = self._types[value]
        place = self._operands.add(value)
        if op == "sum":
            return (own_sum(dtype.name) or 0, 0, 0, place, 0, _WORD, 0)
        strides = (0, dtype.itemsize, 0)
        loop = loop_of(ops.NAMES[REDUCERS[op].numpy], (dtype.name,) * 3, strides)
        return (*loop.tolist(), place, 0, dtype.itemsize, 0)

    def tiles_of(self, values: Mapping[int, Any]) -> list[Array]:
        """Whole tiles of the constants that loops of ours read."""
        return [np.full(TILE, values[v], self._types[v]) for v in self._operands.everywhere]

    def bind(
        self,
        values: Mapping[int, Any],
        registers: Array,
        partials: Sequence[Array],
        block_size: int,
        index: int,
        tiles: Sequence[Array] | None = None,
    ) -> _Bound:
        """The program on these arrays and constants, by value of the sweep.

        ``registers`` is memory for them, of one thread; ``partials`` are arrays for the results of
        the reductions. The arrays begin with a block, at the global ``index``. ``tiles``: as
        ``tiles_of`` has made them.
        """
        constants = np.zeros(len(self.constants) * _CONSTANT, np.uint8)
        for k, value in enumerate(self.constants):
            kind = self._types[value]
            constants[k * _CONSTANT :][: kind.itemsize].view(kind)[0] = values[value]
        tiles = self.tiles_of(values) if tiles is None else tiles
        start = address_of(constants)
        places = [0, *range(start, start + len(constants), _CONSTANT)]
        places += [address_of(values[value]) for value in (*self.reads, *self.writes)]
        places += [address_of(tile) for tile in tiles]
        operands = self._places.copy()
        operands[:, 0] += np.array(places, np.int64)[self._bases]
        reductions = self._reductions.copy()
        reductions[:, 4] = [address_of(array) for array in partials]
        tree = np.empty((_LEVELS, self._columns))
        kept = (constants, *tiles, *partials, registers)
        tables = (self._instructions, operands, reductions, tree, address_of(registers))
        return _Bound(self._run, tables, kept, block_size, index)


class _Operands:
    """The operands of a program's instructions: rows of a table, and where each one's memory is."""

    def __init__(self, program: TileProgram, tiled: AbstractSet[int]) -> None:
        self._tiled = tiled
        slots = (*program.constants, *program.reads, *program.writes)
        self._base = {value: k for k, value in enumerate(slots, 1)}  # 0 is that of registers
        self._constants = set(program.constants)
        self._register, self._types = program._register, program._types
        self.everywhere: list[int] = []
        """The constants of which there is a whole tile."""
        self._rows: list[tuple[int, int, int]] = []
        self._bases: list[int] = []

    @property
    def strides(self) -> list[int]:
        """Of the operands so far, from one element to the next."""
        return [row[2] for row in self._rows]

    def add(self, value: int, everywhere: bool = False) -> int:
        """The next operand; returns its place. ``everywhere``: a whole tile of a constant."""
        size, base = self._types[value].itemsize, self._base.get(value, 0)
        row = (0, size, size)
        if value in self._register:
            row = (self._register[value] * REGISTER, -1, size)
        elif value in self._tiled:
            row = (0, 0, size)
        elif value in self._constants:
            row = (0, 0, size if everywhere else 0)
            if everywhere:
                if value not in self.everywhere:
                    self.everywhere.append(value)
                base = len(self._base) + 1 + self.everywhere.index(value)
        self._rows.append(row)
        self._bases.append(base)
        return len(self._rows) - 1

    def tables(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The rows, and by row which of the addresses is added to its first number."""
        return np.array(self._rows, np.int64).reshape(-1, 3), np.array(self._bases, np.int64)


class _Bound:
    """A program that knows where its arrays are."""

    def __init__(
        self, run: Any, tables: tuple[Any, ...], kept: tuple[Array, ...], block: int, index: int
    ) -> None:
        self._run, self.tables, self._kept = run, tables, kept
        self._block, self._index = block, index

    def run(self, low: int, high: int) -> None:
        """Compute the elements from ``low`` to ``high``.

        With reductions ``low`` is where a tile of a block begins, and what comes before it in the
        block was computed just before.
        """
        self._run(*self.tables, low, high, TILE, self._block, self._index)
