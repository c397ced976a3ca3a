"""How the steps of a sweep are computed on one chunk of slots: by which function, and where to.

Lists of slots that the client holds are looked at from a chunk: which entries concern it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.program import ops, row_ops
from ps_backend.program.row_ops import Place
from ps_backend.program.sweep import Step, Sweep
from ps_backend.program.types import ValueType

Slots = npt.NDArray[np.int64]


class SlotList:
    """Slots in any order, of which some may be there more than once."""

    def __init__(self, slots: Slots) -> None:
        self._entries = np.argsort(slots, kind="stable")
        self._sorted = slots[self._entries]

    def within(self, first: int, length: int) -> tuple[Slots, Slots]:
        """The entries whose slots are in a chunk, and these slots from its start on.

        They are ordered by slot, those of one slot by entry.
        """
        low, high = np.searchsorted(self._sorted, (first, first + length))
        return self._entries[low:high], self._sorted[low:high] - first

    def next(self, first: int) -> int | None:
        """The first slot at ``first`` or behind it."""
        place = np.searchsorted(self._sorted, first)
        return int(self._sorted[place]) if place < len(self._sorted) else None


class Listed:
    """The slots of a list that are in a job: rows of them are to be copied."""

    def __init__(self, slots: SlotList, first: int, length: int) -> None:
        """``first`` slot and ``length`` of the job."""
        self._slots = slots
        self._wanted = np.sort(slots.within(first, length)[0])
        self.count = len(self._wanted)
        self.next = slots.next

    def copy(self, array: npt.NDArray[np.generic], first: int, values: np.ndarray) -> None:
        """Into ``array``, in the order of the list, what it wants of a chunk."""
        entries, slots = self._slots.within(first, len(values))
        array[np.searchsorted(self._wanted, entries)] = values[slots]


_TOGETHER = 4096
"""Elements of short rows that are computed together: what is the same in each fits the cache."""

_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}

Run = Callable[..., Any]
"""As ``RowOp.run``: the result from ``(out, place, *args)``."""
Expressions = Mapping[int, tuple[Step, Run]]
"""By value of a sweep the step that computes it from others than it says, and how."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """Compute one value of the sweep, ``target``, from others."""

    target: int
    args: tuple[int, ...]
    run: Run
    step: Step
    row_op: row_ops.RowOp | None
    scratch: int | None
    """The scratch array that the result is written to, unless it is a view."""
    output: int | None
    """The output that it may be written to at once, as it ends there, or what replaces it does."""
    listed: int | None
    """The argument that is a list of slots."""
    constants: tuple[int, ...]
    """Of a row op: which of the arguments that should have a value in each slot are constant."""
    tiled: int
    """How many rows may be taken together, as if they were one: 0 if that is not worth it."""
    late: frozenset[int]
    """The inputs that are read when that is written, or later: it must not lie where they do."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is done to each chunk."""

    instructions: tuple[Instruction, ...]
    scratch: tuple[ValueType, ...]
    """A scratch array is of so many rows as a chunk."""
    constants: tuple[tuple[int, Step, Run], ...]
    """What is computed once: values, their steps, and the functions."""


def recipe_of(sweep: Sweep, fuse: Callable[[Sweep], Expressions] | None = None) -> Recipe:
    """The instructions of ``sweep``, which has no combinations.

    ``fuse`` finds expressions in it; what nothing else reads than these is not computed.
    """
    steps = _steps_of(sweep)
    constants = tuple((v, s, _run_of(sweep, s)) for v, s in steps.items() if v in sweep.constants)
    runs = {v: _run_of(sweep, s) for v, s in steps.items() if v not in sweep.constants}
    if fuse is not None:
        fused = fuse(sweep)
        steps |= {value: step for value, (step, _) in fused.items()}
        runs |= {value: run for value, (_, run) in fused.items()}
        read = sweep.results.union(*(steps[value].args for value in fused))
        for value in reversed(runs.copy()):
            if value in read:
                read = read.union(steps[value].args)
            else:
                del runs[value]
    chunked = _overwriting_last({value: steps[value] for value in runs})
    bases = _bases(chunked)
    places = _Places(sweep, chunked, bases)
    made = [places.next(value) for value in chunked]
    late = dict(zip(chunked, _read_late(sweep, chunked, bases), strict=True))
    outputs: dict[int, int] = {}
    first_output = {value: k for k, value in reversed(list(enumerate(sweep.outputs)))}
    for chain in places.chains:  # in place in one array, and that may be the output of the last
        if chain[-1] in first_output:
            outputs |= dict.fromkeys(chain, first_output[chain[-1]])
        late |= dict.fromkeys(chain, frozenset().union(*(late[value] for value in chain)))
    instructions = tuple(
        Instruction(
            value,
            step.args,
            runs[value],
            step,
            row_ops.TABLE.get(step.op),
            scratch,
            outputs.get(value),
            _list_of(step),
            _constants_of(sweep, step),
            _tiled(sweep, step, bases),
            late[value],
        )
        for (value, step), scratch in zip(chunked.items(), made, strict=True)
    )
    return Recipe(instructions, tuple(places.types), constants)


def _overwriting_last(steps: Mapping[int, Step]) -> dict[int, Step]:
    """The steps in an order in which those that may work over an array, and what is computed of
    their results, come after all that still reads it as it was.
    """
    after: set[int] = set()
    for value, step in steps.items():
        if _is_over(step) or not after.isdisjoint(step.args):
            after.add(value)
    first = {value: step for value, step in steps.items() if value not in after}
    return first | {value: step for value, step in steps.items() if value in after}


def _list_of(step: Step) -> int | None:
    place = row_ops.TABLE[step.op].slots if step.op in row_ops.TABLE else None
    return None if place is None else step.args[place]


def _constants_of(sweep: Sweep, step: Step) -> tuple[int, ...]:
    if step.op not in row_ops.TABLE:
        return ()
    own = len(step.args) - row_ops.TABLE[step.op].held
    return tuple(k for k, arg in enumerate(step.args[:own]) if arg in sweep.constants)


def _tiled(sweep: Sweep, step: Step, bases: Mapping[int, int]) -> int:
    """NumPy runs over the rows one by one where an argument is the same in each of them."""
    if step.op in row_ops.TABLE or not step.args or not step.type.row:
        return 0
    row, types = step.type.row, sweep.types
    arrays = [arg for arg in step.args if arg not in sweep.constants]
    repeats = any(types[arg].row == row for arg in step.args if arg in sweep.constants)
    alike = all(types[arg].row == row and arg not in bases for arg in arrays)
    rows = _TOGETHER // row[0]
    return 1 << (rows.bit_length() - 1) if repeats and alike and rows > 1 else 0


def _is_over(step: Step) -> bool:
    return step.op in row_ops.TABLE and row_ops.TABLE[step.op].over


def _is_view(step: Step) -> bool:
    return step.op in row_ops.TABLE and row_ops.TABLE[step.op].view


def _bases(steps: Mapping[int, Step]) -> dict[int, int]:
    """By value that is a view: whose memory it is in."""
    bases: dict[int, int] = {}
    for value, step in steps.items():
        if _is_view(step):
            bases[value] = bases.get(step.args[0], step.args[0])
    return bases


class _Places:
    """Which scratch array each value goes to: those that nobody needs any more are used again."""

    def __init__(self, sweep: Sweep, steps: Mapping[int, Step], bases: Mapping[int, int]) -> None:
        self.types: list[ValueType] = []
        self._steps, self._bases = steps, bases
        self._place: dict[int, int] = {}
        self._free: dict[ValueType, list[int]] = {}
        self.chains: list[list[int]] = []
        """Values, each of which is written over the one before."""
        self._chain: dict[int, list[int]] = {}
        last: dict[int, int] = {}
        for value, step in steps.items():
            last[value] = value
            last |= {bases.get(arg, arg): value for arg in step.args}
        for kept in sweep.results:
            last.pop(bases.get(kept, kept), None)
        self._last = last
        self._ends: dict[int, list[int]] = {}
        for value, end in last.items():
            self._ends.setdefault(end, []).append(value)

    def next(self, value: int) -> int | None:
        """The place of ``value``, the next step; None for a view."""
        step = self._steps[value]
        place = None
        if not _is_view(step):
            place = self._taken_over(value, step)
            if place is None:
                place = self._new(step.type)
                self._chain[place] = []
                self.chains.append(self._chain[place])
            self._chain[place].append(value)
            self._place[value] = place
        for dead in self._ends.get(value, ()):
            if dead in self._place:
                gone = self._place.pop(dead)
                if gone != place or dead == value:
                    self._free.setdefault(self.types[gone], []).append(gone)
        return place

    def _taken_over(self, value: int, step: Step) -> int | None:
        """The place of an argument that is needed no more, if the step works in place."""
        if isinstance(ops.TABLE[step.op].numpy if step.op in ops.TABLE else None, np.ufunc):
            for arg in step.args:
                if arg in self._place and self._last.get(arg) == value:
                    place = self._place[arg]
                    if self.types[place] == step.type:
                        return place
        if _is_over(step):
            base, *others = step.args
            is_alone = all(self._bases.get(arg, arg) != base for arg in others)
            if is_alone and self._last.get(base) == value:
                return self._place.get(base)
        return None

    def _new(self, type: ValueType) -> int:
        free = self._free.get(type)
        if free:
            return free.pop()
        self.types.append(type)
        return len(self.types) - 1


def _read_late(
    sweep: Sweep, steps: Mapping[int, Step], bases: Mapping[int, int]
) -> Iterator[frozenset[int]]:
    """By step the inputs that are read after it, or by it in an order of its own."""
    inputs = range(len(sweep.inputs))
    late = {base for value in sweep.results if (base := bases.get(value, value)) in inputs}
    found: list[frozenset[int]] = []
    for step in reversed(list(steps.values())):
        read = {base for arg in step.args if (base := bases.get(arg, arg)) in inputs}
        others = step.args[1:] if _is_over(step) else step.args
        apart = {base for arg in others if (base := bases.get(arg, arg)) in inputs}
        by_element = step.op in ops.TABLE and step.op != "where"  # that reads what it has written
        found.append(frozenset(late if by_element else late | apart))
        late |= read
    return reversed(found)


# --- functions ------------------------------------------------------------------------------------


def _steps_of(sweep: Sweep) -> dict[int, Step]:
    first = len(sweep.inputs) + len(sweep.scalars)
    return {v: step for v, step in enumerate(sweep.steps, first) if isinstance(step, Step)}


def _run_of(sweep: Sweep, step: Step) -> Run:
    if step.op in row_ops.TABLE:
        return row_ops.TABLE[step.op].run
    row = ops.TABLE[step.op]
    if row.converts:
        return _convert
    if step.op == "iota":
        return _iota
    if step.op == "where":
        return _where
    return _of_ufunc(row.numpy) if fills(sweep, step) else _of_function(row.numpy)


def fills(sweep: Sweep, step: Step) -> bool:
    """Whether a ufunc computes the step, and its result needs no cast."""
    return _gives(step.op, tuple([sweep.types[arg].dtype for arg in step.args]), step.type.dtype)


@lru_cache(maxsize=4096)
def _gives(op: str, args: tuple[str, ...], result: str) -> bool:
    """Whether ``op`` is a ufunc whose loop for ``args`` has just this ``result``."""
    function: Any = ops.TABLE[op].numpy
    if not isinstance(function, np.ufunc) or function.nout != 1:
        return False
    kinds = map(np.dtype, args)
    return bool(function.resolve_dtypes((*kinds, None))[-1] == result)


def _of_ufunc(ufunc: Callable[..., Any]) -> Run:
    def run(out: Any, place: Place, *args: Any) -> Any:
        return ufunc(*args, out=out)

    return run


def _of_function(function: Callable[..., Any]) -> Run:
    def run(out: Any, place: Place, *args: Any) -> Any:
        np.copyto(out, function(*args), casting="unsafe")
        return out

    return run


def _convert(out: Any, place: Place, x: Any) -> Any:
    np.copyto(out, x, casting="unsafe")
    return out


def _where(out: Any, place: Place, condition: Any, first: Any, second: Any) -> Any:
    """Bit by bit: where a mask has no order that takes half as long."""
    if not condition.ndim:
        np.copyto(out, first if condition else second)
        return out
    if _is_by_row(out, condition, first):
        return _where_rows(out, condition, first, second)
    word = _WORDS[out.itemsize]
    bits = out.view(word)
    a, b = (np.asarray(value).view(word) for value in (first, second))
    np.copyto(bits, condition.view(np.uint8))
    np.negative(bits, out=bits)
    np.bitwise_and(bits, a ^ b, out=bits)
    np.bitwise_xor(bits, b, out=bits)
    return out


_LONG_ROW = 64
"""Elements of a row from which NumPy's loop over each is as fast."""


def _is_by_row(out: Any, condition: Any, first: Any) -> bool:
    """Whether rows, of which each is one piece of memory, are taken as a whole or not at all."""
    return bool(
        out.ndim == 2
        and 1 < out.shape[1] < _LONG_ROW
        and condition.shape == (len(out), 1)
        and first.shape == out.shape
        and first.dtype == out.dtype
        and first.flags.c_contiguous
        and out.flags.c_contiguous
    )


def _where_rows(out: Any, condition: Any, first: Any, second: Any) -> Any:
    """The same, each row as one element of so many bytes."""
    row = np.dtype((np.void, out.itemsize * out.shape[1]))
    chosen = first.view(row)[:, 0]
    if np.may_share_memory(out, first):
        chosen = chosen.copy()
    np.copyto(out, second)
    np.copyto(out.view(row)[:, 0], chosen, where=condition[:, 0])
    return out


def _iota(out: Any, place: Place) -> Any:
    """The index of each element: in a table they are counted row by row."""
    width = out.shape[1] if out.ndim > 1 else 1
    first = place.first * width
    out[...] = np.arange(first, first + out.size).reshape(out.shape)
    return out


def constants_of(recipe: Recipe, sweep: Sweep, scalars: Sequence[Any]) -> dict[int, Any]:
    """The constants of a run, by value."""
    found: dict[int, Any] = {}
    for value, given in enumerate(scalars, len(sweep.inputs)):
        dtype = np.dtype(sweep.types[value].dtype)
        found[value] = given if isinstance(given, np.ndarray) else dtype.type(given)
    for value, step, run in recipe.constants:
        args = [found[arg] for arg in step.args]
        out = np.empty(np.broadcast_shapes(*(arg.shape for arg in args)), step.type.dtype)
        run(out, Place(), *args)
        found[value] = out
    return found


def number_steps(sweep: Sweep) -> list[tuple[int, tuple[int, ...], Callable[..., Any]]]:
    """The steps that a flat sweep computes of its scalars alone: value, arguments, function."""
    return [
        (value, step.args, partial(_number, step))
        for value, step in _steps_of(sweep).items()
        if value in sweep.constants
    ]


def _number(step: Step, *args: Any) -> Any:
    return np.dtype(step.type.dtype).type(function_of(step)(*args))


def function_of(step: Step) -> Callable[..., Any]:
    """What computes a step of numbers, or of few elements, without memory for the result."""
    row, dtype = ops.TABLE[step.op], np.dtype(step.type.dtype)
    function: Callable[..., Any] = np.asarray if row.converts else row.numpy

    def compute(*args: Any) -> Any:
        value = function(*args)
        return value if value.dtype == dtype else value.astype(dtype)

    return compute
