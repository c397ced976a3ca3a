"""The numexpr engine: a sweep run chunk by chunk, each chunk small enough for the cache.

Steps whose values nobody else needs are joined into one numexpr expression; the others, and the ops
that numexpr computes differently from NumPy, run as NumPy functions. Nothing is compiled.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numexpr
import numpy as np
import numpy.typing as npt

from ps_backend.kernels.lowering.lower import for_numexpr
from ps_backend.kernels.pause import Pause, no_pause
from ps_backend.program import ops
from ps_backend.program.reducers import REDUCERS, Reducer
from ps_backend.program.sweep import Reduction, Scalar, Step, Sweep, partial_dtypes

_CHUNK = 1 << 15
_LONG_WORK = 1 << 22
"""Elements computed, over all instructions, above which one chunk is worth several pauses."""
_LEAST_JOINED = 3
"""Fewer steps than this are faster as NumPy calls than as one numexpr call."""
_MOST_JOINED = 15
"""numexpr takes at most 31 arguments, and its parser some 90 nested parentheses."""

# numexpr keeps the state of a running expression in globals of its module.
_NUMEXPR_LOCK = threading.Lock()

Array = npt.NDArray[np.generic]
Partials = list[list[tuple[Array, ...]]]
"""By reduction, chunk by chunk."""

_NUMEXPR_TYPES = {"float64": np.float64, "float32": float}
"""What numexpr calls the dtypes that it is given."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """Compute one value of the sweep from others."""

    target: int
    args: tuple[int, ...]
    apply: Callable[..., Any]
    dtype: np.dtype[Any]


class NumexprKernel:
    """A list of instructions over chunks; see ``kernels.Kernel`` for the call."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep = for_numexpr(sweep)
        self._dtypes = [np.dtype(value.dtype) for value in sweep.types]
        self._instructions = _instructions(sweep)
        self._last_uses, self._most_alive = _lives(sweep, self._instructions)
        self._unknown = [None] * len(sweep.steps)
        self._partials = [partial_dtypes(r, sweep.types[r.args[0]]) for r in sweep.reductions]

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
        sweep = self._sweep
        first = len(sweep.inputs)
        partials: Partials = [[] for _ in sweep.reductions]
        chunk = chunk_of(block_size)
        # NumPy warns of the special values that the client's user handles; a server has no user.
        with np.errstate(all="ignore"):
            typed = [self._dtypes[k].type(value) for k, value in enumerate(scalars, first)]
            for low in range(0, length, chunk):
                high = min(low + chunk, length)
                values = [array[low:high] for array in inputs] + typed + self._unknown
                if low:
                    pause()
                self._compute(values, offset + low, high - low, pause)
                for k, reduction in enumerate(sweep.reductions):
                    operand = values[reduction.args[0]]
                    if operand.ndim == 0:
                        operand = np.broadcast_to(operand, (high - low,))
                    partials[k].append(reduce_blocks(reduction, operand, offset + low, block_size))
                # Last, as an output may lie where an input was.
                for array, value in zip(outputs, sweep.outputs, strict=True):
                    array[low:high] = values[value]
        return joined(self._partials, [partials])

    def working_bytes(self, length: int, block_size: int) -> int:
        """Bytes of the values that are alive at once, and of partial results."""
        chunk = min(length, chunk_of(block_size))
        partials = len(self._partials) * -(-length // block_size) if self._partials else 0
        return 8 * (self._most_alive * chunk + 2 * partials)

    def _compute(self, values: list[Any], index: int, length: int, pause: Pause) -> None:
        often = len(self._instructions) * length > _LONG_WORK
        for instruction in self._instructions:
            if often:
                pause()
            if instruction.apply is _iota:
                value = np.arange(index, index + length, dtype=np.int64)
            else:
                value = instruction.apply(*[values[arg] for arg in instruction.args])
            values[instruction.target] = _as_dtype(value, instruction.dtype)
            for dead in self._last_uses.get(instruction.target, ()):
                values[dead] = None


def chunk_of(block_size: int) -> int:
    """Elements of a chunk: so many whole blocks as fit the cache, and one at least."""
    return max(1, _CHUNK // block_size) * block_size


def joined(dtypes: Sequence[Sequence[np.dtype[Any]]], parts: Sequence[Partials]) -> list[Array]:
    """The partial results of consecutive parts; ``dtypes`` are those of each reduction."""
    result = []
    for number, kinds in enumerate(dtypes):
        for k, dtype in enumerate(kinds):
            arrays = [_as_dtype(chunk[k], dtype) for part in parts for chunk in part[number]]
            if len(arrays) == 1:
                result.append(arrays[0])
            else:
                result.append(np.concatenate(arrays) if arrays else np.empty(0, dtype))
    return result


def constants_of(sweep: Sweep) -> list[tuple[int, tuple[int, ...], Callable[..., Any]]]:
    """What of ``sweep`` is computed of its scalars alone: value, arguments, function."""
    first = len(sweep.inputs) + len(sweep.scalars)
    steps = [_plain(sweep, value) for value in sorted(sweep.constants) if value >= first]
    return [(one.target, one.args, partial(_number, one)) for one in steps]


def _number(instruction: Instruction, *args: Any) -> Any:
    return instruction.dtype.type(instruction.apply(*args))


def _as_dtype(value: Any, dtype: np.dtype[Any]) -> Any:
    return value if value.dtype == dtype else value.astype(dtype)


def _iota() -> None:
    raise TypeError("the index depends on the chunk; the kernel computes it itself")


# --- instructions ---------------------------------------------------------------------------------


def _instructions(sweep: Sweep) -> list[Instruction]:
    first = len(sweep.inputs) + len(sweep.scalars)
    kept = sweep.results
    uses = Counter(arg for step in sweep.steps for arg in step.args)
    fusable = [isinstance(step, Step) and _fits_numexpr(sweep, step) for step in sweep.steps]

    def may_join(value: int) -> bool:
        """Whether this step's value is needed once, and numexpr computes it."""
        return value >= first and fusable[value - first] and uses[value] == 1 and value not in kept

    members: dict[int, list[int]] = {}  # by value of an instruction: the steps that it computes
    for number, step in enumerate(sweep.steps, first):
        members[number] = [number]
        for arg in step.args if fusable[number - first] else ():
            if may_join(arg) and len(members[number]) + len(members[arg]) <= _MOST_JOINED:
                members[number] += members.pop(arg)
    result = []
    for some in members.values():
        if len(some) >= _LEAST_JOINED:
            result.append(_joined(sweep, sorted(some)))
        else:
            result += [_plain(sweep, member) for member in sorted(some)]
    return result


def _lives(sweep: Sweep, instructions: Sequence[Instruction]) -> tuple[dict[int, list[int]], int]:
    """After which instruction which values are used no more; and how many are kept at once."""
    first = len(sweep.inputs) + len(sweep.scalars)
    kept = sweep.results
    last: dict[int, int] = {}
    for instruction in instructions:
        last[instruction.target] = instruction.target  # of no use: its own is the last
        last |= dict.fromkeys(instruction.args, instruction.target)
    ends: dict[int, list[int]] = {}
    for value, end in last.items():
        if value >= first and value not in kept:
            ends.setdefault(end, []).append(value)
    alive = most = 0
    for instruction in instructions:
        alive += 1
        most = max(most, alive)
        alive -= len(ends.get(instruction.target, ()))
    return ends, most


def _fits_numexpr(sweep: Sweep, step: Step) -> bool:
    """numexpr computes the step as NumPy does: a known template on floats of one dtype."""
    dtypes = {sweep.types[arg].dtype for arg in step.args}
    result = step.type.dtype
    return (
        ops.TABLE[step.op].numexpr is not None
        and len(dtypes) == 1
        and dtypes <= {"float64", "float32"}
        and (result == "bool" or {result} == dtypes)
    )


def _joined(sweep: Sweep, members: Sequence[int]) -> Instruction:
    """One expression for steps that end in the last of them, through values nobody else needs."""
    first, root = len(sweep.inputs) + len(sweep.scalars), members[-1]
    text: dict[int, str] = {}
    arguments: list[int] = []
    for value in members:
        step = sweep.steps[value - first]
        for arg in step.args:
            if arg not in text:
                text[arg] = f"v{arg}"
                arguments.append(arg)
        template = ops.TABLE[step.op].numexpr or ""
        text[value] = template.format(*(text[arg] for arg in step.args))
    signature = [(f"v{arg}", _NUMEXPR_TYPES[sweep.types[arg].dtype]) for arg in arguments]
    function = numexpr.NumExpr(text[root], signature)

    def apply(*values: Any) -> Any:
        with _NUMEXPR_LOCK:
            return function(*values)

    return Instruction(root, tuple(arguments), apply, np.dtype(sweep.types[root].dtype))


def _plain(sweep: Sweep, number: int) -> Instruction:
    step = sweep.steps[number - len(sweep.inputs) - len(sweep.scalars)]
    dtype = np.dtype(step.type.dtype)
    row = ops.TABLE[step.op]
    apply: Callable[..., Any] = row.numpy
    if step.op == "iota":
        apply = _iota
    elif row.converts:
        apply = _convert_to(dtype)
    return Instruction(number, step.args, apply, dtype)


def _convert_to(dtype: np.dtype[Any]) -> Callable[[Any], Any]:
    return lambda value: np.asarray(value).astype(dtype)


# --- reductions -----------------------------------------------------------------------------------


def reduce_blocks(
    reduction: Reduction, values: Array, index: int, block_size: int
) -> tuple[Array, ...]:
    """Partial results of the blocks of one chunk, the last of which may be short."""
    reducer = REDUCERS[reduction.op]
    values = _accumulator(reducer, values)
    whole = len(values) // block_size * block_size
    parts = []
    if whole:
        parts.append(_reduce_rows(reducer, values[:whole].reshape(-1, block_size), index))
    if whole < len(values):
        parts.append(_reduce_rows(reducer, values[whole:][None, :], index + whole))
    if len(parts) == 1:
        return parts[0]
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))


def _accumulator(reducer: Reducer, values: Array) -> Array:
    if reducer.truth:
        return np.not_equal(values, 0)
    wide: Array = _as_dtype(values, reducer.wide(values.dtype))
    return wide


def _reduce_rows(reducer: Reducer, rows: Array, index: int) -> tuple[Array, ...]:
    in_order = reducer.in_order if rows.dtype == np.float64 else None
    reduced = (in_order or reducer.over_rows)(rows)
    if not reducer.locates:
        return (reduced,)
    number = np.arange(len(rows))
    return rows[number, reduced], (index + number * rows.shape[1] + reduced).astype(np.int64)
