"""Steps that NumPy has inner loops for, as instructions of the interpreter in ``tiles``.

What only these steps need lives in registers of one tile each: a step takes over the register of an
argument that nobody needs after it, so a chain of any length needs few of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.compiled.machine_code import tile_loop
from ps_backend.kernels.compiled.tables import address_of
from ps_backend.kernels.numpy_loops import has_loop, loop_of
from ps_backend.program.sweep import Step, Sweep

TILE = 1024
"""Elements. A step takes some 20 ns a tile besides its work, a tenth of it for an addition."""
REGISTER = 8 * TILE
"""Bytes."""
_CONSTANT = 8
"""Bytes of each."""
_WITH_PYTHON = frozenset({"int_pow"})
"""Ops whose loops raise errors."""

Array = npt.NDArray[np.generic]


def runs_by_loop(sweep: Sweep, value: int) -> bool:
    """Whether the step that computes ``value`` can be one of a ``LoopProgram``."""
    step = sweep.steps[value - len(sweep.inputs) - len(sweep.scalars)]
    return (
        isinstance(step, Step)
        and step.op not in _WITH_PYTHON
        and has_loop(step.op, _dtypes(sweep, value))
    )


def _dtypes(sweep: Sweep, value: int) -> tuple[str, ...]:
    """Of the arguments of a step, then of its result."""
    step = sweep.steps[value - len(sweep.inputs) - len(sweep.scalars)]
    return (*(sweep.types[arg].dtype for arg in step.args), step.type.dtype)


class LoopProgram:
    """Some steps of ``sweep``, in order; those that are ``wanted`` are written to arrays."""

    def __init__(self, sweep: Sweep, steps: Sequence[int], wanted: AbstractSet[int]) -> None:
        """``steps`` and ``wanted`` are values of the sweep."""
        own, first = set(steps), len(sweep.inputs) + len(sweep.scalars)
        args = {value: sweep.steps[value - first].args for value in steps}
        taken = dict.fromkeys(arg for value in steps for arg in args[value] if arg not in own)
        self.writes = [value for value in steps if value in wanted]
        self.constants = [value for value in taken if value in sweep.constants]
        self.reads = [value for value in taken if value not in sweep.constants]
        self.last_reads = {arg: at for at, value in enumerate(steps) for arg in args[value]}
        """By value: which of the steps is the last to read it."""
        self.steps = list(steps)
        self.registers = 0
        """How many there are."""
        self._run = tile_loop()
        sizes = [np.dtype(value.dtype).itemsize for value in sweep.types]
        slots = [*self.constants, *self.reads, *self.writes]
        base = {value: k for k, value in enumerate(slots, 1)}  # 0 is that of registers
        registers = self._registers(sizes, args, own - set(self.writes))
        constant = set(self.constants)
        instructions: list[tuple[int, ...]] = []
        operands: list[tuple[int, int, int]] = []
        bases: list[int] = []
        for value in steps:
            concerned = (*args[value], value)
            strides = tuple(0 if one in constant else sizes[one] for one in concerned)
            loop = loop_of(sweep.steps[value - first].op, _dtypes(sweep, value), strides)
            instructions.append((*loop.tolist(), len(operands), len(concerned)))
            for one, stride in zip(concerned, strides, strict=True):
                if one in registers:
                    operands.append((registers[one] * REGISTER, -1, stride))
                else:
                    operands.append((0, stride, stride))
                bases.append(base.get(one, 0))
        self._instructions = np.array(instructions, np.int64)
        self._operands = np.array(operands, np.int64)
        self._bases = np.array(bases)
        self._types = [np.dtype(sweep.types[value].dtype) for value in self.constants]

    def _registers(
        self, sizes: Sequence[int], args: Mapping[int, tuple[int, ...]], own: AbstractSet[int]
    ) -> dict[int, int]:
        """The register of each of ``own``."""
        register: dict[int, int] = {}
        free: list[int] = []
        for at, value in enumerate(self.steps):
            ended = {arg for arg in args[value] if arg in own and self.last_reads[arg] == at}
            # Where elements have two sizes, a loop would write over what it has not read yet.
            free += [register[arg] for arg in sorted(ended) if sizes[arg] == sizes[value]]
            if value in own:
                if not free:
                    free.append(self.registers)
                    self.registers += 1
                register[value] = free.pop()
                if value not in self.last_reads:
                    free.append(register[value])
            free += [register[arg] for arg in sorted(ended) if sizes[arg] != sizes[value]]
        return register

    def bind(self, values: Mapping[int, Any], registers: Array) -> _Bound:
        """The program on these arrays and constants, by value of the sweep.

        ``registers`` is memory for them, of one thread.
        """
        constants = np.zeros(len(self.constants) * _CONSTANT, np.uint8)
        for k, (value, kind) in enumerate(zip(self.constants, self._types, strict=True)):
            constants[k * _CONSTANT :][: kind.itemsize].view(kind)[0] = values[value]
        start = address_of(constants)
        places = [0, *range(start, start + len(constants), _CONSTANT)]
        places += [address_of(values[value]) for value in (*self.reads, *self.writes)]
        operands = self._operands.copy()
        operands[:, 0] += np.array(places, np.int64)[self._bases]
        return _Bound(self._run, self._instructions, operands, (constants, registers))


class _Bound:
    """A program that knows where its arrays are."""

    def __init__(self, run: Any, instructions: Any, operands: Any, kept: tuple[Array, ...]) -> None:
        self._run, self._kept = run, kept
        self._arguments = instructions, operands, address_of(kept[-1])

    def run(self, low: int, high: int) -> None:
        """Compute the elements from ``low`` to ``high``."""
        self._run(*self._arguments, low, high, TILE)
