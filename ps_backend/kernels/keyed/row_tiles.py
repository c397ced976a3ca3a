"""Row programs whose rows are gathered, computed with and written back some at a time.

That are those of elementwise steps, each of which has an inner loop (``compiled.tile_program``), on
rows of one width and on numbers that go with a row. What is such a number is computed once a row,
and spread where rows ask for it. Every bit is that of NumPy's functions on whole arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.compiled.machine_code import load, row_source
from ps_backend.kernels.compiled.tile_program import REGISTER, TILE, TileProgram, runs_by_loop
from ps_backend.kernels.keyed.rows import RowStore
from ps_backend.kernels.lowering import for_numpy
from ps_backend.kernels.numpy_instructions import number_steps
from ps_backend.kernels.numpy_loops import address_of
from ps_backend.kernels.reproducible import has_same_bits
from ps_backend.program import row_ops
from ps_backend.program.row_program import RowProgram
from ps_backend.program.sweep import Scalar, Step, Sweep
from ps_backend.program.types import ValueType

Array = npt.NDArray[Any]

_ROWS = 256
"""Of a tile, at most: what was asked for is in the cache still when its turn comes."""
_ALIASES = frozenset({"as_column", "as_vector"})
"""Row ops that do nothing to the elements."""


class Flat:
    """A sweep over rows as one over elements, of which some come once a row: the *narrow* ones."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep = for_numpy(sweep)
        self.first = len(sweep.inputs) + len(sweep.scalars)
        self.width = max((prod(type.row) for type in sweep.types), default=1)
        self.narrow = {v for v, type in enumerate(sweep.types) if prod(type.row) < self.width}
        self.aliases: dict[int, int] = {}
        """What values are that a step only gives another shape."""
        for value, step in enumerate(sweep.steps, self.first):
            if step.op in _ALIASES:
                self.aliases[value] = self.of(step.args[0])

    def of(self, value: int) -> int:
        """The value itself, or what it is a shape of."""
        return self.aliases.get(value, value)

    @cached_property
    def sweep(self) -> Sweep:
        """The sweep over elements, whose values have the same numbers."""
        old = self._sweep
        kinds = {v: ValueType(type.dtype) for v, type in enumerate(old.types)}
        steps = [self._step(v, step, kinds[v]) for v, step in enumerate(old.steps, self.first)]
        outputs = tuple(map(self.of, old.outputs))
        inputs, scalars = (
            tuple(ValueType(type.dtype) for type in some) for some in (old.inputs, old.scalars)
        )
        return Sweep(inputs, scalars, tuple(steps), outputs, ())

    def _step(self, value: int, step: Any, kind: ValueType) -> Any:
        if value in self.aliases:  # nobody reads it
            return Step("copy", (self.of(value),), kind)
        return step.renumbered({arg: self.of(arg) for arg in step.args})._replace(type=kind)

    @property
    def computed(self) -> list[int]:
        """The values that are computed for each row."""
        steps = range(self.first, len(self._sweep.types))
        return [v for v in steps if v not in self.aliases and v not in self.sweep.constants]

    @property
    def has_loops(self) -> bool:
        """Whether loops over elements can run it, and have the bits of all engines."""
        old = self._sweep
        widths = {prod(type.row) for type in old.types}
        if widths - {1, self.width} or not 0 < self.width <= TILE:
            return False
        if any(type.row for type in old.scalars) or self.sweep.constants & {*self.sweep.outputs}:
            return False
        for step in old.steps:
            if step.op in row_ops.TABLE and step.op not in _ALIASES:
                return False
            if isinstance(step, Step) and not step.args:  # it counts elements
                return False
        flat = self.sweep
        return has_same_bits(flat) and all(runs_by_loop(flat, value) for value in self.computed)


def has_tiles(program: RowProgram) -> bool:
    """Whether ``RowTiles`` can run a row program."""
    sweep = program.sweep
    returned = [sweep.outputs[k] for k in program.returns]
    if min(returned, default=len(sweep.inputs)) < len(sweep.inputs):
        return False
    if len({*returned}) < len(returned) or any(one.op != "replace" for one in program.scatters):
        return False
    flat = Flat(sweep)
    return bool(program.scatters) and bool(flat.computed) and flat.has_loops


class RowTiles:
    """A row program that ``has_tiles``."""

    def __init__(self, program: RowProgram) -> None:
        self._program = program
        self._flat = flat = Flat(program.sweep)
        sweep, width = flat.sweep, flat.width
        self._sweep, self._width = sweep, width
        self._rows = max(1, min(TILE // width, _ROWS))
        self._constants = number_steps(sweep)
        narrow = [v for v in flat.computed if v in flat.narrow]
        wide = [v for v in flat.computed if v not in flat.narrow]
        read = {arg for v in wide for arg in sweep.steps[v - flat.first].args}
        self._spread = sorted((read & flat.narrow) - sweep.constants)
        returned = {sweep.outputs[k] for k in program.returns}
        scattered = [sweep.outputs[one.output] for one in program.scatters]
        gathered = range(len(program.gathers))
        self._made = {*scattered, *self._spread} - returned - {*range(len(sweep.inputs))}
        wanted = {*self._made, *returned}
        again = {*self._made, *gathered}
        self._narrow = TileProgram(sweep, narrow, wanted, tiled=again)
        self._wide = TileProgram(sweep, wide, wanted, tiled={*again, *self._spread})
        self._run = load(row_source())

    def run(
        self,
        stores: Sequence[RowStore],
        locations: npt.NDArray[np.int64],
        given: Sequence[Array],
        scalars: Sequence[Scalar],
        out: Sequence[Array],
    ) -> None:
        """On the rows at ``locations``, of which none is missing; ``stores``: of the call's arrays.

        ``given``: the inputs that are not gathered, contiguous, one row for each location; ``out``:
        for what is returned.
        """
        program, sweep = self._program, self._sweep
        values = self._values(scalars) | dict(enumerate(given, len(program.gathers)))
        for place, array in zip(program.returns, out, strict=True):
            values[sweep.outputs[place]] = array
        tiles: dict[int, Array] = {}
        for value in (*range(len(program.gathers)), *sorted(self._made)):
            width = 1 if value in self._flat.narrow else self._width
            tiles[value] = np.empty(self._rows * width, sweep.types[value].dtype)
        values |= tiles
        spread = {v: np.empty(self._rows * self._width, sweep.types[v].dtype) for v in self._spread}
        registers = np.empty(max(1, self._narrow.registers, self._wide.registers) * REGISTER, "u1")
        nothing: Any = registers, [], 1, 0
        narrow = self._narrow.bind(values, *nothing)
        wide = self._wide.bind(values | spread, *nothing)
        gathers = [
            (*stores[array].table, address_of(tiles[k])) for k, array in enumerate(program.gathers)
        ]
        spreads = [
            (*self._moving(v, values, tiles), address_of(spread[v]), spread[v].itemsize)
            for v in self._spread
        ]
        scatters = [
            (*stores[one.array].table, *self._moving(sweep.outputs[one.output], values, tiles))
            for one in program.scatters
        ]
        self._run(
            _table(gathers, 3),
            _table(spreads, 4),
            _table(scatters, 4),
            *narrow.tables[:2],
            *wide.tables[:4],
            address_of(registers),
            address_of(locations),
            len(locations),
            self._rows,
            self._width,
        )

    def _moving(
        self, value: int, values: Mapping[int, Any], tiles: Mapping[int, Array]
    ) -> tuple[int, int]:
        """Where the rows of a value begin, and by how much they move on."""
        array = values[value]
        width = 1 if value in self._flat.narrow else self._width
        return address_of(array), 0 if value in tiles else width * array.itemsize

    def _values(self, scalars: Sequence[Scalar]) -> dict[int, Any]:
        """The constants: what is given, and what is computed of that alone."""
        sweep = self._sweep
        values: dict[int, Any] = {
            k: np.dtype(sweep.types[k].dtype).type(value)
            for k, value in enumerate(scalars, len(sweep.inputs))
        }
        with np.errstate(all="ignore"):
            for value, args, function in self._constants:
                values[value] = function(*(values[arg] for arg in args))
        return values


def _table(rows: Sequence[tuple[int, ...]], columns: int) -> npt.NDArray[np.int64]:
    return np.array(rows, np.int64).reshape(-1, columns)
