"""Sweeps that assign to slices, ``u[1:-1] = f(u)``: each part of the slots by a sweep of its own.

Such a sweep stores ``where(inside, f(u), u)``, and ``inside`` compares the number of the slot with
the ends of the slice. Between two ends it is the same for all slots: so one value alone is computed
there, and what stays as it is needs no pass at all if it is stored where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.kernel import Arrays, Kernel, Pause, no_pause
from ps_backend.program.sweep import Scalar, Step, Sweep

_MOST_SLICES = 8
"""Assignments of one sweep: what follows them costs more with each."""
_LEAST_LENGTH = 1 << 12
"""Slots for which it is worth to look at the ends of slices."""

_AFTER = {"greater_equal": 0, "greater": 1}
_UNTIL = {"less_equal": 1, "less": 0}
"""By comparison of the slot with a number: how far beyond that the first slot is for which it
begins to hold, or ends to hold."""


@dataclass(frozen=True, slots=True)
class SlicedSweep:
    """Which value a sweep stores, by the slices that a slot is inside of."""

    sweep: Sweep
    conditions: Mapping[int, tuple[tuple[str, int], ...]]
    """By value the comparisons that must hold, and the scalars with which the slot is compared."""
    stored: int
    leaves: Mapping[int, Sweep | None]
    """The values that may be stored, and what computes them; None for inputs and constants."""

    def segments(
        self, scalars: Sequence[Scalar], low: int, high: int
    ) -> Iterator[tuple[int, int, int]]:
        """First slot, that past the last, and the value that is stored in them."""
        first = len(self.sweep.inputs)
        holds: dict[int, tuple[int, int]] = {}
        for value, comparisons in self.conditions.items():
            begin, end = low, high
            for op, scalar in comparisons:
                number = int(scalars[scalar - first])
                if op in _AFTER:
                    begin = max(begin, number + _AFTER[op])
                else:
                    end = min(end, number + _UNTIL[op])
            holds[value] = begin, end
        inner = {slot for ends in holds.values() for slot in ends if low < slot < high}
        cuts = [low, *sorted(inner), high]
        start, last = low, self._leaf(holds, low)
        for slot in cuts[1:-1]:
            leaf = self._leaf(holds, slot)
            if leaf != last:
                yield start, slot, last
                start, last = slot, leaf
        yield start, high, last

    def _leaf(self, holds: Mapping[int, tuple[int, int]], slot: int) -> int:
        value = self.stored
        while value not in self.leaves:
            step = self.sweep.steps[value - len(self.sweep.inputs) - len(self.sweep.scalars)]
            condition, inside, outside = step.args
            begin, end = holds[condition]
            value = inside if begin <= slot < end else outside
        return value


@lru_cache(maxsize=1024)
def sliced(sweep: Sweep) -> SlicedSweep | None:
    """How ``sweep`` falls into parts, if it stores one array that is assigned to slices."""
    if len(sweep.outputs) != 1 or not sweep.is_by_slots or sweep.outputs[0] in sweep.constants:
        return None
    first = len(sweep.inputs) + len(sweep.scalars)
    conditions: dict[int, tuple[tuple[str, int], ...]] = {}
    for number, one in enumerate(sweep.steps, first):
        found = _condition(sweep, one, conditions) if isinstance(one, Step) else None
        if found is not None:
            conditions[number] = found
    type = sweep.types[sweep.outputs[0]]
    leaves: dict[int, Sweep | None] = {}
    slices, todo = set[int](), [sweep.outputs[0]]
    while todo:
        value = todo.pop()
        step = sweep.steps[value - first] if value >= first else None
        if isinstance(step, Step) and step.op == "where" and step.args[0] in conditions:
            slices.add(value)
            todo += step.args[1:]
            continue
        is_constant, own = value in sweep.constants, sweep.types[value]
        if own.dtype != type.dtype or (own.row != type.row and not is_constant):
            return None
        if is_constant and step is not None:  # computed of scalars
            return None
        leaves[value] = None if step is None else _part_of(sweep, value)
    if not slices or len(slices) > _MOST_SLICES:
        return None
    used = {sweep.steps[value - first].args[0] for value in slices}
    conditions = {value: found for value, found in conditions.items() if value in used}
    return SlicedSweep(sweep, conditions, sweep.outputs[0], leaves)


def _condition(
    sweep: Sweep, step: Step, known: Mapping[int, tuple[tuple[str, int], ...]]
) -> tuple[tuple[str, int], ...] | None:
    """What must hold of the slot where ``step`` is true; None if it looks at something else."""
    if step.op == "as_column":
        return known.get(step.args[0])
    if step.op == "bitwise_and" and all(arg in known for arg in step.args):
        return known[step.args[0]] + known[step.args[1]]
    if step.op not in _AFTER and step.op not in _UNTIL:
        return None
    slot, number = step.args
    first = len(sweep.inputs) + len(sweep.scalars)
    is_slot = slot >= first and sweep.steps[slot - first].op == "iota"
    is_number = len(sweep.inputs) <= number < first and sweep.types[number].dtype == "int64"
    if not (is_slot and is_number) or sweep.types[slot].row or sweep.types[number].row:
        return None
    return ((step.op, number),)


def _part_of(sweep: Sweep, value: int) -> Sweep:
    """What computes ``value`` alone. Its inputs and scalars are those of ``used``, in order."""
    needed = _needed(sweep, value)
    number = {old: new for new, old in enumerate(needed)}
    inputs, scalars = len(sweep.inputs), len(sweep.scalars)
    steps = [sweep.steps[k - inputs - scalars] for k in needed if k >= inputs + scalars]
    return Sweep(
        tuple([sweep.inputs[k] for k in needed if k < inputs]),
        tuple([sweep.scalars[k - inputs] for k in needed if inputs <= k < inputs + scalars]),
        tuple([step.renumbered(number) for step in steps]),
        (number[value],),
        (),
    )


def _needed(sweep: Sweep, value: int) -> list[int]:
    """The values that ``value`` is computed from, and itself, in their order."""
    first = len(sweep.inputs) + len(sweep.scalars)
    found, todo = {value}, [value]
    while todo:
        one = todo.pop()
        args = sweep.steps[one - first].args if one >= first else ()
        todo += [arg for arg in args if arg not in found]
        found.update(args)
    return sorted(found)


class SlicedKernel:
    """See ``kernels.Kernel`` for the call."""

    def __init__(
        self, parts: SlicedSweep, whole: Kernel, compile_part: Callable[[Sweep], Kernel]
    ) -> None:
        """``whole`` is a kernel of the whole sweep, for what is short."""
        self._parts, self._whole = parts, whole
        sweep = parts.sweep
        inputs, scalars = len(sweep.inputs), len(sweep.scalars)
        self._kernels: dict[int, tuple[Kernel, list[int], list[int]]] = {}
        for value, part in parts.leaves.items():
            if part is not None:
                used = [k for k in _needed(sweep, value) if k < inputs + scalars]
                places = [k - inputs for k in used if k >= inputs]
                self._kernels[value] = compile_part(part), [k for k in used if k < inputs], places

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
        if length < _LEAST_LENGTH and outputs[0].size < _LEAST_LENGTH:
            return self._whole(inputs, scalars, outputs, offset, length, block_size, pause)
        for low, high, value in self._parts.segments(scalars, offset, offset + length):
            rows = slice(low - offset, high - offset)
            out = outputs[0][rows]
            if value in self._kernels:
                kernel, used, places = self._kernels[value]
                given, numbers = [inputs[k][rows] for k in used], [scalars[k] for k in places]
                kernel(given, numbers, [out], low, high - low, block_size, pause)
            elif value < len(inputs):
                if inputs[value].ctypes.data != outputs[0].ctypes.data:
                    np.copyto(out, inputs[value][rows])
            else:
                np.copyto(out, scalars[value - len(inputs)])
        return []

    def working_bytes(self, length: int, block_size: int) -> int:
        """As of any kernel."""
        kernels = [self._whole, *(kernel for kernel, *_ in self._kernels.values())]
        return max(kernel.working_bytes(length, block_size) for kernel in kernels)
