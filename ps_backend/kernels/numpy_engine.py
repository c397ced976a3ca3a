"""The NumPy engine: a sweep run chunk by chunk, each chunk small enough for the cache.

Every step is a call of NumPy's function, which writes into memory that a value before it has left:
a chain of any length needs two arrays of one chunk. Nothing is compiled.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.lowering import for_numpy
from ps_backend.kernels.threads import Pause, no_pause
from ps_backend.program import ops
from ps_backend.program.reducers import REDUCERS, Reducer
from ps_backend.program.sweep import Reduction, Scalar, Sweep, partial_dtypes

_CHUNK = 1 << 15
_FLOAT = np.dtype(np.float64)
_FEW_ELEMENTS = 1 << 14
"""Of all values together."""
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_LONG_WORK = 1 << 22
"""Elements computed, over all instructions, above which one chunk is worth several pauses."""

Array = npt.NDArray[np.generic]
Partials = list[list[tuple[Array, ...]]]
"""By reduction, chunk by chunk."""
Spare = dict[np.dtype[Any], list[Array]]
"""By dtype, arrays of a chunk that nobody needs."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """Compute one value of the sweep from others."""

    target: int
    args: tuple[int, ...]
    apply: Callable[..., Any]
    dtype: np.dtype[Any]
    fills: bool = False
    """Takes ``out``, an array of the dtype."""
    apart: bool = False
    """And that must not lie where an argument does."""


Fuse = Callable[[Sweep, Sequence[Instruction]], list[Instruction]]


class NumpyKernel:
    """A list of instructions over chunks; see ``kernels.Kernel`` for the call."""

    def __init__(self, sweep: Sweep, fuse: Fuse | None = None, chunk: int = _CHUNK) -> None:
        """``fuse``: what makes fewer instructions of those of a sweep. ``chunk``: elements."""
        self._sweep = sweep = for_numpy(sweep)
        self._dtypes = [np.dtype(value.dtype) for value in sweep.types]
        first = len(sweep.inputs) + len(sweep.scalars)
        self._instructions = [_plain(sweep, value) for value in range(first, len(sweep.types))]
        self._most_at_once = _FEW_ELEMENTS if fuse is None else 0
        if fuse is not None:
            self._instructions = fuse(sweep, self._instructions)
        self._chunk = chunk
        self._last_uses, self._most_alive = _lives(sweep, self._instructions)
        self._direct = _stored_at_once(sweep)
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
        if 0 < length <= block_size and length * len(self._dtypes) <= self._most_at_once:
            return self._at_once(inputs, scalars, outputs, offset, length, block_size)
        sweep = self._sweep
        first = len(sweep.inputs)
        partials: Partials = [[] for _ in sweep.reductions]
        chunk = chunk_of(block_size, self._chunk)
        spare: Spare = defaultdict(list)
        # NumPy warns of the special values that the client's user handles; a server has no user.
        with np.errstate(all="ignore"):
            typed = [self._dtypes[k].type(value) for k, value in enumerate(scalars, first)]
            for low in range(0, length, chunk):
                high = min(low + chunk, length)
                values = [array[low:high] for array in inputs] + typed + self._unknown
                written = [array[low:high] for array in outputs]
                if low:
                    pause()
                own = self._compute(values, written, spare, offset + low, high - low, pause)
                for k, reduction in enumerate(sweep.reductions):
                    operand = values[reduction.args[0]]
                    if operand.ndim == 0:
                        operand = np.broadcast_to(operand, (high - low,))
                    partials[k].append(reduce_blocks(reduction, operand, offset + low, block_size))
                # Last, as an output may lie where an input was.
                for k, (array, value) in enumerate(zip(written, sweep.outputs, strict=True)):
                    if k != self._direct:
                        array[:] = values[value]
                for value, array in own.items():
                    spare[self._dtypes[value]].append(array)
        return joined(self._partials, [partials])

    def _at_once(
        self,
        inputs: Sequence[Array],
        scalars: Sequence[Scalar],
        outputs: Sequence[Array],
        offset: int,
        length: int,
        block_size: int,
    ) -> list[Array]:
        """The same of so few elements that to use memory again costs more than it saves."""
        sweep = self._sweep
        result: list[Array] = []
        with np.errstate(all="ignore"):
            typed = [
                self._dtypes[k].type(value) for k, value in enumerate(scalars, len(sweep.inputs))
            ]
            values: list[Any] = [*inputs, *typed, *self._unknown]
            for one in self._instructions:
                args = [values[arg] for arg in one.args]
                if one.apply is _iota:
                    values[one.target] = np.arange(offset, offset + length, dtype=np.int64)
                elif one.fills:
                    values[one.target] = one.apply(*args)
                else:
                    values[one.target] = _as_dtype(one.apply(*args), one.dtype)
            for reduction, dtypes in zip(sweep.reductions, self._partials, strict=True):
                operand = values[reduction.args[0]]
                in_order = REDUCERS[reduction.op].in_order
                if in_order is not None and operand.dtype == _FLOAT and operand.ndim:
                    result.append(in_order(operand[None, :]))
                    continue
                if operand.ndim == 0:
                    operand = np.broadcast_to(operand, (length,))
                parts = reduce_blocks(reduction, operand, offset, block_size)
                result += [
                    _as_dtype(part, dtype) for part, dtype in zip(parts, dtypes, strict=True)
                ]
            for array, value in zip(outputs, sweep.outputs, strict=True):
                array[:] = values[value]
        return result

    def working_bytes(self, length: int, block_size: int) -> int:
        """Bytes of the values that are alive at once, and of partial results."""
        chunk = min(length, chunk_of(block_size, self._chunk))
        partials = len(self._partials) * -(-length // block_size) if self._partials else 0
        return 8 * (self._most_alive * chunk + 2 * partials)

    def _compute(
        self,
        values: list[Any],
        outputs: Sequence[Array],
        spare: Spare,
        index: int,
        length: int,
        pause: Pause,
    ) -> dict[int, Array]:
        """Compute all values of one chunk; those that are dead leave their memory in ``spare``.

        Returns the memory of the others.
        """
        often = len(self._instructions) * length > _LONG_WORK
        own: dict[int, Array] = {}
        last = self._instructions[-1].target if self._instructions else -1
        for instruction in self._instructions:
            if often:
                pause()
            target, dtype = instruction.target, instruction.dtype
            args = [values[arg] for arg in instruction.args]
            if instruction.apart:
                own[target] = _taken(spare, dtype, length)
                values[target] = instruction.apply(*args, out=own[target][:length])
            for dead in self._last_uses.get(target, ()):
                values[dead] = None
                if dead in own:
                    spare[self._dtypes[dead]].append(own.pop(dead))
            if instruction.apart:
                continue
            if instruction.apply is _iota:
                values[target] = np.arange(index, index + length, dtype=np.int64)
            elif not instruction.fills:
                values[target] = _as_dtype(instruction.apply(*args), dtype)
            elif target == last and self._direct is not None:
                values[target] = instruction.apply(*args, out=outputs[self._direct])
            else:
                own[target] = _taken(spare, dtype, length)
                values[target] = instruction.apply(*args, out=own[target][:length])
        return own


def _taken(spare: Spare, dtype: np.dtype[Any], length: int) -> Array:
    left = spare[dtype]
    return left.pop() if left else np.empty(length, dtype)


def chunk_of(block_size: int, most: int = _CHUNK) -> int:
    """Elements of a chunk: so many whole blocks as fit the cache, and one at least."""
    return max(1, most // block_size) * block_size


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


def _stored_at_once(sweep: Sweep) -> int | None:
    """The output that the last step may write to, though an input may lie there."""
    last = len(sweep.types) - 1
    are_read_later = any(value < len(sweep.inputs) for value in sweep.results)
    if not sweep.steps or last not in sweep.outputs or are_read_later:
        return None
    return sweep.outputs.index(last) if _fills(sweep, last) else None


def _fills(sweep: Sweep, value: int) -> bool:
    """Whether a ufunc computes ``value``, of arrays, and its result needs no cast."""
    step = sweep.steps[value - len(sweep.inputs) - len(sweep.scalars)]
    if value in sweep.constants:
        return False
    return _gives(step.op, tuple([sweep.types[arg].dtype for arg in step.args]), step.type.dtype)


@lru_cache(maxsize=4096)
def _gives(op: str, args: tuple[str, ...], result: str) -> bool:
    """Whether ``op`` is a ufunc whose loop for ``args`` has just this ``result``."""
    function: Any = ops.TABLE[op].numpy
    if not isinstance(function, np.ufunc) or function.nout != 1:
        return False
    kinds = map(np.dtype, args)
    return bool(function.resolve_dtypes((*kinds, None))[-1] == result)


def _lives(sweep: Sweep, instructions: Sequence[Instruction]) -> tuple[dict[int, list[int]], int]:
    """After which instruction which values are used no more; and how many are kept at once."""
    first = len(sweep.inputs) + len(sweep.scalars)
    kept = sweep.results
    last: dict[int, int] = {}
    for instruction in instructions:
        last[instruction.target] = instruction.target  # of no use: its own is the last
        for arg in instruction.args:
            last[arg] = instruction.target
    ends: dict[int, list[int]] = {}
    for value, end in last.items():
        if value >= first and value not in kept:
            ends.setdefault(end, []).append(value)
    alive: Counter[str] = Counter()
    most: Counter[str] = Counter()  # by dtype: memory of one is of no use to another
    for instruction in instructions:
        kind = sweep.types[instruction.target].dtype
        alive[kind] += 1
        most[kind] = max(most[kind], alive[kind])
        for value in ends.get(instruction.target, ()):
            alive[sweep.types[value].dtype] -= 1
    return ends, most.total()


def _plain(sweep: Sweep, number: int) -> Instruction:
    step = sweep.steps[number - len(sweep.inputs) - len(sweep.scalars)]
    dtype = np.dtype(step.type.dtype)
    row = ops.TABLE[step.op]
    apply: Callable[..., Any] = row.numpy
    if step.op == "iota":
        apply = _iota
    elif row.converts:
        apply = _convert_to(dtype)
    elif step.op == "where" and number not in sweep.constants:
        return Instruction(number, step.args, _select, dtype, fills=True, apart=True)
    return Instruction(number, step.args, apply, dtype, _fills(sweep, number))


def _select(condition: Any, first: Any, second: Any, out: Array | None = None) -> Any:
    """``numpy.where``, bit by bit into ``out``: by masks without an order twice as fast."""
    if out is None:
        return np.where(condition, first, second)
    if not condition.ndim:
        np.copyto(out, first if condition else second)
        return out
    word = _WORDS[out.itemsize]
    bits = out.view(word)
    a, b = (np.asarray(value).view(word) for value in (first, second))
    np.copyto(bits, condition.view(np.uint8))
    np.negative(bits, out=bits)
    np.bitwise_and(bits, a ^ b, out=bits)
    np.bitwise_xor(bits, b, out=bits)
    return out


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
        return values if values.dtype == np.bool_ else np.not_equal(values, 0)
    if _counts(reducer, values):
        return values
    wide: Array = _as_dtype(values, reducer.wide(values.dtype))
    return wide


def _counts(reducer: Reducer, values: Array) -> bool:
    """Whether it is a sum of masks, whose elements stay single bytes."""
    return reducer.name == "sum" and values.dtype == np.bool_


def _reduce_rows(reducer: Reducer, rows: Array, index: int) -> tuple[Array, ...]:
    if _counts(reducer, rows):
        return (np.array([np.count_nonzero(row) for row in rows], np.int64),)
    in_order = reducer.in_order if rows.dtype == np.float64 else None
    reduced = (in_order or reducer.over_rows)(rows)
    if not reducer.locates:
        return (reduced,)
    number = np.arange(len(rows))
    return rows[number, reduced], (index + number * rows.shape[1] + reduced).astype(np.int64)
